"""Which part of a run is measured, and what of it counts."""

from __future__ import annotations

from typing import Any

import pytest

from reports.compare import compare
from reports.measure import RunColumns, collect
from reports.numbers import Objectives
from reports.summary import numbers_of, summary_of
from reports.terminal import window_lines
from reports.window import Window
from tests.reports.records import make_call, make_header, make_sample, make_task


def run_with(settings: dict[str, Any], *, ends: list[float], starts: list[float] | None = None) -> RunColumns:
    """A task of one call from each start to its end; every call's first token comes half a second before its last."""
    starts = starts or [0.0] * len(ends)
    spans = list(zip(starts, ends, strict=True))
    return collect(
        header=make_header(settings=settings, num_tasks=len(spans)),
        calls=[
            make_call(
                f"t{k}/react", due_at=start, sent_at=start, first_token_at=end - 0.5, last_token_at=end, chunk_at=()
            )
            for k, (start, end) in enumerate(spans)
        ],
        tools=[],
        tasks=[make_task(f"t{k}", started_at=start, ended_at=end) for k, (start, end) in enumerate(spans)],
        samples=[make_sample(at=float(second), busy_s=float(min(second, 6))) for second in range(11)],
    )


def test_without_a_word_all_of_a_run_is_measured() -> None:
    run = run_with({}, ends=[1.0, 2.0])

    assert run.window is None
    numbers = numbers_of(run)
    assert (numbers.num_calls_measured, numbers.window) == (2, None)
    assert summary_of(numbers)["measured_from_s"] is None


@pytest.mark.parametrize(
    ("settings", "window"),
    [
        ({"warmup": 3.0}, (3.0, 10.0)),
        ({"cooldown": 2.0}, (0.0, 8.0)),
        ({"warmup": 0.1, "cooldown": 0.25}, (1.0, 7.5)),
        ({"warmup": 30.0}, (30.0, 10.0)),
    ],
)
def test_warm_up_and_cool_down_are_seconds_or_shares_of_the_run(
    settings: dict[str, Any], window: tuple[float, float]
) -> None:
    found = run_with(settings, ends=[4.0, 10.0]).window

    assert found == Window(from_at=window[0], until_at=window[1])


def test_a_closed_loop_is_steady_from_its_ramp_up_to_when_the_tenth_part_has_gone() -> None:
    """Ten tasks come one a second and are replaced when they end; the last ten leave one a second."""
    starts = [float(k) for k in range(10)] + [20.0 + k for k in range(10)]
    ends = [20.0 + k for k in range(10)] + [40.0 + k for k in range(10)]

    window = run_with({"steady_window": True, "request_rate": "inf"}, starts=starts, ends=ends).window

    assert window == Window(from_at=8.0, until_at=41.0)  # nine are at work from the ninth's start to the second's end


def test_an_open_loop_is_steady_from_when_its_first_tasks_would_be_over_to_its_last_arrival() -> None:
    starts = [float(k) for k in range(10)]

    window = run_with(
        {"steady_window": True, "request_rate": 1.0}, starts=starts, ends=[start + 3.0 for start in starts]
    ).window

    assert window == Window(from_at=3.0, until_at=9.0)


def test_latencies_are_of_what_was_due_and_throughputs_of_what_ended_in_the_window() -> None:
    """A server that gets slower: call k is due at k and takes 1 + k seconds."""
    starts = [float(k) for k in range(8)]
    run = run_with({"warmup": 2.0, "cooldown": 8.0}, starts=starts, ends=[1.0 + 2 * k for k in range(8)])
    assert run.window == Window(from_at=2.0, until_at=7.0)

    numbers = numbers_of(run, Objectives(e2e_s=4.0))

    assert numbers.e2e is not None
    assert (numbers.e2e.num, numbers.e2e.min, numbers.e2e.max) == (5, 3.0, 7.0)  # due at 2, 3, 4, 5, 6
    assert numbers.num_calls_measured == 5
    assert numbers.num_calls_succeeded == 2  # ended at 3 and 5: the one that ends at 7 is outside
    assert numbers.duration_s == 5.0
    assert numbers.request_throughput == pytest.approx(2 / 5)
    assert numbers.output_throughput == pytest.approx(2 * 11 / 5)
    assert numbers.goodput_attainment == pytest.approx(2 / 5)  # of the five that were due, those of 3 s and 4 s
    assert numbers.goodput == pytest.approx(2 / 5)
    assert numbers.task_time is not None
    assert numbers.task_time.num == 5
    assert numbers.gpu_busy_share == pytest.approx(1.0)
    assert numbers.makespan_s == 15.0, "the run is as long as it is"
    assert numbers.num_tasks_succeeded == 8


def test_a_window_in_which_nothing_was_due_makes_the_run_invalid() -> None:
    numbers = numbers_of(run_with({"warmup": 30.0}, ends=[4.0, 10.0]))

    assert "no call was due in the part of the run that is measured" in numbers.invalid_reasons[0]
    assert numbers.request_throughput is None


def test_the_table_and_the_summary_say_what_was_measured() -> None:
    run = run_with({"warmup": 0.5}, starts=[0.0, 6.0, 7.0], ends=[4.0, 9.0, 10.0])

    summary = summary_of(numbers_of(run))

    assert (summary["measured_from_s"], summary["measured_until_s"], summary["measured_calls"]) == (5.0, 10.0, 2)
    (line,) = window_lines(compare([run]))
    assert line.endswith("measured from 5.0 s to 10.0 s, in which 2 of 3 calls were due")


def test_gaps_between_tokens_are_of_the_calls_that_are_measured() -> None:
    calls = [
        make_call(f"t/{k}", due_at=at, sent_at=at, chunk_at=tuple(at + gap for gap in gaps))
        for k, (at, gaps) in enumerate([(0.0, (1.0, 2.0)), (5.0, (1.0,)), (6.0, (0.5, 1.0, 2.0)), (7.0, ())])
    ]
    run = collect(
        header=make_header(settings={"warmup": 4.0}), calls=calls, tools=[], tasks=[make_task(ended_at=9.0)], samples=[]
    )

    itl = numbers_of(run).itl
    assert itl is not None
    assert (itl.num, itl.min, itl.max) == (2, 0.5, 1.0)
