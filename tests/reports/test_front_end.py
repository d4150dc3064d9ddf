"""Which part of a front end's time the next request waits for."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from mockserver.engine.cost import FittedCost
from mockserver.engine.front_end import FrontEnd
from reports.calibrate import calibrate, profile_of
from reports.front_end import FrontEndShares, front_end_shares
from reports.observations import SchedulerLimits
from reports.resend import resend
from reports.terminal import print_calibration
from tests.reports.mock_records import Probe, records_of
from tests.reports.records import make_call

LIMITS = SchedulerLimits(max_num_batched_tokens=2048)
COST = FittedCost(floor_s=0.008, per_prefill_token_s=40e-6, per_decode_seq_s=0.0004)


def requests() -> list[Probe]:
    """Single ones, and groups sent at one instant."""
    found = [Probe(at=2.0 * number, num_prompt_tokens=64 << number % 6, num_output_tokens=1) for number in range(12)]
    at = 30.0
    for size in (1, 1, 2, 4, 8, 16) * 2:
        found += [Probe(at=at, num_prompt_tokens=64, num_output_tokens=48) for _ in range(size)]
        at += 4.0
    return found


@pytest.mark.parametrize(("latency_s", "work_s"), [(0.1, 0.0), (0.095, 0.005), (0.05, 0.05), (0.0, 0.1)])
def test_latency_is_told_from_work(latency_s: float, work_s: float) -> None:
    calls = records_of(requests(), COST, frontend_s=latency_s, front_end=FrontEnd(work_s=work_s))

    shares = front_end_shares([calls], COST, LIMITS, frontend_s=0.1, per_prompt_token_s=0.0)

    assert shares.work == pytest.approx(work_s / 0.1)
    assert shares.wakeup == 0.0


@pytest.mark.parametrize(
    ("latency_s", "work_s", "wakeup_s", "arrival_s"),
    [
        (0.045, 0.005, 0.05, 0.0),
        (0.05, 0.05, 0.0, 0.0),
        (0.0, 0.025, 0.075, 0.0),
        (0.0, 0.015, 0.06, 0.025),
        (0.05, 0.025, 0.0, 0.025),
    ],
)
def test_wake_up_and_arrival_are_told_from_both(
    latency_s: float, work_s: float, wakeup_s: float, arrival_s: float
) -> None:
    """Calls that come while another gets a long answer wake nobody, and hold it up."""
    found = requests()
    for number in range(4):
        at = 100.0 + 10.0 * number
        found.append(Probe(at=at, num_prompt_tokens=64, num_output_tokens=400))
        found += [Probe(at=at + 0.5 * place, num_prompt_tokens=100, num_output_tokens=1) for place in range(1, 5)]
    front_end = FrontEnd(work_s=work_s, wakeup_s=wakeup_s, arrival_s=arrival_s)
    calls = records_of(found, COST, frontend_s=latency_s, front_end=front_end)

    shares = front_end_shares([calls], COST, LIMITS, frontend_s=0.1, per_prompt_token_s=0.0)

    assert shares.work == pytest.approx(work_s / 0.1)
    assert shares.wakeup == pytest.approx(wakeup_s / 0.1, abs=0.076)
    assert shares.arrival == pytest.approx(arrival_s / 0.1, abs=0.026)


def test_a_calibration_has_both() -> None:
    calls = records_of(requests(), COST, frontend_s=0.095, front_end=FrontEnd(work_s=0.005))

    found = calibrate([calls], LIMITS)

    assert found.front_end.work_s == pytest.approx(0.005, rel=0.2)
    assert found.front_end.latency_s == pytest.approx(0.095, rel=0.05)


def test_a_profile_and_the_table_say_how_the_whole_was_parted() -> None:
    calls = records_of(requests(), COST, frontend_s=0.095, front_end=FrontEnd(work_s=0.005))
    found = calibrate([calls], LIMITS)
    said = StringIO()

    profile = profile_of(found, name="x", header=None, samples=(), max_model_len=4096)
    print_calibration(found, Console(file=said, width=200))

    assert profile.front_end == found.front_end
    assert profile.sources["frontend_s"].startswith("5.0% of 0.1 s a request, fitted: 0.1 (")
    assert profile.sources["frontend_latency_s"].startswith("95.0% of 0.1 s a request, fitted: 0.1 (")
    assert "5.0% of frontend_s is work that other requests wait for" in said.getvalue()


def test_calls_sent_again_to_what_answered_them_are_answered_alike() -> None:
    """Every part of a request's way, in groups and while others are answered: the driver and the resending agree."""
    found = [Probe(at=10.0 + 0.0043 * number, num_prompt_tokens=300, num_output_tokens=20) for number in range(12)]
    found += [Probe(at=40.0 + 0.03 * number, num_prompt_tokens=2500, num_output_tokens=30) for number in range(8)]
    front_end = FrontEnd(latency_s=0.011, work_s=0.007, work_per_prompt_token_s=1e-6, wakeup_s=0.02, arrival_s=0.003)
    calls = records_of(found, COST, front_end=front_end)

    again = resend(calls, COST, LIMITS, front_end)

    assert [at for at, _ in again] == pytest.approx([call.first_token_at for call in calls])
    assert [at for _, at in again] == pytest.approx([call.last_token_at for call in calls])


def test_calls_that_found_an_idle_server_find_one_however_slow_it_is() -> None:
    calls = records_of([Probe(at=1.0 * n, num_prompt_tokens=64, num_output_tokens=20) for n in range(5)], COST)
    slow = replace(COST, floor_s=0.5)

    again = resend(calls, slow, LIMITS, FrontEnd())

    ttfts = [at - call.sent_at for (at, _), call in zip(again, calls, strict=True)]
    assert ttfts == pytest.approx([ttfts[0]] * 5)


def test_the_profile_has_the_wake_up_and_the_arrival() -> None:
    found = calibrate([records_of(requests(), COST, frontend_s=0.1)], LIMITS)
    found = replace(found, shares=FrontEndShares(work=0.15, wakeup=0.5, arrival=0.1))

    profile = profile_of(found, name="x", header=None, samples=(), max_model_len=4096)

    assert profile.wakeup_s == pytest.approx(0.05, rel=0.05)
    assert profile.arrival_s == pytest.approx(0.01, rel=0.05)
    assert profile.frontend_s + profile.frontend_latency_s == pytest.approx(0.04, rel=0.05)
    assert profile.sources["wakeup_s"].startswith("50.0% of 0.1 s a request")
    assert profile.sources["arrival_s"].startswith("10.0% of 0.1 s a request")
    assert profile.sources["frontend_latency_s"].startswith("25.0% of 0.1 s a request")


def test_a_call_is_sent_again_with_what_was_cached() -> None:
    """Of 4,096 prompt tokens 4,080 are cached: 16 are computed, in a step that reads the others."""
    cost = FittedCost(floor_s=0.01, per_prefill_token_s=1e-3, per_prefill_context_token_s=1e-5)
    call = make_call(num_prompt_tokens=4096, num_cached_tokens=4080, num_output_tokens=1)

    ((first_at, _),) = resend([call], cost, LIMITS, FrontEnd())

    assert first_at == pytest.approx(0.01 + 0.016 + 0.0408)


def test_calls_that_came_alone_tell_nothing() -> None:
    calls = records_of(requests()[:12], COST, frontend_s=0.1)

    for frontend_s in (0.1, 0.0):
        shares = front_end_shares([calls], COST, LIMITS, frontend_s=frontend_s, per_prompt_token_s=0.0)
        assert shares == FrontEndShares(work=1.0, wakeup=0.0)
