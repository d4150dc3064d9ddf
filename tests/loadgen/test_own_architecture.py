"""The example in the documents works, and one that does not is told in one line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from loadgen.commands import main
from traces.jsonl import read_run

DOCUMENT = Path(__file__).parents[2] / "docs" / "architectures.md"
SMALL = ("--num-tasks", "3", "--no-live")


def test_the_documented_example_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [code] = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "pair.py").write_text(code)
    monkeypatch.chdir(tmp_path)

    exit_code = main(["run", *SMALL, "--architecture", "pair:pair", "--out", "run"])

    run = read_run(tmp_path / "run")
    assert exit_code == 0
    assert len(code.splitlines()) <= 30
    assert run.header.architecture == "pair:pair"
    assert run.header.notes["architecture"].startswith("A worker and a reviewer. Assumes")
    assert {call.agent_id.partition("/")[2] for call in run.calls} == {"worker", "reviewer"}


def test_one_that_raises_is_one_line_and_exit_1_and_nothing_measured_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "breaks.py").write_text(
        "async def late(task, session):\n"
        "    agent = session.agent('a', system_prompt='hello')\n"
        "    await agent.take_turn(task.turns[0])\n"
        "    raise KeyError('nothing here')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    exit_code = main(["run", *SMALL, "--architecture", "breaks:late", "--out", str(tmp_path / "run")])

    said = capsys.readouterr()
    run = read_run(tmp_path / "run")
    assert exit_code == 1
    assert said.err.count("\n") == 1
    assert "KeyError: 'nothing here'" in said.err
    assert str(tmp_path / "run") in said.err
    assert run.calls
    assert not run.header.complete


def test_one_that_is_not_there_is_one_line_and_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code = main(["experiment", *SMALL, "--architectures", "react", "no_such_module:nobody"])

    said = capsys.readouterr()
    assert exit_code == 2
    assert (
        said.err
        == "loadgen: architecture 'no_such_module:nobody': ModuleNotFoundError: No module named 'no_such_module'\n"
    )
