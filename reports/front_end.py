"""What of the time that a front end takes with a request others wait for, and what an idle server alone takes.

A request that comes alone tells only the sum. Of requests that come together the last waits for the work of all before
it, but for nobody's way through sockets and queues between processes; and one that finds the server at work wakes
nobody up. So the calls are laid before the fitted engine once for each share, and those are kept under which first
tokens come as they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mockserver.engine.cost import StepCost
from reports.observations import SchedulerLimits
from reports.resend import MOST_CALLS, resend
from traces.record import CallRecord

_WORK_SHARES = (1.0, 0.75, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05, 0.025, 0.0)
_WAKEUP_SHARES = (0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9)
_MIN_CALLS = 8
"""Fewer calls that came together, or while others were being answered, tell nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEndShares:
    """Parts of the seconds that a request alone spends outside the engine; the rest passes side by side."""

    work: float = 1.0
    """The next request waits for it."""
    wakeup: float = 0.0
    """Spent only where nobody else is there."""


def front_end_shares(
    runs: Sequence[Sequence[CallRecord]],
    step_cost: StepCost,
    limits: SchedulerLimits,
    *,
    frontend_s: float,
    per_prompt_token_s: float,
) -> FrontEndShares:
    """How ``frontend_s`` (seconds a request) divides; all of it is work where too few calls came together to tell.

    ``runs``: calls with their first tokens, each run in the order in which they were sent.
    """
    parts = [calls[:MOST_CALLS] for calls in runs if calls]
    together = [_came_together(calls, frontend_s) for calls in parts]
    busy = [_found_it_at_work(calls, frontend_s) for calls in parts]

    def error(shares: FrontEndShares) -> float:
        errors: tuple[list[float], list[float]] = ([], [])
        for calls, is_together, is_busy in zip(parts, together, busy, strict=True):
            found = resend(
                calls,
                step_cost,
                limits,
                latency_s=(1 - shares.work - shares.wakeup) * frontend_s,
                work_s=shares.work * frontend_s,
                per_prompt_token_s=per_prompt_token_s,
                wakeup_s=shares.wakeup * frontend_s,
            )
            for call, (at, _), *which in zip(calls, found, is_together, is_busy, strict=True):
                first_at = call.first_token_at or 0.0
                for kind, is_one in zip(errors, which, strict=True):
                    if is_one:
                        kind.append(abs(at - first_at) / max(1e-9, first_at - call.sent_at))
        return sum(float(np.median(kind)) for kind in errors if len(kind) >= _MIN_CALLS)

    if frontend_s <= 0 or sum(map(sum, together)) < _MIN_CALLS:
        return FrontEndShares()
    wakeup_shares = _WAKEUP_SHARES if sum(map(sum, busy)) >= _MIN_CALLS else (0.0,)
    all_shares = [
        FrontEndShares(work=work, wakeup=wakeup)
        for work in _WORK_SHARES
        for wakeup in wakeup_shares
        if work + wakeup <= 1
    ]
    return min(all_shares, key=error)


def _came_together(calls: Sequence[CallRecord], frontend_s: float) -> list[bool]:
    """Which calls were sent while the one before was with the front end."""
    return [place > 0 and call.sent_at < calls[place - 1].sent_at + frontend_s for place, call in enumerate(calls)]


def _found_it_at_work(calls: Sequence[CallRecord], frontend_s: float) -> list[bool]:
    """Which calls were sent while others were being answered, and nobody was with the front end."""
    found = []
    busy_until = float("-inf")
    for call, is_together in zip(calls, _came_together(calls, frontend_s), strict=True):
        found.append(call.sent_at < busy_until and not is_together)
        busy_until = max(busy_until, call.last_token_at or 0.0)
    return found
