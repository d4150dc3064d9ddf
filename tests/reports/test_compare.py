"""Names that tell runs apart."""

from __future__ import annotations

from reports.compare import compare, skipped_statements, tell_apart
from tests.reports.records import make_header, make_run


def test_a_name_is_the_architecture_and_the_cache() -> None:
    headers = [make_header(prefix_caching=True), make_header(prefix_caching=False), make_header(prefix_caching=None)]

    assert tell_apart(headers) == ["react, cache on", "react, cache off", "react"]


def test_only_what_tells_runs_apart_is_added() -> None:
    headers = [make_header(), make_header(target="http://localhost:8000"), make_header(architecture="orchestrator")]

    assert tell_apart(headers) == ["react, cache on, in process", "react, cache on, HTTP", "orchestrator, cache on"]


def test_runs_that_differ_in_nothing_are_numbered() -> None:
    assert tell_apart([make_header(), make_header()]) == ["react, cache on (1)", "react, cache on (2)"]


def test_the_points_of_a_sweep_are_named_by_their_load() -> None:
    headers = [make_header(settings={"max_concurrency": load, "request_rate": None}) for load in (1, 16)]

    assert tell_apart(headers) == ["react, cache on, 1 tasks at once", "react, cache on, 16 tasks at once"]


def test_what_a_workload_left_out_is_said_once() -> None:
    runs = [make_run(notes={"workload": "a.jsonl: 3 records could not be used"}, seed=seed) for seed in (0, 1)]

    assert skipped_statements(compare(runs).runs) == ["a.jsonl: 3 records could not be used"]


def test_metrics_that_no_run_has_are_left_out() -> None:
    comparison = compare([make_run(), make_run(seed=1)])

    keys = [metric.key for metric in comparison.metrics]
    assert "ttft" in keys
    assert "itl" not in keys
    assert "gpu_busy_share" not in keys
