"""Runs that are killed go on in their own directories, and in the end nothing tells them from undisturbed ones."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from loadgen.commands import main
from tests.loadgen.fakes import make_call, make_task
from tests.loadgen.running import wait_for_calls
from tests.loadgen.stores.servers import free_port
from traces.jsonl import Run, RunLock, TraceError, read_run, rewrite_records, write_trajectories
from traces.trajectory import Turn

TIMES = {"due_at", "sent_at", "first_token_at", "last_token_at", "scheduled_at", "lag_s", "chunk_at"}
NUM_KILLS = 20


def write_workload(path: Path, *, num_tasks: int, num_turns: int) -> str:
    """Tasks with tools in two domains, every third of them with two calls at once."""
    write_trajectories(
        path,
        [
            make_task(
                f"t{task}",
                *(
                    Turn(
                        content=f"step {turn} ",
                        tool_calls=tuple(
                            make_call(f"{turn}-{k}", ("mail", "files")[(turn + k) % 2], latency_s=0.1)
                            for k in range(1 + (turn % 3 == 0))
                        ),
                    )
                    for turn in range(num_turns)
                ),
                Turn(content="done"),
            )
            for task in range(num_tasks)
        ],
    )
    return str(path)


def without_times(run: Run) -> dict[str, Any]:
    """Everything but times, in an order that does not depend on them."""
    return {
        "calls": sorted(
            tuple((name, getattr(call, name)) for name in call.__slots__ if name not in TIMES) for call in run.calls
        ),
        "tools": sorted((tool.task_id, tool.agent_id, tool.call_id, tool.name, tool.is_error) for tool in run.tools),
        "tasks": sorted(
            (task.task_id, task.num_calls, task.num_tool_calls, task.num_subagents, task.error) for task in run.tasks
        ),
    }


def broken_off(directory: Path, at: float) -> None:
    """Make of a run that has ended what a kill at ``at`` would have left of it, half a line included."""
    run = read_run(directory)
    # Tools that one call asked for are recorded when the last of them has answered.
    at_work = {tool.call_id for tool in run.tools if tool.ended_at > at}
    rewrite_records(
        directory,
        calls=[call for call in run.calls if call.last_token_at is not None and call.last_token_at <= at],
        tools=[tool for tool in run.tools if tool.call_id not in at_work],
        tasks=[task for task in run.tasks if task.ended_at <= at],
        server=[sample for sample in run.samples if sample.at <= at],
    )
    for name in ("calls", "tools", "tasks", "server"):
        with (directory / f"{name}.jsonl").open("ab") as file:
            file.write(b'{"call_id":"t0/rea')
    header = orjson.loads((directory / "run.json").read_bytes())
    (directory / "run.json").write_bytes(orjson.dumps(header | {"complete": False}))
    (directory / "summary.json").unlink()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A mock in a process of its own. It keeps no cache: a call that was cut off leaves nothing to hit."""
    port = free_port()
    options = ("--host", "127.0.0.1", "--port", str(port), "--time-scale", "4", "--no-enable-prefix-caching")
    with (tmp_path_factory.mktemp("server") / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "mockserver", *options], stdout=log, stderr=log)
        yield f"http://127.0.0.1:{port}"
        process.terminate()
        process.wait()


def num_records(directory: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in directory.glob("*.jsonl") if path.name != "server.jsonl")


def killed(command: list[str], directory: Path, rng: random.Random) -> bool:
    """Run ``command`` and kill it at some moment after it began to record; False where it had ended by then."""
    before = num_records(directory)
    process = subprocess.Popen([sys.executable, "-m", "loadgen", *command], stdout=subprocess.PIPE, text=True)
    is_early = rng.random() < 0.1
    num_wanted = 0 if is_early else rng.randint(1, 12)
    deadline = time.monotonic() + 60
    while num_records(directory) < before + num_wanted and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    time.sleep(rng.uniform(0.0, 0.5 if is_early else 0.05))
    is_over = process.poll() is not None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return not is_over


@pytest.mark.wall_clock
def test_a_run_that_is_killed_twenty_times_ends_as_if_it_never_had_been(tmp_path: Path, server: str) -> None:
    rng = random.Random("kills")
    workload = write_workload(tmp_path / "w.jsonl", num_tasks=4, num_turns=40)
    target = ["--base-url", server, "--ready-check-timeout-sec", "30"]
    common = ["run", "--workload", workload, *target, "--no-live", "--architecture", "orchestrator"]
    common += ["--tool-latency", "recorded", "--max-concurrency", "3"]
    assert main([*common, "--out", str(tmp_path / "undisturbed")]) in (0, 1)
    undisturbed = read_run(tmp_path / "undisturbed")
    directory = tmp_path / "killed"

    assert killed([*common, "--out", str(directory)], directory, rng)
    finished: dict[str, Any] = {}
    for _ in range(NUM_KILLS - 1):
        finished |= {call.call_id: call for call in read_run(directory).calls}
        assert killed(["resume", str(directory), "--no-live"], directory, rng)
    code = main(["resume", str(directory), "--no-live"])

    run = read_run(directory)
    assert code in (0, 1)  # a busy machine may be late
    assert run.header.complete
    assert without_times(run) == without_times(undisturbed)
    assert {call.call_id: call for call in run.calls if call.call_id in finished} == finished
    assert run.header.notes["resumed"].count(" s") >= NUM_KILLS / 2
    assert run.summary["completed"] == len(undisturbed.calls)


