"""Which chain decided a task's time, in situations small enough to draw."""

from __future__ import annotations

from reports.critical_path import CriticalPath, critical_paths, mean_shares
from reports.measure import RunColumns
from reports.numbers import PathShares
from tests.reports.records import make_call, make_run, make_task, make_tool


def paths_of(run: RunColumns) -> list[CriticalPath]:
    return critical_paths(run.calls, run.tools, run.tasks)


def ids_on(path: CriticalPath, run: RunColumns) -> list[str]:
    columns = {"call": run.calls.call_id, "tool": run.tools.name}
    return [columns[step.kind][step.position] for step in path.steps]


def test_react_path_is_the_whole_chain() -> None:
    """0 call 2 tool 3 (agent thinks 0.5) 3.5 call, queued until 4, first token 5, last 6."""
    second = make_call(index=1, due_at=3.5, scheduled_at=4.0, first_token_at=5.0, last_token_at=6.0)
    run = make_run(calls=[make_call(), second], tools=[make_tool()], tasks=[make_task(ended_at=6.0)])

    (path,) = paths_of(run)

    assert ids_on(path, run) == ["t/react#0", "read_file", "t/react#1"]
    assert path.shares == PathShares(queue_s=0.5, prefill_s=2.0, decode_s=2.0, tool_s=1.0, harness_s=0.5)
    assert path.shares.total_s == 6.0


def test_of_parallel_tools_the_last_one_is_on_the_path() -> None:
    tools = [make_tool(name="slow", ended_at=5.0), make_tool(name="fast", ended_at=3.0)]
    second = make_call(index=1, due_at=5.0, first_token_at=6.0, last_token_at=7.0)
    run = make_run(calls=[make_call(), second], tools=tools, tasks=[make_task(ended_at=7.0)])

    (path,) = paths_of(run)

    assert ids_on(path, run) == ["t/react#0", "slow", "t/react#1"]


def test_join_waits_for_the_last_subagent_and_siblings_do_not_wait_for_each_other() -> None:
    """``a`` answers at 4 and 8; ``b`` at 5 and 9. The join follows ``b``; ``a`` is not on the path."""
    calls = [
        make_call("t/orchestrator", 0, last_token_at=2.0),
        make_call("t/a", 0, due_at=2.0, first_token_at=3.0, last_token_at=4.9),
        make_call("t/b", 0, due_at=2.0, first_token_at=3.0, last_token_at=4.5),
        make_call("t/a", 1, due_at=4.9, first_token_at=6.0, last_token_at=8.0),
        make_call("t/b", 1, due_at=5.0, first_token_at=6.0, last_token_at=9.0),
        make_call("t/orchestrator", 1, due_at=9.0, first_token_at=10.0, last_token_at=11.0),
    ]
    run = make_run(calls=calls, tasks=[make_task(ended_at=11.0)])

    (path,) = paths_of(run)

    assert ids_on(path, run) == ["t/orchestrator#0", "t/b#0", "t/b#1", "t/orchestrator#1"]
    assert path.shares.harness_s == 0.5


def test_orchestrators_own_tool_is_on_the_path_where_it_ends_after_the_subagents() -> None:
    calls = [
        make_call("t/orchestrator", 0, last_token_at=2.0),
        make_call("t/a", 0, due_at=2.0, first_token_at=3.0, last_token_at=4.0),
        make_call("t/orchestrator", 1, due_at=6.0, first_token_at=7.0, last_token_at=8.0),
    ]
    tools = [make_tool("t/orchestrator", 0, name="local", ended_at=6.0)]
    run = make_run(calls=calls, tools=tools, tasks=[make_task(ended_at=8.0)])

    (path,) = paths_of(run)

    assert ids_on(path, run) == ["t/orchestrator#0", "local", "t/orchestrator#1"]


def test_task_without_any_call_is_all_harness() -> None:
    run = make_run(calls=[], tasks=[make_task(ended_at=3.0)])

    (path,) = paths_of(run)

    assert path.steps == ()
    assert path.shares == PathShares(harness_s=3.0)


def test_mean_over_no_tasks_is_none() -> None:
    assert mean_shares([]) is None


def test_agents_that_take_turns_wait_for_each_other_every_time() -> None:
    """A chair chooses speaker ``a``, then ``b``, then ``a`` again: all of it is one chain, ``a``'s tool included."""
    calls = [
        make_call("t/chair", 0, last_token_at=1.0),
        make_call("t/chair/a", 0, due_at=1.0, first_token_at=1.5, last_token_at=2.0),
        make_call("t/chair", 1, due_at=3.0, first_token_at=3.5, last_token_at=4.0),
        make_call("t/chair/b", 0, due_at=4.0, first_token_at=4.5, last_token_at=5.0),
        make_call("t/chair", 2, due_at=5.0, first_token_at=5.5, last_token_at=6.0),
        make_call("t/chair/a", 1, due_at=6.0, first_token_at=6.5, last_token_at=7.0),
    ]
    tools = [make_tool("t/chair/a", 0, started_at=2.0, ended_at=3.0)]
    run = make_run(calls=calls, tools=tools, tasks=[make_task(ended_at=7.0)])

    (path,) = paths_of(run)

    assert ids_on(path, run) == [
        *("t/chair#0", "t/chair/a#0", "read_file"),
        *("t/chair#1", "t/chair/b#0", "t/chair#2", "t/chair/a#1"),
    ]
    assert (path.shares.tool_s, path.shares.harness_s) == (1.0, 0.0)
