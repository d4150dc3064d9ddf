"""The command line, as a person uses it: exit codes, one line for an error, files that can be read again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.traces.importers.test_toolathlon import ROW
from traces.__main__ import main
from traces.jsonl import read_trajectories
from traces.workload import load_workload


def test_import_writes_trajectories_and_says_what_was_in_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = tmp_path / "rows.jsonl"
    recording.write_text(json.dumps(ROW) + "\nbroken\n")
    out = tmp_path / "out.jsonl.gz"

    exit_code = main(["import", str(recording), "-o", str(out)])

    assert exit_code == 0
    assert [one.task_id for one in read_trajectories(out)] == ["count-words"]
    printed = capsys.readouterr().out
    assert "1 tasks (toolathlon: 1) with 2 calls and 2 tool calls" in printed
    assert "tasks without a system prompt" in printed
    assert "rows.jsonl:2" in printed


def test_what_was_imported_is_a_workload(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW) + "\n")
    main(["import", str(tmp_path / "rows.jsonl"), "-o", str(tmp_path / "out.jsonl")])

    direct = load_workload(str(tmp_path / "rows.jsonl"))
    again = load_workload(str(tmp_path / "out.jsonl"))

    assert again.trajectories == direct.trajectories
    assert again.digest == direct.digest


def test_synth_writes_the_workload(tmp_path: Path) -> None:
    assert main(["synth", "toolathlon-like", "--num-tasks", "2", "-o", str(tmp_path / "w.jsonl")]) == 0

    expected = load_workload("toolathlon-like", num_tasks=2)
    assert load_workload(str(tmp_path / "w.jsonl")).digest == expected.digest


def test_stats_prints_tables_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", "toolathlon-like", "--num-tasks", "3"]) == 0
    assert "distinct tokens" in capsys.readouterr().out

    assert main(["stats", "toolathlon-like", "--num-tasks", "3", "--json"]) == 0
    stats = json.loads(capsys.readouterr().out)
    assert (stats["num_tasks"], stats["workload"]) == (3, "toolathlon-like")
    assert stats["distributions"]["calls per task"]["count"] == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stats", "nowhere.jsonl"], "nowhere.jsonl: no such file, and no embedded workload of that name"),
        (["import", "nowhere.jsonl", "-o", "out.jsonl"], "nowhere.jsonl: no such file"),
    ],
)
def test_a_wrong_input_is_one_line_and_exit_code_2(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(arguments) == 2

    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_page_of_statistics_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    page = tmp_path / "stats.html"

    assert main(["stats", "toolathlon-like", "--num-tasks", "5", "--html", str(page)]) == 0

    html = page.read_text()
    assert "toolathlon-like: 5 tasks" in html
    assert html.count("<svg") == 3
    assert "<script" not in html
    assert "http" not in html


@pytest.mark.parametrize(
    ("arguments", "num_tasks"),
    [
        (["sample", "W", "-n", "3"], 3),
        (["filter", "W", "--min-calls", "2"], 6),
        (["scale", "W", "--tokens", "0.5", "--delays", "2"], 6),
        (["anonymize", "W", "--secret", "s"], 6),
        (["synth", "--like", "W", "--num-tasks", "8"], 8),
    ],
)
def test_workloads_are_made_of_others(arguments: list[str], num_tasks: int, tmp_path: Path) -> None:
    workload = str(tmp_path / "w.jsonl")
    assert main(["synth", "--num-tasks", "6", "-o", workload]) == 0
    out = tmp_path / "out.jsonl.gz"

    assert main([workload if one == "W" else one for one in arguments] + ["-o", str(out)]) == 0

    assert len(list(read_trajectories(out))) == num_tasks


@pytest.mark.parametrize("format_name", ["mooncake", "weka", "aiperf-dag", "atif", "otel", "replayrig"])
def test_export_writes_what_import_reads(format_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exported, back = tmp_path / "exported.gz", tmp_path / "back.jsonl"
    workload = str(tmp_path / "w.jsonl")
    main(["synth", "--num-tasks", "2", "-o", workload])

    assert main(["export", workload, "--format", format_name, "-o", str(exported)]) == 0
    assert main(["import", str(exported), "-o", str(back)]) == 0

    expected = load_workload("toolathlon-like", num_tasks=2)
    assert [one.num_calls for one in read_trajectories(back)] == [one.num_calls for one in expected.trajectories]
    assert f"2 tasks in the format {format_name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["filter", "toolathlon-like", "--min-calls", "500", "-o", "x.jsonl"], "no tasks are left"),
        (["scale", "toolathlon-like", "--tokens", "0", "-o", "x.jsonl"], "tokens must be above 0"),
        (["sample", "nowhere", "-n", "1", "-o", "x.jsonl"], "nowhere: no such file"),
        (["synth", "--like", "nowhere", "-o", "x.jsonl"], "nowhere: no such file"),
        (["export", "toolathlon-like", "--format", "weka", "-o", "no/such/folder/x"], "No such file or directory"),
    ],
)
def test_what_cannot_be_made_is_one_line_and_exit_code_2(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(arguments) == 2

    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_file_of_another_kind_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "letter.txt").write_text("Dear reader,\nthis is no recording.\n")

    assert main(["import", str(tmp_path / "letter.txt"), "-o", str(tmp_path / "out.jsonl")]) == 2

    assert "nothing imported" in capsys.readouterr().err
    with pytest.raises(Exception, match="a file in no known format"):
        load_workload(str(tmp_path / "letter.txt"))


def test_stats_say_how_many_records_could_not_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW) + "\nbroken\n")

    assert main(["stats", str(tmp_path / "rows.jsonl")]) == 0

    assert "1 records could not be used: traces import says why" in capsys.readouterr().out
