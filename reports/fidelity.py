"""How far a mock run is from the live runs it stands for, and the noise that must be seen beside it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from reports import measure
from reports.columns import Bools, CallColumns, Floats
from reports.compare import LabelledRun
from reports.table import PERCENTILES

DEFAULT_BOUNDS = {"ttft": 0.08, "tpot": 0.05, "e2e": 0.05}
"""Largest median error of a call that still counts as a match, unless live runs differ by more."""
_MOST_APART = 0.1
"""Of a usual call's E2E: calls sent no further apart than that met the same others, all but a few."""
_ROUNDING = 1e-9
"""Values that differ by no more of themselves are equal."""
BUCKET_EDGES = (0, 1024, 4096, 16_384, 65_536)
METRICS: dict[str, Callable[[CallColumns], Floats]] = {
    "ttft": measure.ttft_s,
    "tpot": measure.tpot_s,
    "e2e": measure.e2e_s,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """One metric of two runs, over all calls or over those of a bucket of prompt lengths."""

    metric: str
    bucket: str
    """``all``, or the prompt lengths it holds."""
    num_calls: int
    percentile_errors: tuple[float, ...]
    """Relative, signed, at each of ``PERCENTILES``: mock / live - 1."""
    ks_distance: float
    """The largest distance between the two distributions, 0 to 1."""
    pearson: float | None
    """Over the calls that both runs have; None where they share fewer than three."""
    median_error: float | None
    """Of one call, relative and absolute, over the calls that both runs have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether one metric is close enough."""

    metric: str
    error: float
    """Median error of one call; without common calls, that of the medians."""
    bound: float
    floor: float | None
    """What repeated live runs differ by among themselves; None with a single live run."""

    @property
    def is_close(self) -> bool:
        """Within the bound, or within what live runs differ by where that is larger."""
        return self.error <= max(self.bound, self.floor or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """A mock run beside its live twins."""

    mock: LabelledRun
    live: tuple[LabelledRun, ...]
    gaps: tuple[Gap, ...]
    """Mock against the first live run."""
    floors: tuple[Gap, ...]
    """Each live run against each other one, over all calls."""
    verdicts: tuple[Verdict, ...]
    sent_apart_s: float | None
    """How much earlier or later than on the first live server a call was sent, in the median, from each run's first
    call on; None where the runs have no call in common."""

    @property
    def met_other_calls(self) -> bool:
        """Whether calls were sent at so different instants that others were there than on the live server."""
        usual_s = float(np.nanmedian(measure.e2e_s(self.live[0].columns.calls)))
        return self.sent_apart_s is not None and self.sent_apart_s > _MOST_APART * usual_s

    @property
    def is_close(self) -> bool:
        """Whether every metric is."""
        return all(verdict.is_close for verdict in self.verdicts)


def fidelity(mock: LabelledRun, live: Sequence[LabelledRun], bounds: dict[str, float] | None = None) -> Fidelity:
    """Compare a mock run with one live run or several."""
    limits = DEFAULT_BOUNDS | (bounds or {})
    unknown = sorted(limits.keys() - METRICS.keys())
    if unknown:
        raise ValueError(f"no metric {unknown[0]!r} to set a bound for; there are {', '.join(METRICS)}")
    gaps = gaps_between(mock.columns.calls, live[0].columns.calls)
    floors = [
        gap
        for one, other in itertools.combinations(live, 2)
        for gap in gaps_between(one.columns.calls, other.columns.calls)
        if gap.bucket == "all"
    ]
    verdicts = []
    for gap in gaps:
        if gap.bucket == "all":
            apart = [_error(floor) for floor in floors if floor.metric == gap.metric]
            verdicts.append(
                Verdict(
                    metric=gap.metric,
                    error=_error(gap),
                    bound=limits[gap.metric],
                    floor=max(apart) if apart else None,
                )
            )
    if not verdicts:
        raise ValueError("the mock run and the live run have no metric in common")
    return Fidelity(
        mock=mock,
        live=tuple(live),
        gaps=tuple(gaps),
        floors=tuple(floors),
        verdicts=tuple(verdicts),
        sent_apart_s=_sent_apart_s(mock.columns.calls, live[0].columns.calls),
    )


def gaps_between(mock: CallColumns, live: CallColumns) -> list[Gap]:
    """Every metric, over all calls and for each bucket of prompt lengths that has at least ten on both sides."""
    found = []
    for metric, values in METRICS.items():
        mock_s, live_s = values(mock), values(live)
        for bucket, low, high in _buckets():
            here = _in_bucket(mock, low, high) & ~np.isnan(mock_s)
            there = _in_bucket(live, low, high) & ~np.isnan(live_s)
            fewest = 1 if bucket == "all" else 10
            if min(here.sum(), there.sum()) >= fewest:
                pairs = _pairs(_by_call(mock, mock_s, here), _by_call(live, live_s, there))
                found.append(_gap(metric, bucket, mock_s[here], live_s[there], pairs))
    return found


def quantile_pairs(mock: Floats, live: Floats) -> tuple[list[float], list[float]]:
    """A Q-Q plot's points: the same quantiles of both, live on x and mock on y."""
    at = np.linspace(0.0, 1.0, 101)
    known = [values[~np.isnan(values)] for values in (live, mock)]
    x, y = (np.quantile(values, at).tolist() for values in known)
    return x, y


def _buckets() -> list[tuple[str, float, float]]:
    edges = [*BUCKET_EDGES, np.inf]
    named = [(f"{low:,} to {high:,.0f}", low, high) for low, high in itertools.pairwise(edges)]
    named[-1] = (f"{BUCKET_EDGES[-1]:,} and more", BUCKET_EDGES[-1], np.inf)
    return [("all", -np.inf, np.inf), *named]


def _in_bucket(calls: CallColumns, low: float, high: float) -> Bools:
    if np.isinf(low):
        return np.ones(len(calls), dtype=np.bool_)
    return (calls.num_prompt_tokens >= low) & (calls.num_prompt_tokens < high)


def _by_call(calls: CallColumns, values: Floats, chosen: Bools) -> dict[str, float]:
    return {calls.call_id[place]: float(values[place]) for place in np.flatnonzero(chosen)}


def _pairs(mock: dict[str, float], live: dict[str, float]) -> Floats:
    """The values of the calls that both have, a row each: mock, live."""
    common = [(value, live[call_id]) for call_id, value in mock.items() if call_id in live]
    return np.asarray(common, dtype=np.float64).reshape(-1, 2)


def _gap(metric: str, bucket: str, mock: Floats, live: Floats, pairs: Floats) -> Gap:
    at = [float(name[1:]) for name in PERCENTILES]
    errors = np.percentile(mock, at) / np.percentile(live, at) - 1
    usable = pairs[pairs[:, 1] > 0]
    median_error = float(np.median(np.abs(usable[:, 0] / usable[:, 1] - 1))) if len(usable) else None
    varies = len(pairs) > 2 and np.all(pairs.std(axis=0) > _ROUNDING * np.abs(pairs.mean(axis=0)))
    return Gap(
        metric=metric,
        bucket=bucket,
        num_calls=int(mock.size),
        percentile_errors=tuple(float(error) for error in errors),
        ks_distance=_ks_distance(mock, live),
        pearson=float(np.corrcoef(pairs[:, 0], pairs[:, 1]).item(1)) if varies else None,
        median_error=median_error,
    )


def in_common(one: CallColumns, other: CallColumns, values: Callable[[CallColumns], Floats]) -> Floats:
    """The values of the calls that both runs have and tell them of, a row each: one, other."""
    known = ((calls, values(calls)) for calls in (one, other))
    return _pairs(*(_by_call(calls, found, ~np.isnan(found)) for calls, found in known))


def _sent_apart_s(mock: CallColumns, live: CallColumns) -> float | None:
    pairs = in_common(mock, live, lambda calls: calls.sent_at - np.nanmin(calls.sent_at))
    return float(np.median(np.abs(pairs[:, 0] - pairs[:, 1]))) if len(pairs) else None


def _ks_distance(one: Floats, other: Floats) -> float:
    points = np.sort(np.concatenate([one, other]))
    share_one = np.searchsorted(np.sort(one), points, side="right") / one.size
    share_other = np.searchsorted(np.sort(other), points, side="right") / other.size
    return float(np.abs(share_one - share_other).max())


def _error(gap: Gap) -> float:
    return abs(gap.percentile_errors[0]) if gap.median_error is None else gap.median_error
