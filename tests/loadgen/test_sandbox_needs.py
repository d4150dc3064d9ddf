from __future__ import annotations

from pathlib import Path

import pytest

from loadgen.commands import main


def said_by(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(["sandboxes", *argv]) == 0
    return capsys.readouterr().out


def test_a_thousand_sessions_need_what_the_pool_says(capsys: pytest.CaptureFixture[str]) -> None:
    said = said_by(capsys)

    assert said.startswith("1,000 sessions, one sandbox each\n")
    assert "382.3 GB (382 MB each on average)" in said
    assert "cores        100 (10.0% of a session's time on a core)" in said
    assert "256 to 512 MB" in said
    assert "125 to 150 ms" in said


def test_limits_say_who_waits(capsys: pytest.CaptureFixture[str]) -> None:
    assert "up at once   200; 800 sessions wait" in said_by(capsys, "--max-sandboxes", "200")
    assert "up at once   1; 9 sessions wait" in said_by(capsys, "--sessions", "10", "--max-sandbox-memory", "0.6")


def test_the_share_of_a_core_is_read_from_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--num-tasks", "2", "--no-live", "--out", str(tmp_path)]) == 0
    capsys.readouterr()

    assert f"s of task time in {tmp_path}" in said_by(capsys, "--run", str(tmp_path))


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (("--sessions", "0"), "at least 1, got 0"),
        (("--max-sandbox-memory", "0.1"), "no room for one sandbox"),
        (("--run", "no/such"), "no/such"),
    ],
)
def test_wrong_usage_is_one_line(argv: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sandboxes", *argv]) == 2

    said = capsys.readouterr()
    assert text in said.err
    assert said.err.count("\n") == 1
