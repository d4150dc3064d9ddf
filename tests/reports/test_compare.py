"""Names that tell runs apart."""

from __future__ import annotations

from reports.compare import compare, tell_apart
from tests.reports.records import make_header, make_run


def test_a_name_is_the_architecture_and_the_cache() -> None:
    headers = [make_header(prefix_caching=True), make_header(prefix_caching=False), make_header(prefix_caching=None)]

    assert tell_apart(headers) == ["react, cache on", "react, cache off", "react"]


def test_only_what_tells_runs_apart_is_added() -> None:
    headers = [make_header(), make_header(target="http://localhost:8000"), make_header(architecture="orchestrator")]

    assert tell_apart(headers) == ["react, cache on, in process", "react, cache on, HTTP", "orchestrator, cache on"]


def test_runs_that_differ_in_nothing_are_numbered() -> None:
    assert tell_apart([make_header(), make_header()]) == ["react, cache on (1)", "react, cache on (2)"]


def test_metrics_that_no_run_has_are_left_out() -> None:
    comparison = compare([make_run(), make_run(seed=1)])

    keys = [metric.key for metric in comparison.metrics]
    assert "ttft" in keys
    assert "itl" not in keys
    assert "gpu_busy_share" not in keys
