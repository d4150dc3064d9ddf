"""Runs on a real Ray of this machine: the same totals as by processes, and what is lost is told."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadgen.commands import main
from tests.loadgen.running import wait_for_calls
from tests.loadgen.stores.servers import free_port
from tests.loadgen.test_resume import without_times, write_workload
from traces.jsonl import read_run

# Ray turns its tokens on where one lies in the home directory, but not for clients that are told an address.
ENVIRONMENT = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_DISABLE_MEMORY_MONITOR": "1"}

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """The address of a Ray with two CPUs, and the process that keeps it up."""
    port, folder = free_port(), tmp_path_factory.mktemp("ray")
    command = [str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", "--num-cpus=2"]
    command += ["--node-ip-address=127.0.0.1", f"--port={port}", "--include-dashboard=false"]
    command += ["--disable-usage-stats", "--object-store-memory=80000000", f"--temp-dir={folder / 'r'}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=ENVIRONMENT, start_new_session=True)
        try:
            yield f"127.0.0.1:{port}", process.pid
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=20)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "loadgen", "run", "--no-live", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200, env=ENVIRONMENT)


@needs_ray
@pytest.mark.wall_clock
def test_two_workers_on_a_cluster_give_the_same_totals_as_one_process(tmp_path: Path, cluster: tuple[str, int]) -> None:
    workload = write_workload(tmp_path / "w.jsonl", num_tasks=5, num_turns=4)
    common = ["--workload", workload, "--target", "http", "--time-scale", "4", "--no-enable-prefix-caching"]
    address, _ = cluster
    assert main(["run", "--no-live", *common, "--out", str(tmp_path / "one")]) in (0, 1)

    done = run(*common, "--workers", "2", "--ray", address, "--out", str(tmp_path / "ray"))

    assert done.returncode in (0, 1), done.stderr
    one, two = read_run(tmp_path / "one"), read_run(tmp_path / "ray")
    assert two.header.complete
    assert two.header.notes["ray"].startswith("2 workers on a Ray cluster, their clocks within ")
    assert without_times(two) == without_times(one)
    for key in ("completed", "failed", "total_input_tokens", "total_output_tokens", "num_tasks_succeeded"):
        assert two.summary[key] == one.summary[key]
    first_sent = [min(call.sent_at for call in two.calls if call.task_id == task) for task in ("t0", "t1")]
    assert abs(first_sent[0] - first_sent[1]) < 1.0, "both workers start at the run's start"
    assert {call.task_id for call in read_run(tmp_path / "ray" / "worker-1").calls} == {"t1", "t3"}


@needs_ray
@pytest.mark.wall_clock
def test_a_worker_that_is_lost_is_told_what_it_recorded_is_kept_and_the_rest_can_be_resumed(
    tmp_path: Path, cluster: tuple[str, int]
) -> None:
    address, keeper = cluster
    workload = write_workload(tmp_path / "w.jsonl", num_tasks=4, num_turns=25)
    directory = tmp_path / "run"
    common = ["--workload", workload, "--target", "http", "--time-scale", "4", "--no-enable-prefix-caching"]
    options = [*common, "--workers", "2", "--ray", address, "--out", str(directory)]
    command = [sys.executable, "-m", "loadgen", "run", "--no-live", *options]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    wait_for_calls(running, directory / "worker-1")

    os.kill(worker_under(keeper, number=1), signal.SIGKILL)
    out, err = running.communicate(timeout=100)

    assert running.returncode == 1, err
    assert "1 of 2 workers were lost: number 1 (killed by SIGKILL)" in " ".join(out.split())
    lost = read_run(directory)
    assert not lost.header.complete
    assert 0 < len([call for call in lost.calls if call.task_id in ("t1", "t3")]) < 52
    assert len([call for call in lost.calls if call.task_id in ("t0", "t2")]) == 52

    command = [sys.executable, "-m", "loadgen", "resume", str(directory), "--no-live"]
    resumed = subprocess.run(command, capture_output=True, check=False, env=ENVIRONMENT)
    assert resumed.returncode in (0, 1), resumed.stderr
    whole = read_run(directory)
    assert whole.header.complete, whole.header.invalid_reasons
    assert len(whole.calls) == len({call.call_id for call in whole.calls}) == 104
    assert {call.call_id for call in lost.calls} <= {call.call_id for call in whole.calls}


@needs_ray
def test_a_cluster_that_is_not_there_is_one_line() -> None:
    done = run("--target", "http", "--ray", f"127.0.0.1:{free_port()}", "--num-tasks", "1", "--time-scale", "4")

    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("loadgen: the Ray cluster at 127.0.0.1:")


def worker_under(keeper: int, *, number: int) -> int:
    """The worker process with that number on the cluster that ``keeper`` keeps up."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            pid = int(entry.name)
            if b"loadgen.worker" in (entry / "cmdline").read_bytes() and keeper in ancestors(pid):
                opened = [os.readlink(one) for one in (entry / "fd").iterdir()]
                calls = next(Path(one) for one in opened if one.endswith("/calls.jsonl"))
                task_id = read_run(calls.parent).calls[0].task_id
                found.append((int(task_id[1:]) % 2, pid))
    return dict(found)[number]


def ancestors(pid: int) -> list[int]:
    found = []
    while pid > 1:
        found.append(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return found
