"""The whole of a small run: a task of two calls and a tool, once as numbers and once under vLLM's keys."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reports.numbers import Objectives
from reports.summary import numbers_of, parse_objectives, summarize, summary_of
from tests.reports.records import make_call, make_header, make_run, make_sample, make_task, make_tool


def small_run() -> dict[str, Any]:
    """Call 0: 0 to 2, call 1: 3 to 5, the tool between them; 250 prompt tokens, 96 of them cached."""
    second = make_call(
        index=1,
        due_at=3.0,
        first_token_at=3.5,
        last_token_at=5.0,
        num_prompt_tokens=150,
        num_cached_tokens=96,
        num_output_tokens=16,
    )
    return {
        "calls": [make_call(), second],
        "tools": [make_tool()],
        "tasks": [make_task(ended_at=5.0, num_calls=2, num_tool_calls=1)],
        "samples": [
            make_sample(0.0),
            make_sample(5.0, busy_s=4.0, occupancy_s=4.0, num_computed_prompt_tokens=154, num_evicted_blocks=3),
        ],
    }


def test_totals_and_rates_of_a_small_run() -> None:
    numbers = numbers_of(make_run(**small_run()), Objectives(ttft_s=0.6))

    assert numbers.invalid_reasons == ()
    assert (numbers.num_prompt_tokens, numbers.num_cached_tokens, numbers.num_computed_tokens) == (
        250,
        96,
        154,
    )
    assert numbers.num_output_tokens == 27
    assert numbers.hit_rate == numbers.reusable_hit_rate == 96 / 250
    assert numbers.request_throughput == 2 / 5
    assert numbers.output_throughput == 27 / 5
    assert (numbers.cached_input_throughput, numbers.computed_input_throughput) == (96 / 5, 154 / 5)
    assert numbers.tasks_per_hour == 720
    assert (numbers.goodput, numbers.goodput_attainment) == (0.2, 0.5)
    assert numbers.tool_share == 0.2
    assert (numbers.gpu_busy_share, numbers.batch_occupancy) == (0.8, 0.25)
    assert (numbers.num_server_computed_tokens, numbers.num_evicted_blocks) == (154, 3)


def test_summary_has_vllms_keys_in_milliseconds() -> None:
    summary = summary_of(numbers_of(make_run(**small_run())))

    assert summary["mean_ttft_ms"] == 750
    assert summary["p99_ttft_ms"] == pytest.approx(995)
    assert summary["mean_tpot_ms"] == pytest.approx(100)
    assert summary["median_e2el_ms"] == 2000
    assert summary["request_throughput"] == 0.4
    assert summary["total_token_throughput"] == 277 / 5
    assert (summary["completed"], summary["failed"], summary["duration"]) == (2, 0, 5)


def test_summary_of_records_is_json_and_says_that_it_is_valid() -> None:
    summary = summarize(header=make_header(), **small_run())

    assert json.loads(json.dumps(summary)) == summary
    assert summary["valid"] is True
    assert summary["makespan_s"] == 5
    assert summary["mean_itl_ms"] is None


def test_a_run_of_nothing_has_a_summary_too() -> None:
    summary = summarize(header=make_header(complete=False), calls=[], tools=[], tasks=[], samples=[])

    assert summary["valid"] is False
    assert summary["makespan_s"] is None
    assert summary["request_throughput"] is None
    assert summary["hit_rate"] is None


def test_objectives_are_given_in_milliseconds() -> None:
    assert parse_objectives(["ttft:500", "tpot:50", "e2el:10000"]) == Objectives(ttft_s=0.5, tpot_s=0.05, e2e_s=10.0)


@pytest.mark.parametrize("text", ["ttft", "ttft:fast", "speed:1", "ttft:0", "ttft:nan"])
def test_an_objective_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="goodput objective"):
        parse_objectives([text])
