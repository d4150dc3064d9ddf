"""The shape of a chart's data: plain series, and how a gauge or a counter becomes one."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from reports.columns import Floats

MAX_POINTS = 400
"""A line over time is averaged down to this many points; no screen shows more."""
QUANTILES: Floats = np.concatenate([np.linspace(0.0, 0.99, 199), [0.9925, 0.995, 0.9975, 0.999, 1.0]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line, or one part of a stack of bars; ``run`` is the place of its run in the comparison."""

    name: str
    x: list[float] | list[str]
    y: list[float] | list[str]
    run: int | None = None
    part: int = 0
    """Which part of a stack it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One chart."""

    name: str
    title: str
    caption: str
    kind: str
    """``bars``, ``stack``, ``lines`` (all runs in one panel) or ``panels`` (one panel for each run)."""
    x_title: str
    y_title: str = ""
    series: list[Series] = field(default_factory=list)
    is_log_x: bool = False
    is_filled: bool = False


def averaged(at: Floats, values: Floats) -> tuple[Floats, Floats]:
    """A gauge over time in at most ``MAX_POINTS`` points: the mean of each group of neighbouring samples."""
    size = -(-at.size // MAX_POINTS)
    starts = np.arange(0, at.size, size)
    counts = np.diff(np.append(starts, at.size))
    return np.add.reduceat(at, starts) / counts, np.add.reduceat(values, starts) / counts


def rate(at: Floats, counter: Floats) -> Floats:
    """How fast a counter grew up to each sample, per second; the first sample has none and gets 0."""
    passed = np.diff(at)
    grown = np.divide(np.diff(counter), passed, out=np.zeros_like(passed), where=passed > 0)
    return np.concatenate([[0.0], grown])
