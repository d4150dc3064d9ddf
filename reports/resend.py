"""Recorded calls, sent once more: to an engine with a fitted cost, at the instants at which they were sent."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Sequence

import numpy as np

from mockserver.engine.blocks import BlockTable
from mockserver.engine.chains import BlockPath, ChainRun
from mockserver.engine.config import EngineConfig
from mockserver.engine.cost import StepCost
from mockserver.engine.engine import Engine, Step
from mockserver.engine.front_end import FrontEnd
from mockserver.engine.request import Request
from reports.observations import SchedulerLimits
from traces.record import CallRecord

_BLOCK_SIZE = 16
_IDLE_S = 3600.0
MOST_CALLS = 300
"""Of each run are enough to tell fits apart; the first ones."""


def resend(
    calls: Sequence[CallRecord],
    step_cost: StepCost,
    limits: SchedulerLimits,
    front_end: FrontEnd,
) -> list[tuple[float, float]]:
    """When each call's first and last token come, in seconds on the clock of ``sent_at``.

    ``calls`` are in the order in which they were sent.
    """
    waits_s = later_s(calls)
    entrances = _entrances(
        [call.sent_at + wait_s + front_end.latency_s for call, wait_s in zip(calls, waits_s, strict=True)],
        [front_end.work_with(call.num_prompt_tokens or 1) for call in calls],
    )
    requests = [
        Request(
            request_id=str(place),
            num_prompt_tokens=call.num_prompt_tokens or 1,
            num_output_tokens=call.num_output_tokens or 1,
            path=_own_path(place, (call.num_prompt_tokens or 1) + (call.num_output_tokens or 1)),
        )
        for place, call in enumerate(calls)
    ]
    num_tokens = sum(request.final_num_tokens for request in requests)
    engine = Engine(
        EngineConfig(
            num_blocks=num_tokens // _BLOCK_SIZE + len(requests) + 1,
            block_size=_BLOCK_SIZE,
            max_num_seqs=len(requests),
            max_num_batched_tokens=limits.max_num_batched_tokens,
            max_model_len=num_tokens + 1,
            async_scheduling=limits.is_async,
        ),
        step_cost,
    )
    num_cached = [(call.num_cached_tokens or 0) // _BLOCK_SIZE for call in calls]
    _run(engine, deque(zip(entrances, requests, num_cached, strict=True)), front_end)
    return [
        ((request.first_token_at or 0.0) - wait_s, (request.last_token_at or 0.0) - wait_s)
        for request, wait_s in zip(requests, waits_s, strict=True)
    ]


def later_s(calls: Sequence[CallRecord]) -> list[float]:
    """How much later each call is sent than it was: those that found an idle server find one, however slow it is.

    ``calls`` are in the order in which they were sent.
    """
    found: list[float] = []
    busy_until, wait_s = -np.inf, 0.0
    for call in calls:
        if call.sent_at >= busy_until:
            wait_s += _IDLE_S
        found.append(wait_s)
        busy_until = max(busy_until, call.last_token_at or call.sent_at)
    return found


def _entrances(ready_at: Sequence[float], work_s: Sequence[float]) -> list[float]:
    """When each request is with the scheduler: all that are there when the front end is free are worked on together."""
    entrances: list[float] = []
    free_at = -np.inf
    while len(entrances) < len(ready_at):
        first = len(entrances)
        begins_at = max(free_at, ready_at[first])
        last = bisect.bisect_right(ready_at, begins_at)
        free_at = begins_at + sum(work_s[first:last])
        entrances += [free_at] * (last - first)
    return entrances


def _own_path(place: int, num_tokens: int) -> BlockPath:
    """A prompt and its answer that share nothing with others: what was cached is known call by call."""
    num_blocks = num_tokens // _BLOCK_SIZE
    return (ChainRun(place, 0, num_blocks),) if num_blocks else ()


def _put_into_cache(engine: Engine, path: BlockPath, num_blocks: int) -> None:
    pool, table = engine.scheduler.pool, BlockTable(path)
    pool.take(table, num_blocks)
    pool.cache(table, num_blocks)
    pool.free(table)


def _run(engine: Engine, coming: deque[tuple[float, Request, int]], front_end: FrontEnd) -> None:
    """Take steps until all that come have ended.

    ``coming``: when each request comes, in that order, and how many of its blocks are then in the cache.
    """
    in_flight: deque[Step] = deque()
    at = held_up_s = 0.0
    while True:
        while coming and coming[0][0] <= (in_flight[0].ends_at if in_flight else at):
            enters_at, request, num_cached = coming.popleft()
            if num_cached:
                _put_into_cache(engine, request.path, num_cached)
            engine.add(request, enters_at)
            if in_flight:
                engine.hold_up(in_flight, front_end.arrival_s)
            else:
                held_up_s += front_end.arrival_s
        if in_flight:
            step = in_flight.popleft()
            at = step.ends_at
            engine.finish_step(step)
        while len(in_flight) < engine.max_steps_in_flight and (begun := engine.begin_step(at)) is not None:
            if held_up_s:
                engine.stretch(begun, begun.ends_at + held_up_s)
                held_up_s = 0.0
            in_flight.append(begun)
        if not in_flight:
            if not coming:
                return
            at = max(at, coming[0][0])
            held_up_s = front_end.wakeup_s
