from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from loadgen.agents.react import react
from loadgen.recorder import LagLimit, Recorder
from loadgen.run import GaveUp, replay
from loadgen.session import Session
from loadgen.tools import ToolTimes
from mockserver.clock import VirtualClock, WallClock, run_virtual
from tests.loadgen.fakes import FakeTransport, make_task, replay_virtually, replaying, see_nothing
from traces.record import ServerSample
from traces.trajectory import Trajectory, Turn


def tasks(count: int) -> tuple[Trajectory, ...]:
    return tuple(make_task(f"t{k}", Turn(content="a"), Turn(content="b")) for k in range(count))


def test_all_tasks_start_at_once() -> None:
    recorder, transport = replay_virtually(react, *tasks(5))

    assert [task.started_at for task in recorder.tasks] == [0.0] * 5
    assert transport.most_in_flight == 5


def test_at_most_so_many_tasks_are_at_work_and_the_next_is_due_when_there_is_room() -> None:
    recorder, transport = replay_virtually(react, *tasks(5), max_concurrency=2)

    assert transport.most_in_flight == 2
    assert [task.started_at for task in recorder.tasks] == [0.0, 0.0, 2.0, 2.0, 4.0]
    assert all(call.due_at == call.sent_at for call in recorder.calls)


async def test_tasks_that_all_start_at_once_are_due_at_once_however_slowly_they_are_sent() -> None:
    """The time it takes to send the opening burst is the load generator's lateness, not the tasks' schedule."""

    class SlowlySent(WallClock):
        """Every look at this clock takes a simulated second."""

        looks = 0

        def now(self) -> float:
            self.looks += 1
            return float(self.looks)

        async def sleep_until(self, when: float) -> None:
            await asyncio.sleep(0)

    clock = SlowlySent()
    recorder = Recorder()

    await replay(
        tasks(4),
        (0.0,) * 4,
        architecture=react,
        clock=clock,
        transport=FakeTransport(clock=clock),
        look=see_nothing,
        recorder=recorder,
        tool_times=ToolTimes(seed=0),
        max_concurrency=None,
        sample_period_s=1e9,
    )

    first = [call for call in recorder.calls if call.index == 0]
    assert len(first) == 4
    assert len({call.due_at for call in first}) == 1
    assert len({call.sent_at for call in first}) == 4
    assert all(call.sent_at > call.due_at for call in first)


def test_in_an_open_loop_waiting_for_room_counts_as_lateness() -> None:
    recorder, _ = replay_virtually(react, *tasks(3), arrives_at=(0.0, 0.5, 1.0), max_concurrency=1, is_open_loop=True)

    assert [task.started_at for task in recorder.tasks] == [0.0, 0.5, 1.0]
    assert [call.sent_at for call in recorder.calls if call.index == 0] == [0.0, 2.0, 4.0]


def test_a_failed_call_ends_its_task_only() -> None:
    recorder, _ = replay_virtually(
        react, *tasks(2), fail=lambda call: "HTTP 500" if call.call_id == "t0/react#0" else None
    )

    assert {task.task_id: task.error for task in recorder.tasks} == {"t0": "HTTP 500", "t1": None}
    assert [call.call_id for call in recorder.calls] == ["t0/react#0", "t1/react#0", "t1/react#1"]


def test_an_architecture_that_breaks_stops_the_run() -> None:
    async def broken(task: Trajectory, session: Session) -> None:
        raise RuntimeError("a bug")

    with pytest.raises(ExceptionGroup) as caught:
        replay_virtually(broken, *tasks(1))
    assert caught.group_contains(RuntimeError, match="a bug")


def test_the_server_is_looked_at_ever_more_rarely_and_once_at_the_end() -> None:
    looks: list[float] = []
    task = make_task("t", *(Turn(content="x") for _ in range(1000)))

    def main(clock: VirtualClock) -> Coroutine[Any, Any, None]:
        async def look() -> ServerSample | None:
            looks.append(clock.now())
            return None

        return replay(
            [task],
            [0.0],
            architecture=react,
            clock=clock,
            transport=FakeTransport(clock),
            look=look,
            recorder=Recorder(),
            tool_times=ToolTimes(),
            max_concurrency=None,
            sample_period_s=0.5,
        )

    run_virtual(main)
    assert looks[:3] == [0.0, 0.5, 1.0]
    assert looks[200:203] == [100.0, 102.0, 104.0]
    assert looks[-1] == 1000.0
    assert 200 < len(looks) < 600


def test_the_digest_depends_on_records_not_on_who_ended_first() -> None:
    one, _ = replay_virtually(react, *tasks(3))
    other, _ = replay_virtually(react, *reversed(tasks(3)))
    longer, _ = replay_virtually(react, *tasks(4))

    assert one.digest() == other.digest()
    assert one.digest() != longer.digest()


async def test_cancelling_a_run_keeps_what_was_measured() -> None:
    from mockserver.clock import WallClock

    recorder = Recorder()
    clock = WallClock(rate=10.0)

    async def look() -> ServerSample | None:
        return None

    running = asyncio.get_running_loop().create_task(
        replay(
            [make_task("t", *(Turn(content="x") for _ in range(1000)))],
            [0.0],
            architecture=react,
            clock=clock,
            transport=FakeTransport(clock),
            look=look,
            recorder=recorder,
            tool_times=ToolTimes(),
            max_concurrency=None,
            sample_period_s=1.0,
        )
    )
    await clock.sleep_until(5.5)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert 1 <= len(recorder.calls) <= 5
    assert recorder.num_in_flight == 0


def test_a_run_that_cannot_become_valid_gives_up_at_the_next_look() -> None:
    task = make_task("t", *(Turn(content="x") for _ in range(1000)))
    recorder = Recorder(lag_limit=LagLimit(lag_s=0.5, num_calls=3))

    def main(clock: VirtualClock) -> Coroutine[Any, Any, None]:
        transport = FakeTransport(clock, lag_s=0.6)
        return replaying(clock, transport, recorder, task, tool_times=ToolTimes(), sample_period_s=2.0)

    with pytest.raises(ExceptionGroup) as caught:
        run_virtual(main)
    assert caught.group_contains(GaveUp)
    assert 4 <= len(recorder.calls) <= 6


def test_after_its_duration_no_further_task_starts_and_those_at_work_are_finished() -> None:
    recorder, _ = replay_virtually(react, *tasks(10), max_concurrency=2, duration_s=3.0)

    assert recorder.num_tasks_started == len(recorder.tasks) == 4
    assert max(task.ended_at for task in recorder.tasks) == 4.0
