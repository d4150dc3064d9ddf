"""A run that breaks off anywhere goes on from its store as if nothing had happened, whatever the architecture."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.abilities import Abilities
from loadgen.architectures import ARCHITECTURES, Architecture
from loadgen.call import Call, Completion
from loadgen.context import Conversation, system_message
from loadgen.context_policy import ContextPolicy
from loadgen.harness import BatchWindow, Harness
from loadgen.recorder import Recorder
from loadgen.run import replay
from loadgen.sandboxes import SandboxPool
from loadgen.state import Checkpoint, StateKeeper, num_calls_of
from loadgen.stores.memory import MemoryStore
from loadgen.stores.store import StateStore, StoreError
from loadgen.tool_layer import ToolLayer
from loadgen.tools import ToolTimes
from mockserver.clock import VirtualClock, run_virtual
from tests.loadgen.fakes import FakeTransport, make_task, see_nothing
from tests.loadgen.test_recut import trajectories
from traces.trajectory import Trajectory, Turn

TIMES = ToolTimes(seed=2)


class Killed(Exception):
    """What ends a run for the tests."""


class BreakingTransport:
    """Answers so many calls, then everything ends at once."""

    def __init__(self, inner: FakeTransport, num_calls: int | None) -> None:
        self._inner = inner
        self._num_left = num_calls

    async def complete(self, call: Call) -> Completion:
        if self._num_left is not None:
            if self._num_left == 0:
                raise Killed
            self._num_left -= 1
        return await self._inner.complete(call)


def plain() -> Harness:
    return Harness()


def everything() -> Harness:
    """All that can come between an architecture and its calls."""
    return Harness(
        context_policy=ContextPolicy(name="summarise", max_tokens=60, summary_tokens=5),
        abilities=Abilities(tool_call_accuracy=0.7, max_tools=1, guided_decoding_overhead=0.1),
        tools=ToolLayer(times=TIMES, has_overheads=True, failure_rate=0.4),
        sandboxes=SandboxPool(),
        batch_window=BatchWindow(window_s=0.2),
    )


def run_with_state(
    architecture: Architecture,
    task: Trajectory,
    harness: Harness,
    store: StateStore,
    *,
    num_calls: int | None = None,
    resume: bool = False,
) -> tuple[Recorder, FakeTransport]:
    recorder = Recorder()
    transports: list[FakeTransport] = []

    def main(clock: VirtualClock) -> Coroutine[Any, Any, None]:
        transports.append(FakeTransport(clock))

        async def run() -> None:
            keeper = harness.state = StateKeeper(store=store, clock=clock, patience_s=0.0, past=harness.past)
            await keeper.begin({"task": task.task_id}, resume=resume, run="r")
            await clock.sleep_until(keeper.past.ended_at)
            await replay(
                [task],
                [0.0],
                architecture=architecture,
                clock=clock,
                transport=BreakingTransport(transports[0], num_calls),
                look=see_nothing,
                recorder=recorder,
                tool_times=TIMES,
                max_concurrency=None,
                sample_period_s=1.0,
                harness=harness,
            )

        return run()

    run_virtual(main)
    return recorder, transports[0]


def what_was_done(recorder: Recorder) -> dict[str, Any]:
    return {
        "calls": sorted((call.call_id, call.num_output_tokens) for call in recorder.calls),
        "tools": sorted(
            (tool.call_id, tool.name, tool.is_error, round(tool.ended_at - tool.started_at, 6))
            for tool in recorder.tools
        ),
        "tasks": [(task.num_calls, task.num_tool_calls, task.error) for task in recorder.tasks],
    }


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("make_harness", [plain, everything])
@settings(max_examples=25, deadline=None)
@given(task=trajectories(), where=st.lists(st.integers(0, 12), min_size=1, max_size=3))
def test_no_step_is_lost_or_done_twice(name: str, make_harness: Any, task: Trajectory, where: list[int]) -> None:
    """Broken off after some calls, resumed and broken off again: in the end all was done once."""
    architecture = ARCHITECTURES[name]
    undisturbed, _ = run_with_state(architecture, task, make_harness(), MemoryStore())
    store = MemoryStore()

    asked: list[str] = []
    for number, num_calls in enumerate(where):
        with contextlib.suppress(BaseExceptionGroup):
            _, transport = run_with_state(
                architecture, task, make_harness(), store, num_calls=num_calls, resume=number > 0
            )
            asked += transport.prompts
    resumed, last = run_with_state(architecture, task, make_harness(), store, resume=True)

    assert what_was_done(resumed) == what_was_done(undisturbed)
    assert not set(asked) & set(last.prompts), "a call that was answered is not sent again"
    assert all(call.due_at <= call.sent_at for call in resumed.calls)


def test_what_comes_out_of_the_store_has_the_times_it_had() -> None:
    task = make_task("t", *(Turn(content=str(number)) for number in range(6)))
    store = MemoryStore()
    with pytest.raises(BaseExceptionGroup):
        run_with_state(ARCHITECTURES["react"], task, Harness(), store, num_calls=4)

    recorder, transport = run_with_state(ARCHITECTURES["react"], task, Harness(), store, resume=True)

    assert [call.sent_at for call in recorder.calls] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert list(transport.prompts) == ["t/react#4", "t/react#5"]
    assert recorder.tasks[0].started_at == 0.0


def test_a_store_that_lost_steps_and_a_second_process_are_found_out() -> None:
    task = make_task("t", *(Turn(content=str(number)) for number in range(6)))

    class Forgetful(MemoryStore):
        async def load(self, key: str) -> bytes | None:
            return b'{"num_calls":1,"history":[]}' if key == "agent/t/react" else await super().load(key)

    with pytest.raises(BaseExceptionGroup) as caught:
        run_with_state(ARCHITECTURES["react"], task, Harness(), Forgetful())
    assert caught.group_contains(
        StoreError, match="somebody else is at this run: t/react has made 0 calls, 1 are there"
    )

    class Amnesiac(MemoryStore):
        async def load(self, key: str) -> bytes | None:
            return None if key == "agent/t/react" else await super().load(key)

    with pytest.raises(BaseExceptionGroup) as caught:
        run_with_state(ARCHITECTURES["react"], task, Harness(), Amnesiac())
    assert caught.group_contains(StoreError, match="the store has lost steps: t/react has made 1 calls, 0 are there")


def test_a_checkpoint_is_the_history_with_the_answer_that_it_does_not_have_yet() -> None:
    conversation = Conversation(messages=[system_message("Hello.")])
    answer = {"role": "assistant", "content": "Yes."}

    before = Checkpoint(agent_id="a", num_calls=3, conversation=conversation, reply=None).to_json()
    after = Checkpoint(agent_id="a", num_calls=4, conversation=conversation, reply=answer).to_json()
    first = Checkpoint(agent_id="a", num_calls=1, conversation=Conversation(), reply=answer).to_json()

    assert before == b'{"num_calls":3,"history":[{"role":"system","content":"Hello."}]}'
    assert after.endswith(b'"Hello."},{"role":"assistant","content":"Yes."}]}')
    assert first == b'{"num_calls":1,"history":[{"role":"assistant","content":"Yes."}]}'
    assert [num_calls_of(one) for one in (None, before, after, first)] == [0, 3, 4, 1]
