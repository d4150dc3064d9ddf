"""What a person types and what comes back: tables, JSON, pages, exit statuses, one line for what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from reports.__main__ import main
from tests.reports.run_files import write_react_run, write_run
from tests.unread import run_unread


def test_show_prints_validity_first_and_exits_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["show", str(write_react_run(tmp_path / "run", call_s=2.0))])

    lines = capsys.readouterr().out.splitlines()
    assert status == 0
    assert lines[0] == "valid"
    assert any(line.split() == ["Makespan", "(s)", "6"] for line in lines)


def test_an_invalid_run_says_why_first_and_exits_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["show", str(write_run(tmp_path / "run", num_tasks=3))])

    assert status == 1
    assert capsys.readouterr().out.startswith("INVALID: react, cache on: only 1 of 3 tasks ended")


def test_json_holds_the_summary_of_each_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [write_react_run(tmp_path / name, call_s=2.0, prefix_caching=name == "on") for name in ("off", "on")]

    main(["show", *map(str, runs), "--json"])

    summaries = json.loads(capsys.readouterr().out)
    assert [one["label"] for one in summaries] == ["react, cache off", "react, cache on"]
    assert summaries[0]["makespan_s"] == 6


@pytest.mark.parametrize(("given", "expected"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "4"}, "4")])
def test_numpy_gets_one_thread_unless_told_otherwise(given: dict[str, str], expected: str) -> None:
    """It reads the variable when it is imported, which is later."""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    code = "import sys, os, reports; print(os.environ['OPENBLAS_NUM_THREADS'], 'numpy' in sys.modules)"

    said = subprocess.run(
        [sys.executable, "-c", code], env=environment | given, capture_output=True, text=True, check=True
    )

    assert said.stdout.split() == [expected, "False"]


def test_goodput_objectives_reach_the_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_react_run(tmp_path / "run", call_s=2.0)

    main(["show", str(run), "--json", "--goodput", "ttft:1000", "e2el:1999"])

    assert json.loads(capsys.readouterr().out)["goodput_attainment"] == 0


def test_compare_writes_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [write_react_run(tmp_path / name, call_s=2.0, prefix_caching=name == "on") for name in ("off", "on")]
    page = tmp_path / "page.html"

    status = main(["compare", *map(str, runs), "--html", str(page)])

    assert status == 0
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert "page.html" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_a_page_is_written_though_nobody_reads_what_is_printed(arguments: list[str], tmp_path: Path) -> None:
    """``reports compare ... | head`` must not cost the page."""
    runs = [write_react_run(tmp_path / name, call_s=2.0, prefix_caching=name == "on") for name in ("off", "on")]
    page = tmp_path / "page.html"

    said = run_unread("reports", "compare", *map(str, runs), "--html", str(page), *arguments)

    assert page.read_text().startswith("<!DOCTYPE html>")
    assert said == (1, "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["show", "{tmp}/nothing"], "no such run directory"),
        (["show", "{tmp}"], "run.json is missing"),
        (["show", "{run}", "--goodput", "speed:1"], "goodput objective"),
        (["show", "{run}", "--html", "{tmp}/no/such/folder/page.html"], "No such file or directory"),
        (["compare", "{run}"], "needs 2 runs or more, got 1"),
    ],
)
def test_wrong_input_is_one_line_on_stderr_and_status_2(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_react_run(tmp_path / "run", call_s=2.0)

    status = main([argument.format(tmp=tmp_path, run=run) for argument in arguments])

    error = capsys.readouterr().err
    assert status == 2
    assert says in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["show"], ["show", "--fast", "x"], ["draw"]])
def test_wrong_options_are_one_line_and_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)

    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_damaged_record_is_named_by_file_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_react_run(tmp_path / "run", call_s=2.0)
    lines = (run / "calls.jsonl").read_text().splitlines()
    (run / "calls.jsonl").write_text("\n".join([lines[0], '{"call_id": 7', *lines[2:]]) + "\n")

    status = main(["show", str(run)])

    assert status == 2
    assert "calls.jsonl:2" in capsys.readouterr().err


def test_another_version_of_the_records_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_react_run(tmp_path / "run", call_s=2.0, schema_version=0)

    status = main(["show", str(run)])

    error = capsys.readouterr().err
    assert status == 2
    assert "schema_version" in error
    assert error.count("\n") == 1
