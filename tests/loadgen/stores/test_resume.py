"""Runs that are killed go on where the store has them; stores that are killed are waited for, or said to be down."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loadgen.commands import main
from loadgen.config import Settings
from loadgen.twin import virtual_twin
from tests.loadgen.running import wait_for_calls
from tests.loadgen.stores.servers import Server, free_port, postgres_server, redis_server
from traces.jsonl import Run, read_run

TASKS = ("--num-tasks", "3", "--no-live", "--architecture", "orchestrator")
REAL_TIME = ("--clock", "wall", "--time-scale", "8")
"""The three tasks take about 40 simulated seconds."""
TIMES = {"due_at", "sent_at", "first_token_at", "last_token_at", "scheduled_at", "lag_s", "chunk_at"}
ENGINE = {"num_cached_tokens", "num_preemptions"}
"""A server that starts anew has an empty cache."""


@pytest.fixture(scope="module")
def redis() -> Iterator[Server]:
    with redis_server() as server:
        yield server


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    directory = tmp_path_factory.mktemp("undisturbed")
    assert main(["run", *TASKS, "--out", str(directory)]) == 0
    return read_run(directory)


@contextlib.contextmanager
def running(directory: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A run in a process of its own, for as long as the context is open."""
    process = subprocess.Popen(
        [sys.executable, "-m", "loadgen", "run", *TASKS, *REAL_TIME, *options, "--out", str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def what_was_done(run: Run) -> dict[str, Any]:
    """Everything but times."""
    return {
        "calls": sorted(
            tuple((name, getattr(call, name)) for name in call.__slots__ if name not in TIMES | ENGINE)
            for call in run.calls
        ),
        "tools": sorted((tool.call_id, tool.name, round(tool.ended_at - tool.started_at, 6)) for tool in run.tools),
        "tasks": sorted((task.task_id, task.num_calls, task.num_tool_calls, task.error) for task in run.tasks),
    }


@pytest.mark.wall_clock
@pytest.mark.parametrize("kind", ["sqlite", "redis", "postgres"])
def test_a_run_that_was_killed_goes_on_and_nothing_is_lost_or_done_twice(
    kind: str, tmp_path: Path, undisturbed: Run, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:{tmp_path / 'state.db'}" if kind == "sqlite" else request.getfixturevalue(kind).url
    state = ("--state", url, "--state-name", str(tmp_path))
    with running(tmp_path / "killed", *state) as process:
        wait_for_calls(process, tmp_path / "killed", 20)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    killed = read_run(tmp_path / "killed")

    with running(tmp_path / "resumed", *state, "--resume") as process:
        _, err = process.communicate(timeout=120)

    run = read_run(tmp_path / "resumed")
    assert run.header.complete, err
    assert what_was_done(run) == what_was_done(undisturbed)
    call_by_id = {call.call_id: call for call in run.calls}
    assert all(call_by_id[call.call_id] == call for call in killed.calls), "what was done stays as it was"
    assert re.search(r", [1-9]\d* taken from the store", run.header.notes["state"])
    last_before = max(call.last_token_at or 0.0 for call in killed.calls)
    resumed = [call for call in run.calls if call.call_id not in {one.call_id for one in killed.calls}]
    assert all(call.sent_at >= last_before - 1.0 for call in resumed), "time goes on where it stood"


@pytest.mark.wall_clock
@pytest.mark.parametrize("serve", [redis_server, postgres_server])
def test_a_store_that_is_killed_and_comes_back_is_waited_for(
    serve: Callable[[], contextlib.AbstractContextManager[Server]], tmp_path: Path, undisturbed: Run
) -> None:
    with serve() as server, running(tmp_path, "--state", server.url) as process:
        wait_for_calls(process, tmp_path, 15)
        server.kill()
        time.sleep(0.5)
        server.start()
        _, err = process.communicate(timeout=120)

    run = read_run(tmp_path)
    assert run.header.complete, err
    assert what_was_done(run) == what_was_done(undisturbed)
    assert " 0 retries" not in run.header.notes["state"]


@pytest.mark.wall_clock
def test_a_store_that_stays_away_ends_the_run_with_a_line_and_the_rest_can_be_resumed(
    tmp_path: Path, undisturbed: Run
) -> None:
    with redis_server() as server:
        state = ("--state", server.url, "--state-name", "x", "--state-patience", "0.5")
        with running(tmp_path / "stopped", *state) as process:
            wait_for_calls(process, tmp_path / "stopped", 15)
            server.kill()
            _, err = process.communicate(timeout=60)
        assert process.returncode == 1
        assert err.count("\n") == 1, err
        assert "the state store is down" in err
        assert len(read_run(tmp_path / "stopped").calls) >= 15

        server.start()
        with running(tmp_path / "resumed", *state, "--resume") as process:
            process.communicate(timeout=120)

    assert what_was_done(read_run(tmp_path / "resumed")) == what_was_done(undisturbed)


@pytest.mark.wall_clock
def test_a_store_that_comes_back_without_its_data_is_found_out(tmp_path: Path) -> None:
    with redis_server(keeps_data=False) as server, running(tmp_path, "--state", server.url) as process:
        wait_for_calls(process, tmp_path, 15)
        server.kill()
        server.start()
        _, err = process.communicate(timeout=60)

    assert process.returncode == 1
    assert err.count("\n") == 1, err
    assert "the store has lost steps" in err


def test_in_virtual_time_state_changes_no_record(tmp_path: Path, undisturbed: Run) -> None:
    for url in ("memory:", f"sqlite:{tmp_path / 'state.db'}"):
        assert main(["run", *TASKS, "--state", url, "--out", str(tmp_path / "run")]) == 0
        run = read_run(tmp_path / "run")
        assert run.header.digest == undisturbed.header.digest
        assert "a step loads" in run.header.notes["state"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--resume",), "--state URL"),
        (("--state", "mysql://x"), "got 'mysql://x'"),
        (("--state", f"redis://127.0.0.1:{free_port()}/0"), "needs real time: --clock wall"),
        (("--state", f"redis://127.0.0.1:{free_port()}/0", "--clock", "wall"), "redis://127.0.0.1"),
        (("--state", f"postgresql://a:b@127.0.0.1:{free_port()}/x", "--clock", "wall"), "postgresql://a:***@127.0.0.1"),
        (("--state", "sqlite:/no/such/folder/x.db"), "unable to open"),
        (("--state", "memory:", "--workers", "2", "--target", "http"), "leave out --state or --workers"),
        (("--state-patience", "-1"), "state_patience must be at least 0"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_2(
    options: tuple[str, ...], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "wall" in options:
        pytest.importorskip("redis" if "redis" in options[1] else "asyncpg")

    code = main(["run", *TASKS, *options, "--out", str(tmp_path)])

    said = capsys.readouterr()
    assert code == 2
    assert text in said.err
    assert said.err.count("\n") == 1


def test_only_the_same_run_can_be_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = ("--state", f"sqlite:{tmp_path / 'state.db'}", "--state-name", "x", "--out", str(tmp_path / "run"))
    assert main(["run", *TASKS, *state]) == 0
    capsys.readouterr()

    assert main(["run", *TASKS, *state, "--resume", "--seed", "7"]) == 2
    assert "run 'x' cannot be resumed: it differs in workload, seed" in capsys.readouterr().err
    assert main(["run", *TASKS, "--state", state[1], "--state-name", "y", "--resume", "--out", str(tmp_path)]) == 2
    assert "the store has no run 'y'" in capsys.readouterr().err


def test_the_virtual_twin_of_a_run_leaves_its_state_alone() -> None:
    twin = virtual_twin(Settings(target="http", state="redis://127.0.0.1:1/0", resume=True))

    assert (twin.state, twin.resume) == (None, False)
