"""Differences between two runs: paired by task, and honest about noise."""

from __future__ import annotations

import random
from typing import Any

import pytest

from reports.compare import Comparison, compare
from reports.intervals import Difference, differences, format_difference
from reports.measure import RunColumns
from reports.repeats import noise_statements
from tests.reports.records import make_call, make_run, make_task


def run_of(times_s: dict[str, float], **header: Any) -> RunColumns:
    """A task of one call for each of the times."""
    calls = [make_call(f"{name}/react", first_token_at=0.5, last_token_at=time_s) for name, time_s in times_s.items()]
    tasks = [make_task(name, ended_at=time_s) for name, time_s in times_s.items()]
    return make_run(calls=calls, tasks=tasks, **header)


def pair(before: dict[str, float], after: dict[str, float]) -> Comparison:
    return compare([run_of(before), run_of(after, seed=1)])


def test_a_difference_of_all_tasks_is_certain() -> None:
    before = {f"t{k}": 10.0 + k for k in range(40)}
    comparison = pair(before, {name: time_s / 2 for name, time_s in before.items()})

    found = differences(*comparison.runs)["task_time", 0]

    assert found.relative == pytest.approx(-0.5)
    assert found.low == pytest.approx(-0.5)
    assert found.high == pytest.approx(-0.5)
    assert not found.is_noise


def test_a_difference_that_depends_on_the_tasks_is_noise() -> None:
    draw = random.Random(1)
    before = {f"t{k}": draw.uniform(5, 15) for k in range(40)}
    after = {name: draw.uniform(5, 15) for name in before}

    found = differences(*pair(before, after).runs)["task_time", 0]

    assert found.low < 0 < found.high
    assert found.is_noise


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    """Both sides come from one distribution: no difference is the truth, and about 38 of 40 should hold it."""
    draw = random.Random(2)
    held = 0
    for _ in range(40):
        before = {f"t{k}": draw.gauss(10, 2) for k in range(60)}
        after = {name: draw.gauss(10, 2) for name in before}
        held += differences(*pair(before, after).runs)["task_time", 0].is_noise

    assert 35 <= held <= 40


def test_only_tasks_that_both_runs_ended_are_compared() -> None:
    comparison = pair({"a": 1.0, "b": 1.0, "only before": 100.0}, {"a": 2.0, "b": 2.0, "only after": 0.1})

    found = differences(*comparison.runs)["task_time", 2]

    assert found.relative == pytest.approx(1.0)


def test_one_common_task_is_not_enough() -> None:
    assert differences(*pair({"a": 1.0}, {"a": 2.0}).runs) == {}


def test_the_same_runs_give_the_same_intervals() -> None:
    comparison = pair({f"t{k}": 1.0 + k for k in range(9)}, {f"t{k}": 9.0 - k / 2 for k in range(9)})

    assert differences(*comparison.runs) == differences(*comparison.runs)


@pytest.mark.parametrize(
    ("relative", "low", "high", "text"),
    [
        (-0.687, -0.701, -0.672, "-69 % (-70 to -67)"),
        (0.012, -0.003, 0.025, "+1.2 % (-0.3 to +2.5), noise"),
        (0.0, 0.0, 0.0, "the same"),
    ],
)
def test_a_difference_in_words(relative: float, low: float, high: float, text: str) -> None:
    assert format_difference(Difference(relative=relative, low=low, high=high)) == text


def test_repeated_runs_say_how_far_they_lie_apart() -> None:
    runs = [run_of({"a": 10.0, "b": 12.0}, clock="wall"), run_of({"a": 10.5, "b": 12.6}, clock="wall", seed=1)]

    texts = noise_statements(compare(runs).runs)

    assert "2 repeated runs of react lie apart by: makespan 5.0 %" in texts[1]
    assert "95 % interval (Student's t): makespan 12.3 +- 3.8 s" in texts[2]


def test_repeated_runs_stay_that_at_whatever_scale_the_machine_carried_them() -> None:
    scales = ((45.6, "auto"), (29.6, "auto"))
    runs = [run_of({"a": 10.0}, clock="wall", time_scale=at, settings={"time_scale": told}) for at, told in scales]
    others = [run_of({"a": 10.0}, clock="wall", time_scale=at, settings={"time_scale": f"{at}"}) for at, _ in scales]

    assert "2 repeated runs of react" in noise_statements(compare(runs).runs)[1]
    assert "repeated runs of react" not in " ".join(noise_statements(compare(others).runs))


def test_the_points_of_a_sweep_are_no_repeated_runs() -> None:
    runs = [run_of({"a": 10.0}, settings={"max_concurrency": load, "out": f"runs/{load}"}) for load in (1, 2)]

    assert len(noise_statements(compare(runs).runs)) == 1


def test_runs_that_differ_in_their_seed_and_folder_only_are_repeated_ones() -> None:
    runs = [run_of({"a": 10.0}, seed=seed, settings={"seed": seed, "out": f"runs/{seed}"}) for seed in (0, 1)]

    assert "2 repeated runs of react" in noise_statements(compare(runs).runs)[1]


def test_wall_clock_runs_that_were_not_repeated_say_so() -> None:
    runs = [run_of({"a": 10.0}, clock="wall"), run_of({"a": 10.0}, clock="wall", prefix_caching=False)]

    assert "how far repeated runs lie apart is not known" in noise_statements(compare(runs).runs)[-1]
