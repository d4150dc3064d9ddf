"""Every definition against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from reports import measure
from reports.numbers import Objectives
from tests.reports.records import make_call, make_run, make_sample, make_task, make_tool


def test_ttft_runs_from_sent_to_first_token() -> None:
    run = make_run(calls=[make_call(due_at=1.0, sent_at=1.5, first_token_at=1.75)])

    assert measure.ttft_s(run.calls).tolist() == [0.25]


def test_tpot_divides_by_one_token_less_and_needs_two() -> None:
    run = make_run(calls=[make_call(num_output_tokens=11), make_call(index=1, num_output_tokens=1)])

    assert measure.tpot_s(run.calls)[0] == pytest.approx(0.1)
    assert np.isnan(measure.tpot_s(run.calls)[1])


def test_latency_from_schedule_counts_what_e2e_hides() -> None:
    run = make_run(calls=[make_call(due_at=0.0, sent_at=5.0, first_token_at=5.5, last_token_at=6.0)])

    assert measure.e2e_s(run.calls).tolist() == [1.0]
    assert measure.latency_from_schedule_s(run.calls).tolist() == [6.0]


def test_itl_pools_the_gaps_between_chunks_of_all_calls() -> None:
    run = make_run(calls=[make_call(chunk_at=(1.0, 1.5, 2.5)), make_call(index=1, chunk_at=(1.0, 1.25))])

    assert run.calls.chunk_gap_s.tolist() == [0.5, 1.0, 0.25]


def test_failed_calls_have_no_times() -> None:
    run = make_run(calls=[make_call(error="connection reset", chunk_at=(1.0, 2.0))])

    assert np.isnan(measure.ttft_s(run.calls)).all()
    assert np.isnan(measure.e2e_s(run.calls)).all()
    assert run.calls.chunk_gap_s.size == 0


def test_dispatch_delay_splits_into_predecessor_and_generator() -> None:
    """Call 1 was due at 1; call 0 ended at 2, its tool at 3, and the generator sent it at 3.5."""
    first = make_call()
    second = make_call(index=1, due_at=1.0, sent_at=3.5, first_token_at=4.0, last_token_at=5.0)
    run = make_run(calls=[first, second], tools=[make_tool(index=0, ended_at=3.0)])

    assert measure.dispatch_delay_s(run.calls).tolist() == [0.0, 2.5]
    assert measure.predecessor_wait_s(run.calls, run.tools).tolist() == [0.0, 2.0]
    assert measure.send_lateness_s(run).tolist() == [0.0, 0.5]


def test_queue_time_is_known_only_where_the_server_says_when_it_scheduled() -> None:
    run = make_run(calls=[make_call(scheduled_at=0.25), make_call(index=1)])

    assert measure.queue_time_s(run.calls)[0] == 0.25
    assert np.isnan(measure.queue_time_s(run.calls)[1])


def test_percentiles_are_linear() -> None:
    spread = measure.distribution(np.asarray([1.0, 2.0, 3.0, 4.0, float("nan")]))

    assert spread is not None
    assert (spread.num, spread.mean, spread.p50) == (4, 2.5, 2.5)
    assert spread.p90 == pytest.approx(3.7)
    assert spread.p99 == pytest.approx(3.97)


def test_a_distribution_of_nothing_is_none() -> None:
    assert measure.distribution(np.asarray([float("nan")])) is None


def test_goodput_needs_every_objective_and_the_metric_itself() -> None:
    calls = [
        make_call(index=0),
        make_call(index=1, num_output_tokens=1),
        make_call(index=2, first_token_at=1.9),
        make_call(index=3, error="timeout"),
    ]
    run = make_run(calls=calls)

    good = measure.meets_objectives(run.calls, Objectives(ttft_s=1.0, tpot_s=0.2))

    assert good.tolist() == [True, False, False, False]


def test_makespan_runs_from_the_first_start_to_the_last_end() -> None:
    run = make_run(tasks=[make_task("a", started_at=1.0, ended_at=5.0), make_task("b", started_at=2.0, ended_at=9.0)])

    assert measure.makespan_s(run.tasks) == 8.0
    assert measure.task_time_s(run.tasks).tolist() == [4.0, 7.0]


def test_hit_rate_leaves_out_calls_whose_usage_does_not_say() -> None:
    calls = [
        make_call(num_prompt_tokens=100, num_cached_tokens=48),
        make_call(index=1, num_prompt_tokens=200, num_cached_tokens=None),
    ]

    assert measure.hit_rate(make_run(calls=calls).calls) == 0.48


def test_reusable_tokens_are_whole_blocks_of_the_agents_own_history() -> None:
    """100 + 11 tokens are 6 whole blocks of 16; the last prompt token is never taken from the cache."""
    calls = [
        make_call(index=0, num_prompt_tokens=100, num_output_tokens=11),
        make_call(index=1, num_prompt_tokens=150, num_output_tokens=10),
        make_call(index=2, num_prompt_tokens=160, num_output_tokens=10),
    ]
    run = make_run(calls=calls)

    assert measure.num_reusable_tokens(run.calls, block_size=16).tolist() == [0, 96, 144]


def test_what_was_hit_was_reusable() -> None:
    calls = [make_call(num_prompt_tokens=100, num_cached_tokens=64)]

    assert measure.num_reusable_tokens(make_run(calls=calls).calls, block_size=16).tolist() == [64]


def test_intervals_that_touch_do_not_overlap() -> None:
    assert measure.max_concurrent(np.asarray([0.0, 1.0, 1.5]), np.asarray([1.0, 2.0, 3.0])) == 2
    assert measure.max_concurrent(np.empty(0), np.empty(0)) == 0


def test_busy_share_and_occupancy_come_from_the_servers_counters() -> None:
    """Of 10 s the server was 4 s in steps and held 8 sequence-seconds: 2 of at most 4 per step."""
    samples = [make_sample(0.0), make_sample(10.0, busy_s=4.0, occupancy_s=8.0)]
    run = make_run(samples=samples, max_num_seqs=4)

    assert measure.gpu_busy_share(run) == 0.4
    assert measure.batch_occupancy(run) == 0.5


def test_server_shares_are_unknown_without_samples() -> None:
    run = make_run(samples=[])

    assert measure.gpu_busy_share(run) is None
    assert measure.batch_occupancy(run) is None


def test_a_server_whose_clock_drifted_never_scheduled_before_it_was_asked() -> None:
    run = make_run(calls=[make_call(scheduled_at=-5.0), make_call(index=1, scheduled_at=7.0)])

    assert measure.queue_time_s(run.calls).tolist() == [0.0, 1.0]


def test_a_counter_that_falls_is_that_of_a_server_which_was_started_anew() -> None:
    assert measure.increase(np.array([5.0, 8.0, 2.0, 6.0])) == 3.0 + 2.0 + 4.0
    assert measure.increase(np.array([5.0, np.nan])) is None
    assert measure.increase(np.array([5.0])) is None
