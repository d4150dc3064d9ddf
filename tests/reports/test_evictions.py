"""Whose blocks were evicted: from samples to columns, tables and the page's stream."""

from __future__ import annotations

from reports.compare import compare
from reports.events import run_events
from reports.evictions import eviction_columns
from reports.export import eviction_table
from tests.reports.records import make_run, make_sample

SAMPLES = [
    make_sample(0.0, evicted_by_agent={}),
    make_sample(1.0, num_evicted_blocks=7, evicted_by_agent={"t/react": 5, "gone/react": 2}),
    make_sample(2.0, num_evicted_blocks=8, evicted_by_agent={"t/react": 1}),
]


def test_each_agent_that_lost_blocks_between_two_samples_is_a_row() -> None:
    evictions = eviction_columns(SAMPLES)

    assert evictions.at.tolist() == [1.0, 1.0, 2.0]
    assert evictions.agent_id == ("t/react", "gone/react", "t/react")
    assert evictions.num_blocks.sum() == SAMPLES[-1].num_evicted_blocks


def test_a_server_that_does_not_say_is_told_from_one_that_evicted_nothing() -> None:
    assert not eviction_columns([make_sample(0.0), make_sample(1.0, num_evicted_blocks=3)]).is_known
    assert eviction_columns([make_sample(0.0, evicted_by_agent={})]).is_known


def test_rows_name_the_task_of_an_agent_whose_calls_are_known() -> None:
    (run,) = compare([make_run(samples=SAMPLES)]).runs

    assert eviction_table(run)["task_id"] == ["t", None, "t"]


def test_the_pages_stream_holds_the_rows_in_milliseconds_from_row_to_row() -> None:
    (run,) = compare([make_run(samples=SAMPLES)]).runs

    stream = run_events(run)

    assert stream["evictions"]["at"] == [1000, 0, 1000]
    assert [stream["agents"][place] for place in stream["evictions"]["agent"]] == ["t/react", "gone/react", "t/react"]
    assert run_events(compare([make_run()]).runs[0])["evictions"] is None
