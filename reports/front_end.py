"""How much of what a front end takes with a request is work that others wait for, and how much passes side by side.

A request that comes alone tells only the sum. Of requests that come together the last waits for the work of all before
it, but for nobody's way through sockets, wake-ups and queues between processes. So the calls are laid before the
fitted engine once for each share that may be work, and the share is kept under which first tokens come as they came.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mockserver.engine.cost import StepCost
from reports.observations import SchedulerLimits
from reports.resend import MOST_CALLS, resend
from traces.record import CallRecord

_SHARES = (1.0, 0.75, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05, 0.025, 0.0)
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
    parts = [calls[:MOST_CALLS] for calls in runs if calls]
    together = [_came_together(calls, frontend_s) for calls in parts]
    if sum(map(sum, together)) < _MIN_TOGETHER:
        return None

    def error(share: float) -> float:
        errors = []
        for calls, which in zip(parts, together, strict=True):
            found = resend(
                calls,
                step_cost,
                limits,
                latency_s=(1 - share) * frontend_s,
                work_s=share * frontend_s,
                per_prompt_token_s=per_prompt_token_s,
            )
            errors += [
                abs(at - (call.first_token_at or 0.0)) / max(1e-9, (call.first_token_at or 0.0) - call.sent_at)
                for call, (at, _), is_one in zip(calls, found, which, strict=True)
                if is_one
            ]
        return float(np.median(errors))

    return min(_SHARES, key=error)


def _came_together(calls: Sequence[CallRecord], frontend_s: float) -> list[bool]:
    """Which calls were sent while the one before was with the front end."""
    return [place > 0 and call.sent_at < calls[place - 1].sent_at + frontend_s for place, call in enumerate(calls)]