ENGINE = {"num_cached_tokens", "num_preemptions"}
"""An engine that starts anew has an empty cache."""


def of_the_client(run: Run) -> dict[str, Any]:
    facts = without_times(run)
    facts["calls"] = [tuple(one for one in call if one[0] not in ENGINE) for call in facts["calls"]]
    return facts


@pytest.mark.parametrize(
    "options",
    [
        ("--architecture", "hierarchical", "--tool-workers", "1", "--sandboxes"),
        ("--architecture", "recorded", "--request-rate", "0.5"),
        ("--architecture", "group_chat", "--max-concurrency", "2", "--duration", "8"),
        ("--state", "memory:", "--guided-decoding"),
    ],
)
def test_wherever_a_run_was_broken_off_it_goes_on_there(options: tuple[str, ...], tmp_path: Path) -> None:
    workload = write_workload(tmp_path / "w.jsonl", num_tasks=5, num_turns=6)
    directory = tmp_path / "run"
    command = ["run", "--workload", workload, "--no-live", *options, "--out", str(directory)]
    assert main(command) == 0
    undisturbed = read_run(directory)
    end = max(task.ended_at for task in undisturbed.tasks)

    for share in (0.0, 0.1, 0.35, 0.5, 0.8, 0.99):
        broken_off(directory, end * share)
        before = read_run(directory)
        assert main(["resume", str(directory), "--no-live"]) == 0

        run = read_run(directory)
        assert of_the_client(run) == of_the_client(undisturbed)
        assert run.calls[: len(before.calls)] == before.calls
        assert all(call.sent_at >= before.calls[-1].sent_at for call in run.calls[len(before.calls) :] if before.calls)
        assert run.header.num_tasks == undisturbed.header.num_tasks
        assert run.header.notes["overhead"] == undisturbed.header.notes["overhead"]


def test_tools_that_were_recorded_in_part_are_recorded_in_full_and_once(tmp_path: Path) -> None:
    workload = write_workload(tmp_path / "w.jsonl", num_tasks=1, num_turns=1)
    assert main(["run", "--workload", workload, "--no-live", "--out", str(tmp_path)]) == 0
    whole = read_run(tmp_path)
    assert len(whole.tools) == 2
    broken_off(tmp_path, 1e9)
    rewrite_records(tmp_path, calls=whole.calls[:1], tools=whole.tools[:1], tasks=[])

    assert main(["resume", str(tmp_path), "--no-live"]) == 0

    assert of_the_client(read_run(tmp_path)) == of_the_client(whole)


def test_calls_that_failed_stay_failed_unless_they_are_to_be_tried_again(tmp_path: Path) -> None:
    workload = write_workload(tmp_path / "w.jsonl", num_tasks=3, num_turns=3)
    assert main(["run", "--workload", workload, "--no-live", "--out", str(tmp_path)]) == 0
    undisturbed = read_run(tmp_path)
    failed = [replace(call, error="HTTP 500") for call in undisturbed.calls if call.call_id == "t1/react#1"]
    others = [call for call in undisturbed.calls if call.task_id != "t1" or call.index == 0]
    tasks = [replace(task, error="HTTP 500") if task.task_id == "t1" else task for task in undisturbed.tasks]
    tools = [tool for tool in undisturbed.tools if tool.task_id != "t1" or tool.call_id == "t1/react#0"]
    broken_off(tmp_path, 1e9)
    rewrite_records(tmp_path, calls=[*others, *failed], tasks=tasks, tools=tools)

    assert main(["resume", str(tmp_path), "--no-live"]) == 1
    assert len(read_run(tmp_path).calls) == len(others) + 1
    assert main(["resume", str(tmp_path), "--no-live", "--retry-failed"]) == 0

    assert of_the_client(read_run(tmp_path)) == of_the_client(undisturbed)


