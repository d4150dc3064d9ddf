"""Robust, non-negative least squares with bootstrap intervals: from observations of work to what each unit of it
costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reports.columns import Floats
from reports.observations import Observation

COEFFICIENTS = (
    "floor_s",
    "per_prefill_token_s",
    "per_first_prefill_token_s",
    "per_prefill_attention_s",
    "per_prefill_context_token_s",
    "mixed_step_s",
    "per_decode_seq_s",
    "per_decode_context_token_s",
    "frontend_s",
    "frontend_per_prompt_token_s",
)
_NUM_DRAWS = 400
_NUM_ABSOLUTE_DRAWS = 150
_BLOCK = 8
"""Observations that follow each other are drawn together: they share their noise."""
_NUM_ROUNDS = 30
_TUKEY = 4.685
"""Residuals beyond this many robust standard deviations do not count: 95 % efficient where noise is normal."""
_NOISY = 0.05
"""From this relative deviation on lateness is no longer the exception: the median is then what describes it best."""
_EXACT = 1e-6
"""Intervals are at least this wide, relatively: records hold no more digits than that."""
_MIN_LENGTHS = 3
"""A line goes through any two lengths of prompts; what first tokens cost besides needs more, on both sides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """What one unit of work costs, with its 95 % interval."""

    name: str
    value: float
    low: float
    high: float

    @property
    def is_determined(self) -> bool:
        """Whether the data says more than that it may be anything from nothing to double."""
        return self.value > 0 and self.low > 0 and (self.high - self.low) < self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What was found, and how well it describes the observations."""

    coefficients: tuple[Coefficient, ...]
    is_padded: bool
    """Whether padding decode batches to captured sizes describes them better."""
    num_observations: int
    num_outliers: int
    median_relative_error: float

    def __getitem__(self, name: str) -> Coefficient:
        return next(one for one in self.coefficients if one.name == name)


def fit(observations: Sequence[Observation]) -> Fit:
    """The coefficients that describe the observations best; ``ValueError`` with fewer than a dozen of them."""
    useful = [one for one in observations if one.duration_s > 0]
    if len(useful) < 12:
        raise ValueError(f"{len(useful)} observations are too few to fit a server's cost: at least 12 are needed")
    candidates = [_fit(useful, is_padded=is_padded) for is_padded in (False, True)]
    plain, padded = candidates
    return padded if padded.median_relative_error < 0.98 * plain.median_relative_error else plain


def _fit(observations: Sequence[Observation], *, is_padded: bool) -> Fit:
    work = _design(observations, is_padded=is_padded)
    if not _tells_prompt_from_prefill(observations):
        work[:, COEFFICIENTS.index("frontend_per_prompt_token_s")] = 0.0
    if not _tells_first_prefill_tokens(observations):
        work[:, COEFFICIENTS.index("per_first_prefill_token_s")] = 0.0
    if not any(one.num_prefill_context_tokens and not one.num_requests for one in observations):
        work[:, COEFFICIENTS.index("per_prefill_context_token_s")] = 0.0  # no context but in a request's own prompt
    duration_s = np.asarray([one.duration_s for one in observations])
    scale = np.where(work.any(axis=0), np.abs(work).max(axis=0), 1.0)
    work = work / scale
    values, keep, is_calm = _robust(work, duration_s)
    expected = _expected(work, values)
    if is_calm:
        draws = _bootstrap_squares(work, duration_s, np.sqrt(keep) / expected)
    else:
        draws = _bootstrap_absolute(work, duration_s, values)
    low, high = np.percentile(draws, (2.5, 97.5), axis=0)
    margin = _EXACT * values
    return Fit(
        coefficients=tuple(
            Coefficient(name=name, value=float(v), low=float(max(0.0, lo)), high=float(hi))
            for name, v, lo, hi in zip(
                COEFFICIENTS,
                values / scale,
                np.minimum(low, values - margin) / scale,
                np.maximum(high, values + margin) / scale,
                strict=True,
            )
        ),
        is_padded=is_padded,
        num_observations=int(duration_s.size),
        num_outliers=int((keep == 0).sum()),
        median_relative_error=float(np.median(np.abs(duration_s - expected) / duration_s)),
    )


def _tells_prompt_from_prefill(observations: Sequence[Observation]) -> bool:
    """Whether reading a prompt and computing it are ever apart: cached prompts, or prefill in a busy server."""
    return any(
        abs(one.num_request_prompt_tokens - one.num_prefill_tokens) > 0.1 * one.num_prefill_tokens
        for one in observations
        if one.num_prefill_tokens
    )


def _tells_first_prefill_tokens(observations: Sequence[Observation]) -> bool:
    """Whether there are prompts of several lengths both within the first tokens of a step and beyond them."""
    lengths = {(one.num_first_prefill_tokens, one.num_prefill_tokens) for one in observations if one.num_prefill_tokens}
    num_within = sum(first == num_tokens for first, num_tokens in lengths)
    return min(num_within, len(lengths) - num_within) >= _MIN_LENGTHS


def _robust(work: Floats, duration_s: Floats) -> tuple[Floats, Floats, bool]:
    """Least absolute errors first, which a third of wild observations cannot move; then Tukey's weights if it is
    calm.

    Returns the coefficients, the weight of each observation, and whether the records are calm.
    """
    values = non_negative_least_squares(*_normal(work, duration_s, np.ones(duration_s.size)))
    values = _least_absolute(work, duration_s, values, np.ones(duration_s.size), _NUM_ROUNDS // 2)
    keep = np.ones(duration_s.size)
    for _ in range(_NUM_ROUNDS // 2):
        expected = _expected(work, values)
        size = np.abs(duration_s - expected) / expected
        deviation = _deviation(size, work)
        if deviation > _NOISY:
            return values, keep, False
        keep = np.maximum(0.0, 1 - (size / (_TUKEY * deviation)) ** 2) ** 2
        values = non_negative_least_squares(*_normal(work, duration_s, np.sqrt(keep) / expected))
    return values, keep, True


def _least_absolute(work: Floats, duration_s: Floats, values: Floats, count: Floats, num_rounds: int) -> Floats:
    """The coefficients with the least relative absolute errors, by reweighting; ``count`` repeats observations."""
    for _ in range(num_rounds):
        expected = _expected(work, values)
        size = np.maximum(np.abs(duration_s - expected) / expected, 1e-6)
        values = non_negative_least_squares(*_normal(work, duration_s, np.sqrt(count / size) / expected))
    return values


def _expected(work: Floats, values: Floats) -> Floats:
    """What the work should take; errors are relative to it, but never to next to nothing."""
    expected = work @ values
    return np.maximum(expected, 0.1 * float(np.median(expected)) + 1e-12)


def _deviation(size: Floats, work: Floats) -> float:
    """The usual deviation, of observations with a prompt in them or without, whichever is larger."""
    has_prompt = work[:, COEFFICIENTS.index("per_prefill_token_s")] > 0
    kinds = [size[kind] for kind in (has_prompt, ~has_prompt) if kind.any()]
    return max(1e-9, *(1.4826 * float(np.median(kind)) for kind in kinds))


def _design(observations: Sequence[Observation], *, is_padded: bool) -> Floats:
    return np.asarray(
        [
            (
                one.num_steps,
                one.num_prefill_tokens,
                one.num_first_prefill_tokens,
                one.prefill_attention,
                one.num_prefill_context_tokens,
                one.num_mixed_steps,
                one.num_padded_seqs if is_padded else one.num_decode_seqs,
                one.num_decode_context_tokens,
                one.num_requests,
                one.num_request_prompt_tokens,
            )
            for one in observations
        ],
        dtype=np.float64,
    )


def _normal(work: Floats, duration_s: Floats, weight: Floats) -> tuple[Floats, Floats]:
    weighted = work * weight[:, None]
    return weighted.T @ weighted, weighted.T @ (duration_s * weight)


def _bootstrap_absolute(work: Floats, duration_s: Floats, values: Floats) -> Floats:
    """Least absolute fits of blocks of observations drawn with replacement."""
    block = np.arange(duration_s.size) // _BLOCK
    num_blocks = int(block[-1]) + 1
    rng = np.random.default_rng(0)
    counts = rng.multinomial(num_blocks, np.full(num_blocks, 1 / num_blocks), size=_NUM_ABSOLUTE_DRAWS)
    return np.asarray(
        [_least_absolute(work, duration_s, values, count[block].astype(np.float64), 6) for count in counts]
    )


def _bootstrap_squares(work: Floats, duration_s: Floats, weight: Floats) -> Floats:
    """Fits of blocks of observations drawn with replacement; sums per block are all that a fit needs."""
    starts = np.arange(0, duration_s.size, _BLOCK)
    weighted, target = work * weight[:, None], duration_s * weight
    grams = np.asarray([weighted[s : s + _BLOCK].T @ weighted[s : s + _BLOCK] for s in starts])
    moments = np.asarray([weighted[s : s + _BLOCK].T @ target[s : s + _BLOCK] for s in starts])
    rng = np.random.default_rng(0)
    counts = rng.multinomial(starts.size, np.full(starts.size, 1 / starts.size), size=_NUM_DRAWS)
    return np.asarray(
        [
            non_negative_least_squares(np.tensordot(count, grams, 1), np.tensordot(count, moments, 1))
            for count in counts.astype(np.float64)
        ]
    )


def non_negative_least_squares(gram: Floats, moment: Floats) -> Floats:
    """Lawson and Hanson's active set method on normal equations: minimises |Ax - b| over x >= 0."""
    num = moment.size
    values = np.zeros(num)
    free: npt.NDArray[np.bool_] = np.zeros(num, dtype=np.bool_)
    tolerance = 1e-12 * max(1.0, float(np.abs(moment).max(initial=0.0)))
    for _ in range(10 * num):
        gradient = np.where(free, -np.inf, moment - gram @ values)
        if not np.any(gradient > tolerance):
            break
        free[int(np.argmax(gradient))] = True
        while True:
            trial = np.zeros(num)
            inside = np.flatnonzero(free)
            trial[inside] = np.linalg.lstsq(gram[np.ix_(inside, inside)], moment[inside], rcond=1e-13)[0]
            if np.all(trial[inside] > 0):
                break
            going = free & (trial <= 0)
            step = np.min(values[going] / (values[going] - trial[going]), initial=1.0)
            values = values + step * (trial - values)
            free &= values > 1e-15
            values[~free] = 0.0
            if not free.any():
                break
        if not free.any():
            break
        values = trial
    return values
