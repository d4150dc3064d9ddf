"""The same run at one load after the other, and the search for the largest load that is still good enough."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from loadgen.config import Settings
from loadgen.perform import Outcome

Run = Callable[[Settings, str], Outcome]
"""Does one run, in a directory of that name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One load, and what came of it."""

    load: float
    outcome: Outcome
    attainment: float | None
    """Share of the calls that met every objective; None where there is none."""

    def is_good(self, wanted: float) -> bool:
        """Whether enough calls met the objectives, in a run that may be believed."""
        return self.outcome.is_valid and self.attainment is not None and self.attainment >= wanted


def at_load(settings: Settings, load: float) -> Settings:
    """``settings`` with one load of the sweep."""
    if settings.sweep_over == "max_concurrency":
        return replace(settings, max_concurrency=round(load))
    return replace(settings, request_rate=load)


def sweep(settings: Settings, run: Run) -> list[Point]:
    """Run at each of ``settings.sweep_values``; with a goodput, go on halving the gap that it is lost in."""
    points: list[Point] = []
    for load in sorted(set(settings.sweep_values)):
        points.append(_point(settings, load, run))
        if points[-1].outcome.interrupted:
            return points
    if not settings.goodput:
        return points
    for _ in range(settings.search_steps):
        between = next_load(points, settings.attainment, whole=settings.sweep_over == "max_concurrency")
        if between is None or points[-1].outcome.interrupted:
            break
        points.append(_point(settings, between, run))
    return points


def next_load(points: Sequence[Point], wanted: float, *, whole: bool) -> float | None:
    """Between the largest load up to which all were good and the next, which was not; None where there is no gap."""
    ordered = sorted(points, key=lambda point: point.load)
    good = largest_good(ordered, wanted)
    bad = next((point.load for point in ordered if not point.is_good(wanted)), None)
    if good is None or bad is None:
        return None
    between = math.sqrt(good * bad)  # loads are compared by their ratio
    if whole:
        between = round(between)
        return between if good < between < bad else None
    return between if bad / good > 1.02 else None


def largest_good(points: Sequence[Point], wanted: float) -> float | None:
    """The largest load up to which every run was good; None where even the smallest was not."""
    found = None
    for point in sorted(points, key=lambda point: point.load):
        if not point.is_good(wanted):
            break
        found = point.load
    return found


def verdict(settings: Settings, points: Sequence[Point]) -> str:
    """What a search has found, in a line."""
    name = settings.sweep_over.replace("_", " ")
    goal = f"{' '.join(settings.goodput)} by {settings.attainment:.0%} of the calls"
    found = largest_good(points, settings.attainment)
    if found is None:
        return f"{goal}: not met even at {name} {min(point.load for point in points):g}"
    if found == max(point.load for point in points):
        return f"{goal}: met up to {name} {found:g}, the largest that was tried"
    return f"{goal}: met up to {name} {found:g}"


def _point(settings: Settings, load: float, run: Run) -> Point:
    name = f"{settings.sweep_over.replace('_', '-')}-{load:g}"
    outcome = run(at_load(settings, load), name)
    return Point(load=load, outcome=outcome, attainment=outcome.summary.get("goodput_attainment"))
