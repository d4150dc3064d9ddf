"""How much of what a front end takes with a request is work that others wait for, and how much passes side by side.

A request that comes alone tells only the sum. Of requests that come together the last waits for the work of all before
it, but for nobody's way through sockets, wake-ups and queues between processes. So the calls are laid before the
fitted engine once for each share that may be work, and the share is kept under which first tokens come as they came.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Sequence

import numpy as np

from mockserver.engine.config import EngineConfig
from mockserver.engine.cost import StepCost
from mockserver.engine.engine import Engine, Step
from mockserver.engine.request import Request
from reports.observations import SchedulerLimits
from traces.record import CallRecord

_SHARES = (1.0, 0.75, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05, 0.025, 0.0)
_MOST_CALLS = 1_000
"""Of each run; the first ones."""
_MIN_TOGETHER = 8
"""Calls that came while another was with the front end; fewer tell nothing."""


def work_share(
    runs: Sequence[Sequence[CallRecord]],
    step_cost: StepCost,
    limits: SchedulerLimits,
    *,
    frontend_s: float,
    per_prompt_token_s: float,
) -> float | None:
    """The share of ``frontend_s`` (seconds a request) that is work; None where too few calls came together to tell.

    ``runs``: calls with their first tokens, each run in the order in which they were sent.
    """
    if frontend_s <= 0:
        return None
    parts = [calls[:_MOST_CALLS] for calls in runs if calls]
    together = [_came_together(calls, frontend_s) for calls in parts]
    if sum(map(sum, together)) < _MIN_TOGETHER:
        return None

    def error(share: float) -> float:
        errors = []
        for calls, which in zip(parts, together, strict=True):
            found = _first_tokens(
                calls,
                step_cost,
                limits,
                latency_s=(1 - share) * frontend_s,
                work_s=share * frontend_s,
                per_prompt_token_s=per_prompt_token_s,
            )
            errors += [
                abs(at - (call.first_token_at or 0.0)) / max(1e-9, (call.first_token_at or 0.0) - call.sent_at)
                for call, at, is_one in zip(calls, found, which, strict=True)
                if is_one
            ]
        return float(np.median(errors))

    return min(_SHARES, key=error)


def _came_together(calls: Sequence[CallRecord], frontend_s: float) -> list[bool]:
    """Which calls were sent while the one before was with the front end."""
    return [place > 0 and call.sent_at < calls[place - 1].sent_at + frontend_s for place, call in enumerate(calls)]


def _first_tokens(
    calls: Sequence[CallRecord],
    step_cost: StepCost,
    limits: SchedulerLimits,
    *,
    latency_s: float,
    work_s: float,
    per_prompt_token_s: float,
) -> list[float]:
    """When each call's first token comes, in seconds on the clock of ``sent_at``."""
    entrances = _entrances(
        [call.sent_at + latency_s for call in calls],
        [work_s + per_prompt_token_s * (call.num_prompt_tokens or 1) for call in calls],
    )
    requests = [
        Request(
            request_id=str(place),
            num_prompt_tokens=max(1, (call.num_prompt_tokens or 1) - (call.num_cached_tokens or 0)),
            num_output_tokens=call.num_output_tokens or 1,
            path=(),
        )
        for place, call in enumerate(calls)
    ]
    num_tokens = sum(request.final_num_tokens for request in requests)
    engine = Engine(
        EngineConfig(
            num_blocks=num_tokens // 16 + len(requests) + 1,
            max_num_seqs=len(requests),
            max_num_batched_tokens=limits.max_num_batched_tokens,
            max_model_len=num_tokens + 1,
            enable_prefix_caching=False,
            async_scheduling=limits.is_async,
        ),
        step_cost,
    )
    _run(engine, deque(zip(entrances, requests, strict=True)))
    return [request.first_token_at or 0.0 for request in requests]


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


def _run(engine: Engine, coming: deque[tuple[float, Request]]) -> None:
    """Take steps until all that come have ended; ``coming`` is in the order of its instants."""
    in_flight: deque[Step] = deque()
    at = 0.0
    while True:
        while coming and coming[0][0] <= at:
            enters_at, request = coming.popleft()
            engine.add(request, enters_at)
        while len(in_flight) < engine.max_steps_in_flight and (step := engine.begin_step(at)) is not None:
            in_flight.append(step)
        if in_flight:
            step = in_flight.popleft()
            at = step.ends_at
            engine.finish_step(step)
        elif coming:
            at = coming[0][0]
        else:
            return
