from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen import recut
from loadgen.architectures import (
    ARCHITECTURES,
    ArchitectureError,
    assumptions,
    expand,
    find_architecture,
    short_name,
)
from loadgen.tools import ToolTimes
from tests.loadgen.fakes import replay_virtually
from tests.loadgen.test_recut import trajectories
from traces.trajectory import Trajectory

OWN = '''
async def two_minds(task, session):
    """Two agents take turns."""
    minds = [session.agent(name, system_prompt=task.system_prompt, tools=task.tools) for name in ("left", "right")]
    for number, turn in enumerate(task.turns):
        await minds[number % 2].take_turn(turn)


def not_async(task, session):
    pass
'''


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_agents.py").write_text(OWN)
    (tmp_path / "broken_agents.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "my_agents"


def calls_of(replies: list[dict[str, Any]]) -> Counter[tuple[str, str, str]]:
    return Counter(
        (call["id"], call["function"]["name"], call["function"]["arguments"])
        for reply in replies
        for call in reply.get("tool_calls", ())
    )


@pytest.mark.parametrize("name", ARCHITECTURES)
@settings(max_examples=40, deadline=None)
@given(task=trajectories(), shape=st.tuples(st.integers(1, 3), st.integers(1, 3)))
def test_work_is_conserved(name: str, task: Trajectory, shape: tuple[int, int]) -> None:
    """All recorded tool calls and words are said once, all tools run once, for the same time; the rest is overhead."""
    depth, width = shape
    architecture = find_architecture(name, chain_stages=depth, hierarchy_depth=depth, hierarchy_width=width)
    times = ToolTimes(seed=5)
    recorded = recut.steps(task)

    recorder, transport = replay_virtually(architecture, task, tool_times=times)

    assert calls_of(transport.recorded_replies) == Counter(
        (call.call_id, call.name, call.arguments) for turn in recorded for call in turn.tool_calls
    )
    assert Counter(reply["content"] for reply in transport.recorded_replies if reply["content"]) == Counter(
        turn.content for turn in recorded if turn.content
    )
    assert Counter((tool.name, round(tool.ended_at - tool.started_at, 9)) for tool in recorder.tools) == Counter(
        (call.name, round(times.latency_s("t", call), 9)) for turn in recorded for call in turn.tool_calls
    )
    assert recorder.num_overhead_calls == len(transport.overhead_replies)
    assert all(call.due_at == call.sent_at for call in recorder.calls)


@pytest.mark.parametrize("name", ARCHITECTURES)
@settings(max_examples=20, deadline=None)
@given(task=trajectories())
def test_the_same_task_gives_the_same_digest_twice(name: str, task: Trajectory) -> None:
    one, _ = replay_virtually(ARCHITECTURES[name], task, tool_times=ToolTimes(seed=5))
    other, _ = replay_virtually(ARCHITECTURES[name], task, tool_times=ToolTimes(seed=5))

    assert one.digest() == other.digest()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_each_says_what_it_assumes(name: str) -> None:
    text = assumptions(find_architecture(name))

    assert "Assumes" in text
    assert "Added to the recording" in text
    assert "\n" not in text


def test_ones_own_architecture_is_found_by_module_and_function(own_module: str) -> None:
    architecture = find_architecture(f"{own_module}:two_minds")

    assert assumptions(architecture) == "Two agents take turns."
    assert short_name(f"{own_module}:two_minds") == "two_minds"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nobody", "group_chat, router, recorded, or your own as package.module:function, got 'nobody'"),
        ("no_such_module:f", "No module named 'no_such_module'"),
        ("my_agents:nobody", "my_agents has no 'nobody'"),
        ("my_agents:not_async", "must be an async function"),
        ("broken_agents:f", "ZeroDivisionError: division by zero"),
        (":f", "ValueError"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(name: str, text: str, own_module: str) -> None:
    with pytest.raises(ArchitectureError, match=text) as caught:
        find_architecture(name)

    assert own_module
    assert "\n" not in str(caught.value)


def test_all_stands_for_every_architecture_and_commas_separate() -> None:
    assert list(expand(["all"])) == list(ARCHITECTURES)
    assert list(expand(["chain,router", "react", "chain"])) == ["chain", "router", "react"]
