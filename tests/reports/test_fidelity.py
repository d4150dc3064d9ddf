"""Mock against live: errors by hand, the floor beside them, and a verdict with an exit status."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reports.__main__ import main
from reports.compare import compare
from reports.fidelity import Fidelity, fidelity, quantile_pairs
from reports.measure import RunColumns, ttft_s
from tests.reports.records import make_call, make_run, make_task
from tests.reports.run_files import write_run
from traces.record import CallRecord


def calls_of(factor: float, *, noise: float = 0.0, seed: int = 0, num: int = 40) -> list[CallRecord]:
    """Calls whose times are those of a made-up server times ``factor``, each with its own noise."""
    draw = random.Random(f"{seed}/noise")
    calls = []
    for k in range(num):
        own = factor * (1 + draw.uniform(-noise, noise))
        first = (1.0 + k / 10) * own
        calls.append(
            make_call(
                f"t{k}/react",
                first_token_at=first,
                last_token_at=first + own,
                num_prompt_tokens=500 if k % 2 else 5000,
            )
        )
    return calls


def run_of(calls: list[CallRecord], **header: object) -> RunColumns:
    return make_run(calls=calls, tasks=[make_task(call.task_id) for call in calls], run_id=str(header))


def found_for(mock: float, live: list[tuple[float, int]], bounds: dict[str, float] | None = None) -> Fidelity:
    runs = [run_of(calls_of(mock))]
    runs += [run_of(calls_of(1.0, noise=noise, seed=seed)) for noise, seed in live]
    labelled = compare(runs).runs
    return fidelity(labelled[0], labelled[1:], bounds)


def test_a_mock_that_is_10_percent_slow_has_that_error_everywhere() -> None:
    found = found_for(1.1, [(0.0, 0)])

    everything = next(gap for gap in found.gaps if gap.metric == "ttft" and gap.bucket == "all")
    assert everything.percentile_errors == pytest.approx((0.1, 0.1, 0.1))
    assert everything.median_error == pytest.approx(0.1)
    assert everything.pearson == pytest.approx(1.0)
    assert not found.is_close


def test_a_mock_that_is_3_percent_slow_is_close() -> None:
    found = found_for(1.03, [(0.0, 0)])

    assert found.is_close
    assert found.verdicts[0].floor is None


def test_what_live_runs_differ_by_is_the_floor() -> None:
    """Two live runs with 30 % noise each differ by more than the mock does: no fault of the mock."""
    found = found_for(1.0, [(0.3, 1), (0.3, 2)])

    assert all(verdict.floor is not None and verdict.floor > verdict.bound for verdict in found.verdicts)
    assert found.is_close


def test_prompt_lengths_have_their_own_rows() -> None:
    found = found_for(1.0, [(0.0, 0)])

    assert {gap.bucket for gap in found.gaps if gap.metric == "e2e"} == {"all", "0 to 1,024", "4,096 to 16,384"}


def test_equal_runs_have_no_distance() -> None:
    found = found_for(1.0, [(0.0, 0)])

    assert all(gap.ks_distance == 0 for gap in found.gaps)


def test_distributions_that_do_not_overlap_are_at_distance_1() -> None:
    found = found_for(100.0, [(0.0, 0)])

    assert found.gaps[0].ks_distance == 1


def test_a_q_q_plot_of_equal_runs_is_its_diagonal() -> None:
    values = ttft_s(run_of(calls_of(1.0)).calls)

    x, y = quantile_pairs(values, values)

    assert x == y
    assert len(x) == 101


def test_a_bound_for_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="no metric 'speed'"):
        found_for(1.0, [(0.0, 0)], {"speed": 0.1})


@pytest.mark.parametrize(("factor", "status", "says"), [(1.02, 0, "within"), (1.5, 1, "BEYOND")])
def test_the_command_exits_1_beyond_the_bounds(
    factor: float, status: int, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = {}
    for name, scale in (("mock", factor), ("live", 1.0)):
        calls = calls_of(scale)
        runs[name] = write_run(tmp_path / name, calls=calls, tasks=[make_task(call.task_id) for call in calls])
    page = tmp_path / "page.html"

    given = main(["compare", "--mock", str(runs["mock"]), "--live", str(runs["live"]), "--html", str(page)])

    assert given == status
    assert f"TTFT: median error {factor - 1:.1%}, {says} its bound of 8%" in capsys.readouterr().out
    assert 'data-chart="qq_ttft"' in page.read_text()


def test_the_command_gives_json_and_takes_bounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = calls_of(1.0)
    run = write_run(tmp_path / "run", calls=calls, tasks=[make_task(call.task_id) for call in calls])

    status = main(["compare", "--mock", str(run), "--live", str(run), str(run), "--json", "--bound", "ttft=1"])

    result = json.loads(capsys.readouterr().out)
    assert status == 0
    assert result["verdicts"][0]["bound"] == 0.01
    assert result["verdicts"][0]["floor"] == 0


def test_calls_that_met_others_than_on_the_live_server_are_told_how_to_meet_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mock that is a tenth slow answers later, and so is sent the next calls later, too."""

    def run(name: str, spacing_s: float, *, call_schedule: str | None = None) -> str:
        calls = [
            replace(call, sent_at=at, first_token_at=at + 1.0, last_token_at=at + 2.0)
            for k, call in enumerate(calls_of(1.0))
            for at in [5.0 + spacing_s * k]
        ]
        tasks = [make_task(call.task_id) for call in calls]
        return str(write_run(tmp_path / name, calls=calls, tasks=tasks, settings={"call_schedule": call_schedule}))

    live, slow = run("live", 1.0), run("slow", 1.1)

    main(["compare", "--mock", slow, "--live", live, "--html", str(tmp_path / "slow.html")])
    said = " ".join(capsys.readouterr().out.split())
    assert "calls were sent 1.95 s earlier or later" in said
    assert "loadgen run --call-schedule LIVE-RUN" in said
    assert "--call-schedule LIVE-RUN" in (tmp_path / "slow.html").read_text()

    for alike in (run("alike", 1.002), run("on schedule", 1.1, call_schedule=live)):
        main(["compare", "--mock", alike, "--live", live])
        assert "--call-schedule" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("mock", "live", "is_said"),
    [
        ({}, {"exact_lengths": True}, True),
        ({"recorded_answers": False}, {"exact_lengths": True}, False),
        ({}, {"exact_lengths": False}, False),
    ],
)
def test_answers_that_are_other_ones_on_the_live_server_are_told(
    mock: dict[str, Any], live: dict[str, Any], is_said: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A live server that is held to lengths shows every token, and finds none of its answers in later prompts."""
    calls = calls_of(1.0)
    tasks = [make_task(call.task_id) for call in calls]
    one = write_run(tmp_path / "mock", calls=calls, tasks=tasks, settings=mock)
    other = write_run(tmp_path / "live", calls=calls, tasks=tasks, target="http://h:1", profile=None, settings=live)

    main(["compare", "--mock", str(one), "--live", str(other)])

    assert ("--no-recorded-answers" in capsys.readouterr().out) == is_said


@pytest.mark.parametrize(
    ("mock", "again", "says"),
    [
        ({}, {}, None),
        ({"num_prompt_tokens": 110}, {}, "the mock had 10% more prompt tokens in the same calls than live run 1"),
        ({}, {"num_prompt_tokens": 50}, "live run 2 had 50% fewer prompt tokens"),
        ({"num_cached_tokens": 96}, {}, "the mock found 640 more prompt tokens in its cache than live run 1, which"),
        ({}, {"num_cached_tokens": 64}, "live run 2 found 640 fewer prompt tokens in its cache"),
        ({"num_cached_tokens": None}, {"num_cached_tokens": None}, None),
        ({"num_prompt_tokens": None}, {}, None),
    ],
)
def test_other_work_in_the_same_calls_is_told(
    mock: dict[str, Any],
    again: dict[str, Any],
    says: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(name: str, **changed: Any) -> str:
        given = {"num_prompt_tokens": 100, "num_cached_tokens": 80} | changed
        calls = [replace(call, **given) for call in calls_of(1.0)]
        return str(write_run(tmp_path / name, calls=calls, tasks=[make_task(call.task_id) for call in calls]))

    main(["compare", "--mock", run("mock", **mock), "--live", run("one"), run("two", **again)])

    said = " ".join(capsys.readouterr().out.split())
    assert (" prompt tokens in " in said) == (says is not None)
    assert says is None or says in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--mock", "{run}"], "both --mock RUN and --live RUN"),
        (["--live", "{run}"], "both --mock RUN and --live RUN"),
        (["--mock", "{run}", "--live", "{run}", "--bound", "ttft"], "a bound is NAME=PERCENT"),
    ],
)
def test_wrong_input_is_one_line(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run")

    status = main(["compare", *(argument.format(run=run) for argument in arguments)])

    assert status == 2
    assert says in capsys.readouterr().err
