"""Each rule that makes a run invalid, alone."""

from __future__ import annotations

from typing import Any

import pytest

from reports.validity import invalid_reasons
from tests.reports.records import make_call, make_run, make_task
from traces.record import Lag


def test_a_complete_run_on_time_is_valid() -> None:
    assert invalid_reasons(make_run()) == ()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"calls": [make_call(lag_s=0.2)]}, "the server was late"),
        ({"server_lag": Lag(p50_s=0.0, p99_s=0.11, max_s=1.0, num_samples=9)}, "the server was late"),
        ({"calls": [make_call(sent_at=0.6)]}, "the load generator was late"),
        ({"send_lag": Lag(p50_s=0.0, p99_s=0.6, max_s=1.0, num_samples=9)}, "the load generator was late"),
        ({"calls": [make_call(error="reset")]}, "1 of 1 calls failed"),
        ({"calls": [make_call(expected_output_tokens=12)]}, "another number of output tokens"),
        ({"num_tasks": 2}, "only 1 of 2 tasks ended"),
        ({"tasks": [make_task(error="boom")]}, "only 0 of 1 tasks ended"),
        ({"complete": False}, "interrupted"),
        ({"invalid_reasons": ("the time scale was too high",)}, "the time scale was too high"),
    ],
)
def test_each_rule_makes_a_run_invalid(changes: dict[str, Any], reason: str) -> None:
    reasons = invalid_reasons(make_run(**changes))

    assert len(reasons) == 1
    assert reason in reasons[0]


def test_lag_within_its_bound_is_fine() -> None:
    """5 % of the median E2E of 2 s is 0.1 s."""
    assert invalid_reasons(make_run(calls=[make_call(lag_s=0.1, sent_at=0.0)])) == ()
