"""The part of a run that is measured, where its ramp-up and its tail are to be left out.

    |--warm-up--|-------- the window --------|--cool-down--|
                 due here: latencies, lengths, hit rates
                 ended here: throughputs

Latencies are those of calls that were due in the window, whenever they ended: had they to end in it too, the slow ones
would be missing. Throughputs count what ended in it, which in an overloaded system is less than what was due.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from reports.columns import Bools, CallColumns, Floats, TaskColumns

FULL_LOAD = 0.9
"""A closed loop is at full load while at least this part of the most tasks that it had at work are at work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """From when to when a run is measured, in seconds from its start."""

    from_at: float
    until_at: float

    @property
    def length_s(self) -> float:
        """0 where warm-up and cool-down leave nothing."""
        return max(self.until_at - self.from_at, 0.0)

    def has(self, at: Floats) -> Bools:
        """Which of these instants lie in it; its end does not."""
        return (at >= self.from_at) & (at < self.until_at)


def window_of(settings: Mapping[str, Any], calls: CallColumns, tasks: TaskColumns) -> Window | None:
    """What a run's ``settings`` (``warmup``, ``cooldown``, ``steady_window``) leave of it; None: all of it."""
    warmup, cooldown = float(settings.get("warmup") or 0.0), float(settings.get("cooldown") or 0.0)
    is_steady = bool(settings.get("steady_window"))
    if not (warmup or cooldown or is_steady):
        return None
    started_at = float(min(np.min(tasks.started_at, initial=np.inf), np.min(calls.due_at, initial=np.inf)))
    ended_at = float(max(np.max(tasks.ended_at, initial=0.0), np.nanmax(calls.last_token_at, initial=0.0)))
    if not np.isfinite(started_at):
        return Window(from_at=0.0, until_at=0.0)
    from_at = started_at + _seconds(warmup, ended_at - started_at)
    until_at = ended_at - _seconds(cooldown, ended_at - started_at)
    if is_steady:
        steady = _open_loop_window(tasks) if _is_open_loop(settings) else _closed_loop_window(tasks)
        from_at, until_at = max(from_at, steady.from_at), min(until_at, steady.until_at)
    return Window(from_at=from_at, until_at=until_at)


def call_ended_at(calls: CallColumns) -> Floats:
    """When each call ended; a call that brought no token, when it was sent."""
    return np.where(np.isnan(calls.last_token_at), calls.sent_at, calls.last_token_at)


def _seconds(amount: float, run_s: float) -> float:
    """An amount below 1 is a share of the run."""
    return amount * run_s if amount < 1.0 else amount


def _is_open_loop(settings: Mapping[str, Any]) -> bool:
    rate = settings.get("request_rate")
    has_rate = rate is not None and float(rate) != float("inf")
    return has_rate or bool(settings.get("ramp_up_strategy")) or bool(settings.get("recorded_arrivals"))


def _closed_loop_window(tasks: TaskColumns) -> Window:
    """From the first to the last instant with nearly as many tasks at work as there ever were."""
    if not len(tasks):
        return Window(from_at=0.0, until_at=0.0)
    at = np.concatenate([tasks.started_at, tasks.ended_at])
    change = np.concatenate([np.ones(len(tasks)), -np.ones(len(tasks))])
    order = np.lexsort((change, at))  # one that ends where another starts makes room for it
    num_at_work = np.cumsum(change[order])
    is_full = np.flatnonzero(num_at_work >= FULL_LOAD * np.max(num_at_work))
    return Window(from_at=float(at[order][is_full[0]]), until_at=float(at[order][is_full[-1] + 1]))


def _open_loop_window(tasks: TaskColumns) -> Window:
    """From when a median task that came first would have ended to when the last one comes."""
    if not len(tasks):
        return Window(from_at=0.0, until_at=0.0)
    first_at = float(np.min(tasks.started_at))
    return Window(
        from_at=first_at + float(np.median(tasks.ended_at - tasks.started_at)), until_at=float(np.max(tasks.started_at))
    )
