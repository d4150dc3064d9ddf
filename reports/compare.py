"""Runs lined up: names that tell them apart, and every metric side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reports.measure import RunColumns
from reports.numbers import Numbers, Objectives
from reports.summary import numbers_of
from reports.table import Metric, shown_metrics
from traces.record import RunHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledRun:
    """A run with its numbers, under a name that no other run of the report has."""

    label: str
    columns: RunColumns
    numbers: Numbers

    @property
    def header(self) -> RunHeader:
        """What was run."""
        return self.columns.header

    @property
    def is_valid(self) -> bool:
        """Whether the run may be believed."""
        return not self.numbers.invalid_reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Several runs and the metrics that any of them has, in the order they were given."""

    runs: tuple[LabelledRun, ...]
    metrics: tuple[Metric, ...]

    @property
    def is_valid(self) -> bool:
        """Whether all of the runs may be believed."""
        return all(run.is_valid for run in self.runs)


def compare(
    runs: Sequence[RunColumns],
    objectives: Objectives | None = None,
    *,
    numbers: Sequence[Numbers | None] | None = None,
) -> Comparison:
    """Measure the runs and line them up; ``numbers`` are those that were measured before, run by run."""
    known = numbers or [None] * len(runs)
    measured = [one or numbers_of(run, objectives) for run, one in zip(runs, known, strict=True)]
    labels = tell_apart([run.header for run in runs])
    return Comparison(
        runs=tuple(
            LabelledRun(label=label, columns=run, numbers=number)
            for label, run, number in zip(labels, runs, measured, strict=True)
        ),
        metrics=tuple(shown_metrics(measured)),
    )


def circumstances(header: RunHeader) -> tuple[object, ...]:
    """All that two runs must share so that architecture and cache alone make the difference."""
    h = header
    return (h.is_in_process, h.clock, h.workload_digest, h.num_tasks, h.profile, h.max_num_seqs, _load(h))


def _load(header: RunHeader) -> str:
    """How fast tasks come, where the run limits it: what the points of a sweep differ in."""
    limits = (("max_concurrency", "{:g} tasks at once"), ("request_rate", "{:g} tasks a second"))
    given = [(header.settings.get(name), text) for name, text in limits]
    return ", ".join(text.format(value) for value, text in given if isinstance(value, int | float))


def skipped_statements(runs: Sequence[LabelledRun]) -> list[str]:
    """What the runs left out of their workloads, where they did: one line for each workload."""
    return list(dict.fromkeys(run.header.notes["workload"] for run in runs if "workload" in run.header.notes))


_PARTS: tuple[Callable[[RunHeader], str], ...] = (
    lambda h: f"workload {h.workload}",
    lambda h: h.profile or "unknown profile",
    lambda h: "in process" if h.is_in_process else "HTTP",
    lambda h: f"{h.clock} time" if h.time_scale is None else f"time x{h.time_scale:g}",
    lambda h: f"{h.max_num_seqs} sequences",
    lambda h: f"{h.num_tasks} tasks",
    _load,
    lambda h: f"seed {h.seed}",
    lambda h: h.run_id,
)


def tell_apart(headers: Sequence[RunHeader]) -> list[str]:
    """A name for each run: its architecture and cache, then only what it takes to tell it from the others."""
    names = [[header.architecture, *_cache(header)] for header in headers]
    for part in _PARTS:
        if len({tuple(name) for name in names}) == len(names):
            break
        values = [part(header) for header in headers]
        counts = Counter(tuple(name) for name in names)
        if len(set(values)) > 1:
            names = [
                [*name, value] if counts[tuple(name)] > 1 else name for name, value in zip(names, values, strict=True)
            ]
    labels = [", ".join(name) for name in names]
    return [
        label if labels.count(label) == 1 else f"{label} ({labels[: place + 1].count(label)})"
        for place, label in enumerate(labels)
    ]


def _cache(header: RunHeader) -> list[str]:
    return [] if header.prefix_caching is None else [f"cache {'on' if header.prefix_caching else 'off'}"]
