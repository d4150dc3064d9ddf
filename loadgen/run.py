"""One run, from the first task's start to the last task's end: clock, transport and agents in one task group.

``replay`` is the whole story; ``loadgen.experiment`` says what it is told before and what is made of it after.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence

from loadgen import recut
from loadgen.agent import CallFailed
from loadgen.architectures import Architecture
from loadgen.call import Transport
from loadgen.harness import Harness
from loadgen.recorder import Recorder
from loadgen.session import Session
from loadgen.tools import ToolTimes
from mockserver.clock import Clock
from traces.record import ServerSample, TaskRecord
from traces.trajectory import Trajectory

Look = Callable[[], Awaitable[ServerSample | None]]

_SAMPLES_PER_PERIOD = 200
_PERIOD_GROWTH = 4
"""A run of any length gets a few hundred samples: after each 200, they come four times as far apart."""


class GaveUp(Exception):
    """A run cannot become valid any more, and was told to stop then."""


async def replay(
    tasks: Sequence[Trajectory],
    arrives_at: Sequence[float],
    *,
    architecture: Architecture,
    clock: Clock,
    transport: Transport,
    look: Look,
    recorder: Recorder,
    tool_times: ToolTimes,
    max_concurrency: int | None,
    sample_period_s: float,
    max_model_len: int | None = None,
    is_open_loop: bool = False,
    duration_s: float | None = None,
    harness: Harness | None = None,
) -> None:
    """Do ``tasks``, the k-th not before ``arrives_at[k]`` (seconds from now), and record all that happens.

    After ``duration_s`` no further task starts. A run that is resumed (``harness.past``) started when its clock was at
    0, however late it is now.
    """
    harness = harness or Harness()
    past = harness.past
    num_slots = max_concurrency or max(len(tasks), 1)
    slots = asyncio.Semaphore(num_slots)
    started_at = clock.now() if past.is_empty else 0.0
    starts_until = math.inf if duration_s is None else started_at + duration_s

    async def do(task: Trajectory, due_at: float) -> None:
        before = past.started_at(task.task_id)
        due_at = due_at if before is None else before
        session = Session(
            task_id=task.task_id,
            started_at=due_at,
            ended_at=due_at,
            clock=clock,
            transport=transport,
            tool_times=tool_times,
            recorder=recorder,
            max_model_len=max_model_len,
            harness=harness,
            shared_tools=recut.all_tools(task) if harness.shares_tools else (),
        )
        error: str | None = None
        try:
            async with harness.sandbox(task.task_id, clock) as is_booted:
                session.ready_at = clock.now() if is_booted else None
                async with asyncio.TaskGroup() as session.on_their_way:
                    await architecture(task, session)
                if session.first_error is not None:
                    raise CallFailed(session.first_error)
        except* CallFailed as failed:
            error = str(first_of(failed))
        finally:
            slots.release()
        recorder.task(
            TaskRecord(
                task_id=session.task_id,
                started_at=session.started_at,
                ended_at=session.ended_at,
                num_calls=session.num_calls,
                num_tool_calls=session.num_tool_calls,
                num_subagents=max(len(session.agents) - 1, 0),
                error=error,
            )
        )
        session.agents.clear()  # they know their session: histories would stay until garbage is looked for

    async with asyncio.TaskGroup() as background:
        sampling = background.create_task(_sample(look, recorder, clock, sample_period_s))
        async with asyncio.TaskGroup() as agents:
            for number, (task, arrival) in enumerate(zip(tasks, arrives_at, strict=True)):
                due_at = started_at + arrival
                await clock.sleep_until(due_at)
                await slots.acquire()
                if clock.now() >= starts_until and past.started_at(task.task_id) is None:
                    break
                recorder.num_tasks_started += 1
                if number >= num_slots and not is_open_loop:
                    due_at = clock.now()  # in a closed loop a task is due when there is room for it
                agents.create_task(do(task, due_at), name=task.task_id)
        sampling.cancel()
    await _sample_once(look, recorder)


async def _sample(look: Look, recorder: Recorder, clock: Clock, period_s: float) -> None:
    due_at = clock.now()
    for gap_s in _gaps(period_s):
        await _sample_once(look, recorder)
        if recorder.is_hopeless:
            raise GaveUp(f"{recorder.num_late} of {len(recorder.calls)} calls were late")
        due_at += gap_s
        await clock.sleep_until(due_at)


def _gaps(period_s: float) -> Iterator[float]:
    while True:
        for _ in range(_SAMPLES_PER_PERIOD):
            yield period_s
        period_s *= _PERIOD_GROWTH


async def _sample_once(look: Look, recorder: Recorder) -> None:
    sample = await look()
    if sample is not None:
        recorder.sample(sample)


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first failure in ``group``, however deep."""
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
