from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.agents.react import react
from loadgen.harness import Harness
from loadgen.sandboxes import GB, SandboxPool, SandboxSize
from mockserver.clock import VirtualClock, run_virtual
from tests.loadgen.fakes import make_task, replay_virtually
from traces.trajectory import Trajectory, Turn


def tasks(count: int) -> tuple[Trajectory, ...]:
    return tuple(make_task(f"t{number}", Turn(content="a")) for number in range(count))


def test_a_session_starts_when_its_sandbox_has_booted() -> None:
    pool = SandboxPool()

    recorder, _ = replay_virtually(react, *tasks(20), harness=Harness(sandboxes=pool))

    boots = [call.sent_at for call in recorder.calls]
    assert all(0.125 <= boot <= 0.150 for boot in boots)
    assert len(set(boots)) == 20
    assert all(call.due_at == call.sent_at for call in recorder.calls)
    assert all(task.started_at == 0.0 for task in recorder.tasks)
    assert (pool.num_up, pool.peak_num_up, pool.num_booted) == (0, 20, 20)
    assert 20 * 0.256 * GB < pool.peak_memory_bytes < 20 * 0.512 * GB


def test_sessions_that_find_no_room_wait_in_the_order_they_came() -> None:
    pool = SandboxPool(most_sandboxes=1)

    recorder, transport = replay_virtually(react, *tasks(6), harness=Harness(sandboxes=pool))

    assert transport.most_in_flight == pool.peak_num_up == 1
    assert [call.task_id for call in recorder.calls] == [f"t{number}" for number in range(6)]
    assert pool.waited_s == pytest.approx(1 + 2 + 3 + 4 + 5, rel=0.15)
    assert "6 sandboxes booted in" in pool.text()


@settings(max_examples=30, deadline=None)
@given(count=st.integers(1, 30), most_gb=st.floats(0.512, 4.0))
def test_memory_is_never_over_its_limit_and_everybody_is_served(count: int, most_gb: float) -> None:
    pool = SandboxPool(most_memory_bytes=most_gb * GB)

    recorder, _ = replay_virtually(react, *tasks(count), harness=Harness(sandboxes=pool))

    assert len(recorder.tasks) == count
    assert pool.peak_memory_bytes <= most_gb * GB
    assert pool.num_up == 0
    assert pool.memory_bytes == pytest.approx(0.0, abs=1.0)


def test_a_session_that_is_cancelled_while_it_waits_takes_no_room() -> None:
    pool = SandboxPool(most_sandboxes=1)

    def main(clock: VirtualClock) -> Coroutine[Any, Any, None]:
        async def hold(name: str, until: float) -> None:
            async with pool.sandbox(name, clock):
                await clock.sleep_until(until)

        async def run() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(hold("a", 10.0))
                waiting = group.create_task(hold("b", 20.0))
                group.create_task(hold("c", 30.0))
                await clock.sleep_until(5.0)
                waiting.cancel()

        return run()

    run_virtual(main)
    assert pool.num_booted == 2
    assert pool.num_up == 0


def test_a_task_meets_the_same_sandbox_under_every_architecture() -> None:
    assert SandboxSize.of("t", seed=1) == SandboxSize.of("t", seed=1)
    assert SandboxSize.of("t", seed=1) != SandboxSize.of("t", seed=2)
