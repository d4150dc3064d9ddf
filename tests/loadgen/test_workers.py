"""Runs by several processes: the same totals as one, and a lost worker is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from loadgen.commands import main
from loadgen.shard import Shard
from tests.loadgen.running import wait_for_calls
from tests.loadgen.test_own_mock import facts, write_workload
from traces.jsonl import read_run


def test_shards_are_the_whole_and_nothing_twice() -> None:
    whole: Sequence[int] = tuple(range(11))
    shards = [Shard(number=number, num_shards=3) for number in range(3)]

    assert sorted(one for shard in shards for one in shard.of(whole)) == list(whole)
    assert [shard.share(8) for shard in shards] == [3, 3, 2]
    assert [shard.share(2) for shard in shards] == [1, 1, 1]
    assert Shard().of(whole) == whole
    assert Shard().share(None) is None


@pytest.mark.wall_clock
def test_two_workers_give_the_same_totals_as_one(tmp_path: Path) -> None:
    common = ["run", "--workload", write_workload(tmp_path / "tasks.jsonl", num_tasks=5), "--no-live"]
    common += ["--target", "http", "--time-scale", "4"]

    main([*common, "--out", str(tmp_path / "one")])
    main([*common, "--workers", "2", "--out", str(tmp_path / "two")])

    one, two = read_run(tmp_path / "one"), read_run(tmp_path / "two")
    assert facts(two) == facts(one)
    assert len(two.tools) == len(one.tools)
    assert two.header.num_tasks == len(two.tasks) == 5
    assert two.header.complete
    assert two.header.max_num_seqs == one.header.max_num_seqs
    assert two.header.settings["workers"] == 2
    for key in ("completed", "failed", "total_input_tokens", "total_output_tokens"):
        assert two.summary[key] == one.summary[key]
    assert {call.agent_id for call in read_run(tmp_path / "two" / "worker-1").calls} == {"t1/react", "t3/react"}


@pytest.mark.wall_clock
def test_a_worker_that_is_killed_is_told_and_its_records_are_kept(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    command = [sys.executable, "-m", "loadgen", "run", "--num-tasks", "4", "--no-live", "--target", "http"]
    running = subprocess.Popen(
        [*command, "--time-scale", "2", "--workers", "2", "--out", str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_calls(running, directory / "worker-1")

    os.kill(_worker_of(running.pid, directory / "worker-1"), signal.SIGKILL)
    running.send_signal(signal.SIGINT)  # the other worker need not go on for the test
    _, err = running.communicate(timeout=60)

    assert running.returncode == 130, err
    run = read_run(directory)
    assert not run.header.complete
    assert any(call.task_id in ("task-001", "task-003") for call in run.calls)


def _worker_of(parent_pid: int, directory: Path) -> int:
    """The child of ``parent_pid`` that has a file of ``directory`` open."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) != parent_pid:
                continue
            opened = [os.readlink(one) for one in (entry / "fd").iterdir()]
        except OSError:
            continue
        if str(directory / "calls.jsonl") in opened:
            return int(entry.name)
    raise AssertionError("no such worker")


@pytest.mark.wall_clock
def test_what_an_older_run_left_is_no_part_of_the_new_one(tmp_path: Path) -> None:
    workload = write_workload(tmp_path / "w.jsonl", num_tasks=2)
    old = tmp_path / "r" / "worker-5"
    old.mkdir(parents=True)
    for name in ("run.json", "calls.jsonl"):
        (old / name).write_text("{}\n")

    code = main(
        [
            *("run", "--workload", workload, "--no-live", "--target", "http", "--time-scale", "5"),
            *("--workers", "2", "--out", str(tmp_path / "r")),
        ]
    )

    assert code in (0, 1)
    assert list(old.iterdir()) == []
    assert read_run(tmp_path / "r").header.complete
