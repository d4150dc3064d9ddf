"""How sure a difference between two runs is: 95 % bootstrap intervals over the tasks, paired by task id.

Tasks are drawn with replacement, the same draw for both runs, and a task brings all of its calls along, because calls
of one task are not independent. The interval says how much a difference depends on which tasks were in the workload.
It does not say how much a server differs from itself when the same run is repeated: that takes repeated runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from reports import measure
from reports.columns import Floats
from reports.compare import LabelledRun
from reports.measure import RunColumns
from reports.table import PERCENTILES

CONFIDENCE = 0.95
NUM_DRAWS = 1000
_MAX_CELLS = 50_000_000
"""Draws times calls: with more calls there are fewer draws, so that a huge run is not slow."""
_QUANTILES = tuple(float(name[1:]) / 100 for name in PERCENTILES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A run against its baseline: ``relative`` is run / baseline - 1, with its interval."""

    relative: float
    low: float
    high: float

    @property
    def is_noise(self) -> bool:
        """Whether no difference at all is within the interval."""
        return self.low <= 0.0 <= self.high


_Key = tuple[str, int]
"""A metric's key and the place of the percentile; 0 for a single number."""

_PER_CALL: dict[str, Callable[[RunColumns], Floats]] = {
    "ttft": lambda run: measure.ttft_s(run.calls),
    "tpot": lambda run: measure.tpot_s(run.calls),
    "e2e": lambda run: measure.e2e_s(run.calls),
    "latency_from_schedule": lambda run: measure.latency_from_schedule_s(run.calls),
    "queue_time": lambda run: measure.queue_time_s(run.calls),
}
_SUMS: dict[str, Callable[[RunColumns], Floats]] = {
    "num_calls": lambda run: np.ones(len(run.calls)),
    "num_prompt_tokens": lambda run: np.where(run.calls.succeeded, run.calls.num_prompt_tokens, np.nan),
    "num_cached_tokens": lambda run: np.where(measure.says_cached(run.calls), run.calls.num_cached_tokens, np.nan),
    "num_computed_tokens": lambda run: np.where(
        measure.says_cached(run.calls), run.calls.num_prompt_tokens - run.calls.num_cached_tokens, np.nan
    ),
    "num_output_tokens": lambda run: np.where(run.calls.succeeded, run.calls.num_output_tokens, np.nan),
}


