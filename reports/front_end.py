"""What of the time that a request alone takes to the scheduler others wait for, and what an idle server alone takes.

A request that comes alone tells only the sum. Of requests that come together the last waits for the work of all before
it, but for nobody's way through sockets and queues between processes; one that finds the server at work wakes nobody
up; and each that arrives there holds up those that are being answered. So the calls are laid before the fitted engine
once for each share, and those are kept under which first tokens come as they came.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mockserver.engine.cost import StepCost
from mockserver.engine.front_end import FrontEnd
from reports.observations import SchedulerLimits
from reports.resend import MOST_CALLS, resend
from traces.record import CallRecord

_SHARES = (0.0, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0)
_STARTS = ((0.0, 0.05, 0.1, 0.25, 0.5, 1.0), (0.0, 0.3, 0.6), (0.0, 0.1, 0.25))
"""Where the search begins, for each share: from the best few of these it changes one at a time while that helps."""
_NUM_STARTS = 3
_MIN_CALLS = 8
"""Fewer calls that came together, or while others were being answered, tell nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEndShares:
    """Parts of the seconds that a request alone spends before its first step; the rest passes side by side."""

    work: float = 1.0
    """The front end's, for which the next request waits."""
    wakeup: float = 0.0
    """Spent only where nobody else is there."""
    arrival: float = 0.0
    """The engine's, for which those wait that are being answered."""

    @property
    def latency(self) -> float:
        """The rest, which passes side by side with that of others."""
        return max(0.0, 1 - self.work - self.wakeup - self.arrival)

    def of(self, frontend_s: float, per_prompt_token_s: float) -> FrontEnd:
        """The parts of ``frontend_s``, in seconds."""
        return FrontEnd(
            latency_s=self.latency * frontend_s,
            work_s=self.work * frontend_s,
            work_per_prompt_token_s=per_prompt_token_s,
            wakeup_s=self.wakeup * frontend_s,
            arrival_s=self.arrival * frontend_s,
        )


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

    @functools.cache
    def error(work: float, wakeup: float, arrival: float) -> float:
        errors: tuple[list[float], list[float]] = ([], [])
        front_end = FrontEndShares(work=work, wakeup=wakeup, arrival=arrival).of(frontend_s, per_prompt_token_s)
        for calls, is_together, is_busy in zip(parts, together, busy, strict=True):
            found = resend(calls, step_cost, limits, front_end)
            for call, (at, _), *which in zip(calls, found, is_together, is_busy, strict=True):
                first_at = call.first_token_at or 0.0
                for kind, is_one in zip(errors, which, strict=True):
                    if is_one:
                        kind.append(abs(at - first_at) / max(1e-9, first_at - call.sent_at))
        return sum(float(np.median(kind)) for kind in errors if len(kind) >= _MIN_CALLS)

    if frontend_s <= 0 or sum(map(sum, together)) < _MIN_CALLS:
        return FrontEndShares()
    num_free = 3 if sum(map(sum, busy)) >= _MIN_CALLS else 1  # nobody was there to be held up
    starts = [*itertools.product(*_STARTS[:num_free], *[(0.0,)] * (3 - num_free))]
    best = sorted((start for start in starts if sum(start) <= 1), key=lambda start: error(*start))[:_NUM_STARTS]
    work, wakeup, arrival = min((_best(error, start, num_free) for start in best), key=lambda found: error(*found))
    return FrontEndShares(work=work, wakeup=wakeup, arrival=arrival)


def _best(error: Callable[..., float], shares: tuple[float, ...], num_free: int) -> tuple[float, ...]:
    """The shares with the least error that are reached by changing one of the first ``num_free`` at a time."""
    while True:
        before = shares
        for place in range(num_free):
            tries = [(*shares[:place], share, *shares[place + 1 :]) for share in _SHARES]
            shares = min((shares, *(one for one in tries if sum(one) <= 1)), key=lambda one: error(*one))
        if shares == before:
            return shares


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