def test_a_complete_run_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--num-tasks", "1", "--no-live", "--out", str(tmp_path)]) == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    assert main(["resume", str(tmp_path)]) == 0

    assert "the run is complete, there is nothing to resume" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_what_cannot_be_resumed_is_one_line_and_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workload = write_workload(tmp_path / "w.jsonl", num_tasks=2, num_turns=2)
    run = tmp_path / "runs" / "one"
    assert main(["run", "--workload", workload, "--no-live", "--out", str(run)]) == 0
    broken_off(run, 0.5)
    capsys.readouterr()

    def said(*argv: str) -> str:
        assert main(["resume", *argv]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        return err

    assert "holds no run" in said(str(tmp_path))
    assert "holds no run" in said(str(tmp_path / "nowhere"))
    (run.parent / ".plan.json").write_text('{"command": "run"}')
    assert ".plan.json: not what a load generator wrote" in said(str(run.parent))
    assert "--seed" in said(str(run), "--seed", "7")
    lock = RunLock(run)
    assert "another process writes to this run" in said(str(run), "--no-live")
    lock.close()
    header = orjson.loads((run / "run.json").read_bytes())
    header["settings"]["history"] = "live"
    (run / "run.json").write_bytes(orjson.dumps(header))
    assert "histories of what a server said are not in a run's records" in said(str(run))
    header["settings"]["history"] = "recorded"
    (run / "run.json").write_bytes(orjson.dumps(header))
    write_workload(tmp_path / "w.jsonl", num_tasks=2, num_turns=3)
    assert "the workload w.jsonl is not the one that it had" in said(str(run))
    os.unlink(workload)
    assert "w.jsonl" in said(str(run))


@pytest.mark.wall_clock
def test_workers_whose_employer_was_killed_stop_and_are_resumed(tmp_path: Path, server: str) -> None:
    workload = write_workload(tmp_path / "w.jsonl", num_tasks=4, num_turns=20)
    common = ["run", "--workload", workload, "--base-url", server, "--no-live", "--tool-latency", "recorded"]
    common += ["--ready-check-timeout-sec", "30"]
    assert main([*common, "--out", str(tmp_path / "one")]) in (0, 1)
    directory = tmp_path / "two"
    command = [sys.executable, "-m", "loadgen", *common, "--workers", "2", "--out", str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
    workers = [directory / f"worker-{number}" for number in range(2)]
    for worker in workers:
        wait_for_calls(process, worker)
    process.kill()
    process.wait()
    locks = [wait_for_lock(worker) for worker in workers]
    killed_at = [len(read_run(worker).calls) for worker in workers]
    for lock in locks:
        lock.close()

    assert main(["resume", str(directory / "worker-1")]) == 2, "only a part"
    assert main(["resume", str(directory), "--no-live"]) in (0, 1)

    run = read_run(directory)
    assert run.header.complete
    assert sum(killed_at) < len(run.calls)
    assert without_times(run) == without_times(read_run(tmp_path / "one"))


def wait_for_lock(directory: Path) -> RunLock:
    """Once nobody writes there any more."""
    for _ in range(500):
        try:
            return RunLock(directory)
        except TraceError:
            time.sleep(0.02)
    raise AssertionError("somebody still writes")


def test_an_experiment_keeps_what_is_complete_goes_on_with_one_run_and_begins_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = write_workload(tmp_path / "w.jsonl", num_tasks=2, num_turns=3)
    directory = tmp_path / "experiment"
    assert main(["experiment", "--workload", workload, "--no-live", "--out", str(directory)]) == 0
    names = ("react-nocache", "react-cache", "orchestrator-nocache", "orchestrator-cache")
    whole = {name: read_run(directory / name) for name in names}
    broken_off(directory / "react-cache", 0.6)
    for name in names[2:]:
        shutil.rmtree(directory / name)
    capsys.readouterr()

    assert main(["resume", str(directory), "--no-live"]) == 0

    out = capsys.readouterr().out
    assert out.count("the run is complete, there is nothing to resume") == 1
    for name in names:
        run = read_run(directory / name)
        assert of_the_client(run) == of_the_client(whole[name])
        assert ("resumed" in run.header.notes) == (name == "react-cache")
    assert read_run(directory / names[3]).header.digest == whole[names[3]].header.digest


def test_a_sweep_goes_on_at_the_load_that_it_stood_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workload = write_workload(tmp_path / "w.jsonl", num_tasks=4, num_turns=2)
    directory = tmp_path / "sweep"
    sweep = ["sweep", "--workload", workload, "--no-live", "--sweep-values", "1", "2", "4", "--goodput", "e2el:5000"]
    assert main([*sweep, "--out", str(directory)]) == 0
    verdict = capsys.readouterr().out.splitlines()[-1]
    broken_off(directory / "max-concurrency-2", 0.6)
    shutil.rmtree(directory / "max-concurrency-4")

    assert main(["resume", str(directory), "--no-live"]) == 0

    assert capsys.readouterr().out.splitlines()[-1] == verdict
    assert [read_run(path).header.complete for path in sorted(directory.glob("max*"))] == [True] * 3


def test_repeats_that_were_not_begun_are_begun(tmp_path: Path) -> None:
    workload = write_workload(tmp_path / "w.jsonl", num_tasks=2, num_turns=2)
    directory = tmp_path / "runs"
    assert main(["run", "--workload", workload, "--no-live", "--repeat", "3", "--out", str(directory)]) == 0
    digest = read_run(directory / "repeat-3").header.digest
    broken_off(directory / "repeat-2", 0.5)
    shutil.rmtree(directory / "repeat-3")

    assert main(["resume", str(directory), "--no-live"]) == 0

    assert read_run(directory / "repeat-2").header.complete
    assert read_run(directory / "repeat-3").header.digest == digest
