from __future__ import annotations

import statistics

import pytest

from loadgen.tools import ToolTimes
from tests.loadgen.fakes import make_call


def test_latencies_are_exponential_with_the_given_mean() -> None:
    times = ToolTimes(seed=3)

    drawn = [times.latency_s("task", make_call(f"c{k}", "mail")) for k in range(5000)]

    assert statistics.fmean(drawn) == pytest.approx(0.6, rel=0.05)
    assert statistics.stdev(drawn) == pytest.approx(0.6, rel=0.08)


def test_a_latency_depends_on_seed_task_and_call_only() -> None:
    call = make_call("c1", "mail")

    assert ToolTimes(seed=1).latency_s("a", call) == ToolTimes(seed=1).latency_s("a", call)
    assert ToolTimes(seed=1).latency_s("a", call) != ToolTimes(seed=2).latency_s("a", call)
    assert ToolTimes(seed=1).latency_s("a", call) != ToolTimes(seed=1).latency_s("b", call)


def test_recorded_latencies_are_used_when_asked_for_and_there() -> None:
    recorded = make_call("c1", "mail", latency_s=4.5)

    assert ToolTimes(recorded=True).latency_s("a", recorded) == 4.5
    assert ToolTimes(recorded=False).latency_s("a", recorded) != 4.5
    assert ToolTimes(recorded=True, mean_s=0.0).latency_s("a", make_call("c2", "mail")) == 0.0


def test_a_negative_mean_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 0"):
        ToolTimes(mean_s=-1.0)
