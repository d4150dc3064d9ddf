"""A run over HTTP may take its twin from before; another run is no twin."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from loadgen.commands import main
from loadgen.experiment import STREAM_INTERVAL
from tests.loadgen.test_own_mock import write_workload
from traces.jsonl import read_run


@pytest.fixture
def workload(tmp_path: Path) -> str:
    return write_workload(tmp_path / "tasks.jsonl")


def virtually(workload: str, out: Path, *flags: str) -> str:
    assert main(["run", "--workload", workload, "--no-live", *flags, "--out", str(out)]) == 0
    return str(out)


@pytest.mark.wall_clock
def test_the_time_scale_comes_from_a_twin_of_before(
    workload: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def done_anew(*_: object) -> None:
        pytest.fail("the twin of before is there")

    twin = virtually(workload, tmp_path / "twin", "--sample-period", "2", "--goodput", "ttft:500")
    monkeypatch.setattr("loadgen.commands._twin", done_anew)
    path = tmp_path / "twin" / "summary.json"
    # So short that no machine carries more than real time's pace.
    path.write_bytes(orjson.dumps(orjson.loads(path.read_bytes()) | {"makespan_s": 0.001}))
    main(
        ["run", "--workload", workload, "--no-live", "--target", "http", "--twins", twin, "--out", str(tmp_path / "r")]
    )

    said, header = capsys.readouterr().out, read_run(tmp_path / "r").header
    # On a busy machine every try may be given up, and a run that did not end is compared with nothing.
    assert ("in virtual time (" in said) == header.complete
    assert (header.time_scale, "tries" in header.notes) == (1.0, False)
    assert header.settings["stream_interval"] == STREAM_INTERVAL


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("--seed", "1"), "its seed is 0, not 1"),
        (("--architecture", "orchestrator"), "its architecture is react, not orchestrator"),
        (("--num-tasks", "2"), "a twin has the same workload"),
        (("--no-prefix-caching",), "its enable_prefix_caching is None, not False"),
    ],
)
def test_another_run_is_no_twin(
    workload: str, tmp_path: Path, flags: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    twin = virtually(workload, tmp_path / "twin")
    out = tmp_path / "r"
    code = main(["run", "--workload", workload, "--target", "http", "--twins", twin, "--out", str(out), *flags])

    assert code == 2
    assert text in capsys.readouterr().err
    assert not out.exists()


def test_all_twins_of_an_experiment_are_looked_at_before_anything_is_run(
    workload: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    virtually(workload, tmp_path / "twins" / "react-nocache", "--no-prefix-caching")
    flags = ["--target", "http", "--twins", str(tmp_path / "twins"), "--out", str(tmp_path / "r")]
    code = main(["experiment", "--workload", workload, *flags])

    assert code == 2
    assert "react-cache" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_twins_belong_to_runs_against_a_mock(workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--workload", workload, "--twins", "x"]) == 2
    assert "--target http, got in-process" in capsys.readouterr().err
