"""Runs held against the bands that are published for their architectures, and what makes them differ.

The bands are rules of thumb from descriptions of agent frameworks: calls per task, and how much of prefill a prefix
cache saves. They are about tasks of all kinds; a workload has tasks of its own kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reports.compare import LabelledRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """What is published."""

    low: int
    high: int
    kind: str = ""
    """What is said of the tasks."""
    is_open: bool = False
    """Whether more than ``high`` is said to occur."""

    @property
    def text(self) -> str:
        """As it is printed."""
        return f"{self.low}-{self.high}{' and more' if self.is_open else ''}"


CALLS_PER_TASK = {
    "react": Band(low=3, high=8, kind="short tasks"),
    "chain": Band(low=5, high=15),
    "hierarchical": Band(low=10, high=40),
    "group_chat": Band(low=20, high=100, is_open=True),
    "router": Band(low=15, high=60),
}
HEAD = ("architecture", "published calls per task", "here, p50 and p90", "held against each other")


def band_rows(runs: Sequence[LabelledRun]) -> list[tuple[str, str, str, str]]:
    """A row for each architecture that a band is published for."""
    run_by_architecture = {run.header.architecture: run for run in reversed(runs)}
    recorded = run_by_architecture.get("react")
    rows = []
    for architecture, band in CALLS_PER_TASK.items():
        run = run_by_architecture.get(architecture)
        if run is None or run.numbers.shape.calls is None:
            continue
        calls = run.numbers.shape.calls
        rows.append(
            (
                architecture,
                f"{band.text}{band.kind and f' ({band.kind})'}",
                f"{calls.p50:,.0f} and {calls.p90:,.0f}",
                _verdict(band, calls.p50, calls.p90, recorded),
            )
        )
    return rows


def _verdict(band: Band, p50: float, p90: float, recorded: LabelledRun | None) -> str:
    if band.low <= p50 <= band.high:
        if p90 <= band.high or band.is_open:
            return "within"
        return "the median is within; the longest tasks are over"
    if p50 < band.low:
        return "below: the workload's tasks are short"
    steps = None if recorded is None else recorded.numbers.shape.calls
    if steps is None:
        return "above: the workload's tasks are long"
    return f"above: the workload's tasks are long, {steps.p50:,.0f} recorded steps in the median"
