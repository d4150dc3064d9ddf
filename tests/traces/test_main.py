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


def test_a_file_of_another_kind_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "letter.txt").write_text("Dear reader,\nthis is no recording.\n")

    assert main(["import", str(tmp_path / "letter.txt"), "-o", str(tmp_path / "out.jsonl")]) == 2

    assert "nothing imported" in capsys.readouterr().err
    with pytest.raises(Exception, match="a file in no known format"):
        load_workload(str(tmp_path / "letter.txt"))
