"""How late things were: percentiles of a stream of durations in bounded memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

_BUCKETS_PER_DECADE = 100  # neighbours differ by 2.3 %
_SMALLEST_S = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class LagSummary:
    """Percentiles of lag, in the unit that was recorded."""

    p50_s: float
    p99_s: float
    max_s: float
    num_samples: int


class LagMeter:
    """Counts durations in logarithmic buckets: percentiles are exact to 2.3 %, the maximum is exact."""

    def __init__(self) -> None:
        self._num_by_bucket: dict[int, int] = {}
        self._num_samples = 0
        self._max_s = 0.0

    def record(self, duration_s: float) -> None:
        """Count one duration; what is below a microsecond counts as 0."""
        self._num_samples += 1
        if duration_s < _SMALLEST_S:
            return
        bucket = math.ceil(math.log10(duration_s / _SMALLEST_S) * _BUCKETS_PER_DECADE)
        self._num_by_bucket[bucket] = self._num_by_bucket.get(bucket, 0) + 1
        self._max_s = max(self._max_s, duration_s)

    def summary(self) -> LagSummary:
        """What was recorded so far."""
        return LagSummary(
            p50_s=self._quantile(0.5), p99_s=self._quantile(0.99), max_s=self._max_s, num_samples=self._num_samples
        )

    def _quantile(self, share: float) -> float:
        num_larger = math.floor(self._num_samples * (1.0 - share))
        for bucket in sorted(self._num_by_bucket, reverse=True):
            num_larger -= self._num_by_bucket[bucket]
            if num_larger < 0:
                return min(self._max_s, _SMALLEST_S * 10 ** (bucket / _BUCKETS_PER_DECADE))
        return 0.0
