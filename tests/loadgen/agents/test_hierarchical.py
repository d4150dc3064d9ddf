from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.agents.hierarchical import REPORT_TOKENS, Post, branch_out, hierarchical
from loadgen.agents.orchestrator import orchestrator
from mockserver import tokens
from tests.loadgen.fakes import make_call, make_task, replay_virtually
from tests.loadgen.test_recut import trajectories
from traces.trajectory import Trajectory, Turn

THREE_DOMAINS = make_task(
    "t",
    Turn(content="mailing", tool_calls=(make_call("a", "mail", latency_s=1.0),)),
    Turn(tool_calls=(make_call("b", "files", latency_s=0.0),)),
    Turn(tool_calls=(make_call("c", "web", result="a page", latency_s=0.0),)),
    Turn(content="done"),
)


def workers(post: Post) -> Iterator[Post]:
    if not post.below:
        yield post
    for one in post.below:
        yield from workers(one)


def height(post: Post) -> int:
    return 1 + max((height(one) for one in post.below), default=-1)


@given(
    names=st.lists(st.text("abc", min_size=1), max_size=30, unique=True),
    depth=st.integers(1, 4),
    width=st.integers(1, 5),
)
def test_the_tree_holds_every_domain_once_and_is_no_higher_and_no_wider(
    names: list[str], depth: int, width: int
) -> None:
    tree = branch_out("manager", names, depth=depth, width=width)

    found = list(workers(tree)) if names else []
    assert [domain for worker in found for domain in worker.domains] == names
    assert height(tree) == (depth if names else 0)
    assert len({worker.role for worker in found}) == len(found)
    if len(names) <= width**depth:
        assert all(len(worker.domains) == 1 for worker in found)

    def check(post: Post) -> None:
        assert len(post.below) <= width
        for one in post.below:
            check(one)

    check(tree)


def test_a_small_task_has_a_narrow_tree() -> None:
    tree = branch_out("manager", ("mail", "files", "web"), depth=2, width=3)

    assert [worker.role for worker in workers(tree)] == [
        "manager/team-0/mail",
        "manager/team-0/files",
        "manager/team-1/web",
    ]


def test_plans_go_down_and_reports_come_up() -> None:
    recorder, transport = replay_virtually(hierarchical, THREE_DOMAINS)

    assert {call.call_id: call.sent_at for call in recorder.calls} == {
        "t/manager#0": 0.0,
        "t/manager/team-0#0": 1.0,
        "t/manager/team-1#0": 1.0,
        "t/manager/team-0/mail#0": 2.0,
        "t/manager/team-0/files#0": 2.0,
        "t/manager/team-1/web#0": 2.0,
        "t/manager/team-1#1": 3.0,
        "t/manager/team-0#1": 4.0,
        "t/manager#1": 5.0,
    }
    team = transport.prompts["t/manager/team-1#1"]
    assert [message["role"] for message in team] == ["system", "user", "assistant", "tool"]
    assert team[-1]["content"] == "a page"
    top = transport.prompts["t/manager#1"]
    assert [tokens.count(message["content"]) for message in top[-2:]] == [REPORT_TOKENS, REPORT_TOKENS]


@settings(max_examples=40, deadline=None)
@given(task=trajectories())
def test_with_one_level_of_managers_it_is_the_orchestrator(task: Trajectory) -> None:
    """Of one conversation turn: over several, a tree is made of the whole task's domains, a plan of the turn's."""
    task = replace(task, turns=tuple(replace(turn, user_message=None) for turn in task.turns))

    one, _ = replay_virtually(functools.partial(hierarchical, depth=1, width=9), task)
    other, _ = replay_virtually(orchestrator, task)

    assert sorted((call.due_at, call.index) for call in one.calls) == sorted(
        (call.due_at, call.index) for call in other.calls
    )
    assert one.tasks == other.tasks


def test_a_worker_of_two_domains_does_their_steps_in_recorded_order() -> None:
    recorder, _ = replay_virtually(functools.partial(hierarchical, depth=1, width=1), THREE_DOMAINS)

    assert [tool.name for tool in recorder.tools] == ["mail-do", "files-do", "web-do"]
    assert {tool.agent_id for tool in recorder.tools} == {"t/manager/mail+files+web"}


@pytest.mark.parametrize("setting", ["chain_stages", "hierarchy_depth", "hierarchy_width"])
def test_a_tree_of_nothing_is_refused(setting: str) -> None:
    from loadgen.config import Settings

    with pytest.raises(ValueError, match=f"{setting} must be at least 1, got 0"):
        Settings(**{setting: 0})  # type: ignore[arg-type]
