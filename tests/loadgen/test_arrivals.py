from __future__ import annotations

import itertools
import statistics

import pytest

from loadgen import arrivals


def test_at_once_means_at_zero() -> None:
    assert arrivals.at_once(3) == (0.0, 0.0, 0.0)


def test_constant_arrivals_are_evenly_spaced_from_zero() -> None:
    assert arrivals.constant(4, rate=2.0) == (0.0, 0.5, 1.0, 1.5)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gamma_gaps_have_the_mean_of_the_rate_and_the_variation_of_the_burstiness(burstiness: float) -> None:
    instants = arrivals.gamma(20_000, rate=5.0, burstiness=burstiness, seed=1)

    gaps = [later - earlier for earlier, later in itertools.pairwise(instants)]
    assert statistics.fmean(gaps) == pytest.approx(0.2, rel=0.05)
    assert statistics.stdev(gaps) / statistics.fmean(gaps) == pytest.approx(burstiness**-0.5, rel=0.05)


def test_gamma_arrivals_depend_on_the_seed_only() -> None:
    first = arrivals.gamma(50, rate=1.0, burstiness=1.0, seed=7)

    assert arrivals.gamma(50, rate=1.0, burstiness=1.0, seed=7) == first
    assert arrivals.gamma(50, rate=1.0, burstiness=1.0, seed=8) != first
    assert arrivals.gamma(0, rate=1.0, burstiness=1.0, seed=7) == ()


@pytest.mark.parametrize("shape", ["linear", "exponential"])
def test_a_ramp_goes_from_the_first_rate_to_the_last(shape: str) -> None:
    instants = arrivals.ramp(101, first_rate=1.0, last_rate=4.0, shape=shape)

    assert instants[0] == 0.0
    assert instants[1] == pytest.approx(1.0)
    assert instants[-1] - instants[-2] == pytest.approx(0.25, rel=0.05)


def test_recorded_arrivals_count_from_the_earliest() -> None:
    assert arrivals.recorded([7.0, 5.0, 9.5]) == (2.0, 0.0, 4.5)


def test_recorded_arrivals_need_a_start_for_each_task() -> None:
    with pytest.raises(ValueError, match="1 of 2 have none"):
        arrivals.recorded([1.0, None])


def test_rates_must_be_positive() -> None:
    with pytest.raises(ValueError, match="more than 0"):
        arrivals.constant(2, rate=0.0)
    with pytest.raises(ValueError, match="burstiness"):
        arrivals.gamma(2, rate=1.0, burstiness=0.0, seed=0)
    with pytest.raises(ValueError, match="linear or exponential"):
        arrivals.ramp(2, first_rate=1.0, last_rate=2.0, shape="square")
