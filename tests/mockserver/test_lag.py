"""The lag meter: percentiles of a stream in bounded memory."""

from __future__ import annotations

import random

import pytest

from mockserver.lag import LagMeter


def test_percentiles_are_within_a_bucket_and_the_maximum_is_exact() -> None:
    rng = random.Random(1)
    durations = [rng.lognormvariate(-5.0, 1.5) for _ in range(20_000)]
    meter = LagMeter()

    for duration_s in durations:
        meter.record(duration_s)

    durations.sort()
    summary = meter.summary()
    assert summary.num_samples == 20_000
    assert summary.max_s == durations[-1]
    assert summary.p50_s == pytest.approx(durations[10_000], rel=0.03)
    assert summary.p99_s == pytest.approx(durations[19_800], rel=0.03)
    assert len(meter._num_by_bucket) < 1000


def test_what_is_never_late_has_no_lag() -> None:
    meter = LagMeter()
    for _ in range(100):
        meter.record(0.0)
    meter.record(-1.0)

    assert meter.summary().p99_s == meter.summary().max_s == 0.0


def test_one_late_in_a_thousand_does_not_move_the_99th_percentile() -> None:
    meter = LagMeter()
    for _ in range(999):
        meter.record(0.0)
    meter.record(5.0)

    assert meter.summary().p99_s == 0.0
    assert meter.summary().max_s == 5.0


def test_nothing_recorded_is_no_lag() -> None:
    assert LagMeter().summary().max_s == 0.0
