"""The commands as a person runs them."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest

from loadgen.commands import main
from loadgen.config import Settings
from loadgen.transports.inprocess import Machine, build_machine
from mockserver.clock import Clock
from tests.loadgen.running import wait_for_calls
from tests.unread import run_unread
from traces.jsonl import read_run

SMALL = ("--num-tasks", "3", "--no-live")


def header_of(directory: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((directory / "run.json").read_text())
    return loaded


def test_a_run_is_a_directory_that_can_be_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["run", *SMALL, "--out", str(tmp_path / "run")])

    assert code == 0
    run = read_run(tmp_path / "run")
    assert run.header.complete
    assert run.header.invalid_reasons == ()
    assert run.header.prefix_caching is True
    assert run.header.settings["num_tasks"] == 3
    assert len(run.tasks) == 3
    assert len(run.calls) == run.summary["completed"] == sum(task.num_calls for task in run.tasks)
    assert len(run.tools) == sum(task.num_tool_calls for task in run.tasks)
    assert run.samples[-1].num_finished_requests == len(run.calls)
    assert str(tmp_path / "run") in capsys.readouterr().out


def test_the_same_experiment_has_the_same_digest_under_another_hash_seed(tmp_path: Path) -> None:
    said = []
    for seed in ("1", "2"):
        command = [sys.executable, "-m", "loadgen", "experiment", *SMALL, "--clock", "virtual"]
        done = subprocess.run(
            [*command, "--out", str(tmp_path / seed)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        said.append([line for line in done.stdout.splitlines() if line.startswith("digest: ")])

    assert said[0] == said[1]
    assert len(said[0]) == 1
    digests = [header_of(tmp_path / seed / "react-cache")["digest"] for seed in ("1", "2")]
    assert digests[0] == digests[1]


def test_an_experiment_is_the_four_cells_on_the_same_tasks(tmp_path: Path) -> None:
    code = main(["experiment", *SMALL, "--out", str(tmp_path)])

    assert code == 0
    headers = {path.name: header_of(path) for path in sorted(tmp_path.glob("[!.]*"))}
    assert list(headers) == ["orchestrator-cache", "orchestrator-nocache", "react-cache", "react-nocache"]
    assert len({header["workload_digest"] for header in headers.values()}) == 1
    assert headers["react-nocache"]["prefix_caching"] is False


def test_a_run_begins_when_the_machine_of_the_one_before_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Garbage is collected seldom here, and a machine is a ring of references that holds tens of megabytes."""
    machines: list[weakref.ref[object]] = []
    num_alive: list[int] = []

    def watched(settings: Settings, clock: Clock) -> Machine:
        num_alive.append(sum(machine() is not None for machine in machines))
        machine = build_machine(settings, clock)
        machines.append(weakref.ref(machine.driver))
        return machine

    monkeypatch.setattr("loadgen.perform.build_machine", watched)
    gc.disable()
    try:
        code = main(["experiment", *SMALL, "--out", str(tmp_path)])
    finally:
        gc.enable()

    assert code == 0
    assert num_alive == [0, 0, 0, 0]


def test_records_of_a_workload_that_could_not_be_used_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = tmp_path / "mine.jsonl"
    workload.write_text(
        '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}\n'
        '{"messages": []}\n'
    )

    main(["run", "--workload", str(workload), "--clock", "virtual", "--out", str(tmp_path / "run")])

    told = "mine.jsonl: 1 records could not be used and are left out: traces import says why"
    assert told in capsys.readouterr().out


def test_ctrl_c_keeps_what_was_measured_and_exits_130(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    running = subprocess.Popen(
        [sys.executable, "-m", "loadgen", "run", *SMALL, "--clock", "wall", "--out", str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_calls(running, directory)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)

    assert running.returncode == 130, err
    assert "Traceback" not in err
    assert "INVALID: " in out
    run = read_run(directory)
    assert not run.header.complete
    assert any("interrupted" in reason for reason in run.header.invalid_reasons)
    assert run.calls
    assert run.summary["completed"] == len(run.calls)


def test_records_are_complete_though_nobody_reads_what_is_printed(tmp_path: Path) -> None:
    said = run_unread("loadgen", "experiment", *SMALL, "--clock", "virtual", "--out", str(tmp_path / "runs"))

    assert said == (1, "")
    headers = [read_run(directory).header for directory in (tmp_path / "runs").iterdir() if directory.is_dir()]
    assert [header.complete for header in headers] == [True] * 4


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (("run", "--num-tasks", "0"), "num_tasks must be at least 1, got 0"),
        (("run", "--workload", "no-such"), "no-such"),
        (("run", "--architecture", "nobody"), "own as package.module:function, got 'nobody'"),
        (("run", "--profile", "toaster"), "toaster"),
        (("run", "--target", "http://127.0.0.1:9/v1"), "http://127.0.0.1:9/v1/models"),
        (("run", "--block-size", "0"), "block_size"),
        ((), "run|experiment|sweep|resume|kv|sandboxes"),
        (("walk",), "walk"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(
    argv: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    is_run = argv[:1] == ("run",) and "--num-tasks" not in argv
    code = main([*argv, *SMALL] if is_run else argv)

    said = capsys.readouterr()
    assert code == 2
    assert text in said.err
    assert said.err.count("\n") == 1


def test_a_repeated_run_draws_other_tool_latencies_for_the_same_tasks(tmp_path: Path) -> None:
    code = main(["run", *SMALL, "--repeat", "2", "--out", str(tmp_path)])

    assert code == 0
    first, second = header_of(tmp_path / "repeat-1"), header_of(tmp_path / "repeat-2")
    assert first["workload_digest"] == second["workload_digest"]
    assert first["digest"] != second["digest"]


def test_a_duration_leaves_tasks_out_and_the_run_is_valid(tmp_path: Path) -> None:
    code = main(["run", *SMALL, "--max-concurrency", "1", "--duration", "1", "--out", str(tmp_path)])

    assert code == 0
    assert header_of(tmp_path)["num_tasks"] == 1
    assert len(read_run(tmp_path).tasks) == 1


def test_a_part_of_a_run_can_be_measured_and_the_run_says_which(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load = ("--num-tasks", "12", "--no-live", "--max-concurrency", "4")
    assert main(["run", *load, "--out", str(tmp_path / "whole")]) == 0
    assert "measured from" not in capsys.readouterr().out

    assert main(["run", *load, "--warmup", "5", "--steady-window", "--out", str(tmp_path / "part")]) == 0

    whole, part = read_run(tmp_path / "whole"), read_run(tmp_path / "part")
    assert part.calls == whole.calls, "what is left out of the numbers is recorded all the same"
    assert whole.summary["measured_from_s"] is None
    assert part.summary["measured_from_s"] == 5.0
    assert 5.0 < part.summary["measured_until_s"] < max(task.ended_at for task in part.tasks)
    assert 0 < part.summary["measured_calls"] < len(part.calls)
    assert part.summary["duration"] < whole.summary["duration"]
    assert f"in which {part.summary['measured_calls']} of {len(part.calls)} calls were due" in capsys.readouterr().out