def differences(baseline: LabelledRun, run: LabelledRun) -> dict[_Key, Difference]:
    """The differences that tasks which both runs ended can tell; empty with fewer than two such tasks."""
    common = _common_tasks(baseline.columns, run.columns)
    if len(common) < 2:
        return {}
    place_by_task = {task_id: place for place, task_id in enumerate(common)}
    num_calls = max(1, len(baseline.columns.calls), len(run.columns.calls))
    num_draws = min(NUM_DRAWS, max(100, _MAX_CELLS // num_calls))
    rng = np.random.default_rng(0)
    draws = rng.multinomial(len(common), np.full(len(common), 1 / len(common)), size=num_draws)
    weights = np.vstack([np.ones((1, len(common))), draws]).astype(np.int32)  # the first row is the data itself
    found: dict[_Key, Difference] = {}
    sides = [_statistics(one.columns, place_by_task, weights) for one in (baseline, run)]
    for key in sides[0].keys() & sides[1].keys():
        before, after = sides[0][key], sides[1][key]
        if not np.all(before > 0) or np.any(np.isnan(after)):
            continue
        relative = after / before - 1
        low, high = np.percentile(relative[1:], (50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)))
        found[key] = Difference(relative=float(relative[0]), low=float(low), high=float(high))
    return found


def differences_to_first(runs: Sequence[LabelledRun]) -> list[dict[_Key, Difference]]:
    """For each run its differences to the first one; the first itself has none."""
    return [{}, *(differences(runs[0], run) for run in runs[1:])]


def differences_as_json(runs: Sequence[LabelledRun]) -> list[dict[str, dict[str, float]]]:
    """The same for other programs: ``ttft_p99`` or ``num_calls`` to its difference and interval."""
    return [
        {
            f"{key}_{PERCENTILES[place]}" if key in ("task_time", *_PER_CALL) else key: asdict(difference)
            for (key, place), difference in sorted(found.items())
        }
        for found in differences_to_first(runs)
    ]


def format_difference(difference: Difference) -> str:
    """``-69 % (-70 to -67)``, ``3.2 times (3.0 to 3.4)`` from double on, and whether it is noise."""
    value, low, high = (100 * part for part in (difference.relative, difference.low, difference.high))
    if value == low == high == 0:
        return "the same"
    if difference.relative >= 1:
        times, least, most = (f"{1 + part:.3g}" for part in (difference.relative, difference.low, difference.high))
        return f"{times} times ({least} to {most})" + (", noise" if difference.is_noise else "")
    text = f"{_percent(value)} % ({_percent(low)} to {_percent(high)})"
    return f"{text}, noise" if difference.is_noise else text


def format_relative(value: float, baseline: float) -> str:
    """The same for a number of the whole run, such as its makespan: no task can be drawn, so there is no interval."""
    relative = value / baseline - 1
    if relative == 0:
        return "the same"
    return f"{1 + relative:.3g} times" if relative >= 1 else f"{_percent(100 * relative)} %"


def _percent(value: float) -> str:
    return f"{value:+.0f}" if abs(value) >= 10 else f"{value:+.1f}"


def _common_tasks(one: RunColumns, other: RunColumns) -> list[str]:
    ended = {task_id for task_id, ok in zip(other.tasks.task_id, other.tasks.succeeded, strict=True) if ok}
    return [t for t, ok in zip(one.tasks.task_id, one.tasks.succeeded, strict=True) if ok and t in ended]


def _statistics(run: RunColumns, place_by_task: dict[str, int], weights: npt.NDArray[np.int32]) -> dict[_Key, Floats]:
    """Every statistic under every weighting of the tasks."""
    task_of_call = _places(run.calls.task_id, place_by_task)
    task_of_task = _places(run.tasks.task_id, place_by_task)
    result: dict[_Key, Floats] = {}
    spreads = [("task_time", measure.task_time_s(run.tasks), task_of_task)]
    spreads += [(key, values(run), task_of_call) for key, values in _PER_CALL.items()]
    for key, values, task in spreads:
        known = ~np.isnan(values) & (task >= 0)
        if known.any():
            for place, quantiles in enumerate(_weighted_quantiles(values[known], task[known], weights)):
                result[key, place] = quantiles
    num_tasks = len(place_by_task)
    for key, of in _SUMS.items():
        amounts = of(run)
        known = ~np.isnan(amounts) & (task_of_call >= 0)
        if known.any():
            per_task = np.bincount(task_of_call[known], weights=amounts[known], minlength=num_tasks)
            result[key, 0] = np.asarray(weights @ per_task, dtype=np.float64)
    if ("num_cached_tokens", 0) in result:
        whole = result["num_cached_tokens", 0] + result["num_computed_tokens", 0]
        result["hit_rate", 0] = result["num_cached_tokens", 0] / np.where(whole > 0, whole, np.nan)
    return result


def _places(task_ids: Sequence[str], place_by_task: dict[str, int]) -> npt.NDArray[np.int64]:
    return np.asarray([place_by_task.get(task_id, -1) for task_id in task_ids], dtype=np.int64)


def _weighted_quantiles(values: Floats, task: npt.NDArray[np.int64], weights: npt.NDArray[np.int32]) -> list[Floats]:
    """For each of the percentiles, the value that so much of the weight lies at or below."""
    order = np.argsort(values, kind="stable")
    values, task = values[order], task[order]
    found = np.full((len(_QUANTILES), weights.shape[0]), np.nan)
    for row, weight_of_task in enumerate(weights):
        below = np.cumsum(weight_of_task[task], dtype=np.int64)
        if below[-1]:
            wanted = np.ceil(np.asarray(_QUANTILES) * below[-1]).astype(np.int64)
            found[:, row] = values[np.searchsorted(below, wanted)]
    return list(found)
