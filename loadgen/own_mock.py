"""A mock server of our own, started for one run on a free port and stopped after it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from loadgen.config import Settings
from loadgen.target import TargetError
from mockserver import huge_pages
from mockserver.clock import WallClock
from mockserver.node_settings import NODE_SETTINGS
from mockserver.settings import flag_of

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 15.0
_POLL_S = 0.1


def server_flags(settings: Settings) -> list[str]:
    """What a mock server is told so that it is the machine of ``settings``."""
    flags: list[str] = ["--enable-prompt-tokens-details"]
    for name in NODE_SETTINGS:
        value = getattr(settings, name)
        if isinstance(value, bool):
            flags.append(flag_of(name) if value else flag_of(name).replace("--", "--no-", 1))
        elif value is not None:
            flags += [flag_of(name), str(value)]
    return flags


@asynccontextmanager
async def own_mock(
    settings: Settings, *, time_scale: float, log_file: Path, host: str = "127.0.0.1"
) -> AsyncIterator[str]:
    """A running server's URL, at ``host``. Its output goes to ``log_file``."""
    port = _free_port(host)
    command = [
        *(sys.executable, "-m", "mockserver", "--host", host, "--port", str(port)),
        *("--time-scale", repr(time_scale)),
        "--stop-with-stdin",  # however this process ends, the server does not outlive it
        *server_flags(settings),
    ]
    with log_file.open("wb") as log:
        # A session of its own: Ctrl-C is for the load generator, which still has something to ask.
        server = subprocess.Popen(  # noqa: ASYNC220  # before anything is timed
            command,
            env=huge_pages.environ(),
            stdout=log,
            stderr=log,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
    try:
        url = f"http://{host}:{port}"
        await _until_healthy(url, server, log_file)
        yield url
    finally:
        _stop(server)


async def _until_healthy(url: str, server: subprocess.Popen[bytes], log_file: Path) -> None:
    clock = WallClock()
    async with aiohttp.ClientSession() as session:
        due_at = 0.0
        while due_at < _START_TIMEOUT_S:
            with contextlib.suppress(aiohttp.ClientError, OSError):
                async with session.get(f"{url}/health") as response:
                    if response.status == 200:
                        return
            if server.poll() is not None:
                said = log_file.read_text(errors="replace").strip().splitlines()  # noqa: ASYNC240  # nothing else runs
                raise TargetError(f"the mock server did not start: {said[-1] if said else server.returncode}")
            due_at += _POLL_S
            await clock.sleep_until(due_at)
    raise TargetError(f"the mock server is not healthy after {_START_TIMEOUT_S:g} s; see {log_file}")


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    assert server.stdin is not None
    server.stdin.close()
    try:
        server.wait(timeout=_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
