from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from loadgen.commands import main
from loadgen.config import Settings
from loadgen.perform import Outcome
from loadgen.sweep import largest_good, next_load, sweep, verdict
from tests.loadgen.test_own_mock import write_workload
from traces.record import RunHeader

HEADER = RunHeader(
    run_id="r",
    architecture="react",
    workload="w",
    workload_digest="",
    num_tasks=1,
    target="in-process",
    clock="virtual",
    time_scale=None,
    profile=None,
    prefix_caching=None,
    max_num_seqs=None,
    block_size=None,
    seed=0,
    settings={},
    version="",
)


def server_that_carries(limit: float, *, invalid_at: float | None = None, tried: list[float] | None = None):  # type: ignore[no-untyped-def]
    """Every call is good up to ``limit``; above it, half of them."""

    def run(settings: Settings, name: str) -> Outcome:
        load = settings.max_concurrency if settings.max_concurrency is not None else settings.request_rate
        if tried is not None:
            tried.append(load)
        header = replace(HEADER, invalid_reasons=("late",) if load == invalid_at else ())
        attainment = 1.0 if load <= limit else 0.5
        return Outcome(
            directory=Path(name), header=header, summary={"goodput_attainment": attainment}, interrupted=False
        )

    return run


def settings(**fields: object) -> Settings:
    return Settings(goodput=("ttft:500",), sweep_values=(1, 8, 4), **fields)  # type: ignore[arg-type]


def test_loads_are_run_in_order_and_the_largest_good_one_is_named() -> None:
    tried: list[float] = []

    points = sweep(settings(), server_that_carries(5, tried=tried))

    assert tried == [1, 4, 8]
    assert largest_good(points, 0.99) == 4
    assert verdict(settings(), points) == "ttft:500 by 99% of the calls: met up to max concurrency 4"


def test_a_search_halves_the_gap_until_it_is_closed() -> None:
    tried: list[float] = []

    points = sweep(settings(search_steps=9), server_that_carries(6, tried=tried))

    assert tried == [1, 4, 8, 6, 7]
    assert largest_good(points, 0.99) == 6
    assert next_load(points, 0.99, whole=True) is None


def test_a_rate_is_searched_to_two_percent() -> None:
    points = sweep(settings(search_steps=20, sweep_over="request_rate"), server_that_carries(5.3))

    found = largest_good(points, 0.99)
    assert found == pytest.approx(5.3, rel=0.02)


def test_a_run_that_may_not_be_believed_is_not_good() -> None:
    points = sweep(settings(), server_that_carries(100, invalid_at=4))

    assert largest_good(points, 0.99) == 1


def test_all_good_or_all_bad_is_said() -> None:
    assert "the largest that was tried" in verdict(settings(), sweep(settings(), server_that_carries(100)))
    assert "not met even at max concurrency 1" in verdict(settings(), sweep(settings(), server_that_carries(0.5)))


def test_the_command_runs_each_load_in_a_directory_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = write_workload(tmp_path / "tasks.jsonl")
    command = ["sweep", "--workload", workload, "--no-live", "--sweep-values", "1", "3", "--goodput", "e2el:60000"]

    code = main([*command, "--out", str(tmp_path / "out")])

    assert code == 0
    assert sorted(one.name for one in (tmp_path / "out").glob("[!.]*")) == ["max-concurrency-1", "max-concurrency-3"]
    assert "met up to max concurrency 3, the largest that was tried" in capsys.readouterr().out
