"""What is noise: how far repeated runs of one kind lie apart, and what the intervals of a comparison mean."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Sequence

from reports.compare import LabelledRun
from reports.numbers import Distribution, Numbers


def noise_statements(runs: Sequence[LabelledRun]) -> list[str]:
    """What the intervals mean, and how far repeated runs of one kind lie apart, where there are such."""
    if len(runs) < 2:
        return []
    texts = [
        f"Differences are against {runs[0].label}, with 95 % intervals from drawing the tasks anew (paired by task"
        " id): they tell how much a difference depends on which tasks were run. One that may as well be none is"
        " called noise. Numbers of a whole run, such as its makespan, have no interval."
    ]
    repeats: dict[tuple[object, ...], list[LabelledRun]] = {}
    for run in runs:
        repeats.setdefault(_kind(run), []).append(run)
    groups = [group for group in repeats.values() if len(group) > 1]
    for group in groups:
        names = f"{len(group)} repeated runs of {group[0].header.architecture}"
        if all(run.header.digest and run.header.digest == group[0].header.digest for run in group):
            texts.append(f"{names} have the same digest: they are equal, and nothing between them is noise.")
        else:
            spread = ", ".join(f"{name} {100 * value:.1f} %" for name, value in _spreads(group))
            texts.append(f"{names} lie apart by: {spread}. A smaller difference between kinds is noise.")
            means = ", ".join(f"{name} {mean:.3g} +- {half:.2g} s" for name, mean, half in _means(group))
            texts.append(f"Their means, with the half width of a 95 % interval (Student's t): {means}.")
    if not groups and any(run.header.clock != "virtual" for run in runs):
        texts.append("No run was repeated, so how far repeated runs lie apart is not known here.")
    return texts


_INCIDENTAL = ("out", "live", "seed", "save_detailed", "sweep_values", "search_steps", "architectures", "prefix_cache")
"""Settings in which repeated runs may differ: where they went, chance, and what else was run beside them."""


def _kind(run: LabelledRun) -> tuple[object, ...]:
    """What repeated runs have in common: everything but chance. The points of a sweep differ in their load."""
    h = run.header
    settings = {name: value for name, value in h.settings.items() if name not in _INCIDENTAL}
    return (
        h.architecture,
        h.workload_digest,
        h.num_tasks,
        h.target,
        h.clock,
        h.profile,
        h.prefix_caching,
        json.dumps(settings, sort_keys=True, default=str),
    )


_COMPARED: tuple[tuple[str, Callable[[Numbers], float | None]], ...] = (
    ("makespan", lambda numbers: numbers.makespan_s),
    ("median task time", lambda numbers: _median(numbers.task_time)),
    ("median TTFT", lambda numbers: _median(numbers.ttft)),
    ("median TPOT", lambda numbers: _median(numbers.tpot)),
    ("median E2E", lambda numbers: _median(numbers.e2e)),
)


def _median(spread: Distribution | None) -> float | None:
    return None if spread is None else spread.p50


def _spreads(group: Sequence[LabelledRun]) -> list[tuple[str, float]]:
    found = []
    for name, get in _COMPARED:
        values = [value for run in group if (value := get(run.numbers))]
        if len(values) > 1:
            found.append((name, max(values) / min(values) - 1))
    return found


def _means(group: Sequence[LabelledRun]) -> list[tuple[str, float, float]]:
    """Name, mean and half the width of its 95 % interval, by Student's t over the repeated runs."""
    found = []
    for name, get in _COMPARED:
        values = [value for run in group if (value := get(run.numbers)) is not None]
        if len(values) > 1:
            quantile = _T_975[min(len(values) - 1, len(_T_975)) - 1]
            found.append((name, statistics.fmean(values), quantile * statistics.stdev(values) / math.sqrt(len(values))))
    return found


_T_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)
"""97.5 % quantiles of Student's t for 1, 2, 3 ... degrees of freedom; the last one serves for more."""
