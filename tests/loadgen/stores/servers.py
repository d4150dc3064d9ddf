"""Redis and PostgreSQL as processes of our own: started, killed and started again on the same data."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

_STARTS_WITHIN_S = 30.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(eq=False, slots=True)
class Server:
    """A database server on a port of its own."""

    url: str
    port: int
    command: Sequence[str]
    folder: Path
    user: str | None = None
    process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        """Start it, and wait until it says that it takes connections; it may have to recover first."""
        log_file = self.folder / "server.log"
        with log_file.open("wb") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, start_new_session=True, **run_as(self.user)
            )
        deadline = time.monotonic() + _STARTS_WITHIN_S
        while "ready to accept connections" not in log_file.read_text().lower():
            assert self.process.poll() is None, log_file.read_text()
            assert time.monotonic() < deadline, f"{self.command[0]} did not start"
            time.sleep(0.05)

    def kill(self) -> None:
        """kill -9, all of its processes."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(timeout=30)


def run_as(user: str | None) -> dict[str, Any]:
    """What subprocess takes to run as ``user``."""
    return {} if user is None else {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


@contextlib.contextmanager
def redis_server(*, keeps_data: bool = True) -> Iterator[Server]:
    """Redis, with an append-only file or without."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed")
    pytest.importorskip("redis", reason="redis, the client, is not installed")
    port = free_port()
    with _folder() as folder:
        append_only = "yes" if keeps_data else "no"
        # Redis by default may write seconds after it has answered, while an fsync is under way: a kill loses that.
        durable = ("--appendonly", append_only, "--appendfsync", "always")
        options = ("--bind", "127.0.0.1", "--dir", str(folder), "--save", "", *durable)
        yield from _running(
            Server(
                url=f"redis://127.0.0.1:{port}/0",
                port=port,
                command=(program, "--port", str(port), *options),
                folder=folder,
            )
        )


@contextlib.contextmanager
def postgres_server() -> Iterator[Server]:
    """PostgreSQL; it refuses to run as root, so somebody else runs it then."""
    programs = [
        shutil.which("initdb"),
        *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)),
    ]
    initdb = next((program for program in programs if program), None)
    if initdb is None:
        pytest.skip("PostgreSQL's server is not installed")
    pytest.importorskip("asyncpg", reason="asyncpg is not installed")
    binaries = Path(initdb).resolve().parent
    port = free_port()
    with _folder() as folder:
        user = _somebody_else() if os.geteuid() == 0 else None
        if user is not None:
            shutil.chown(folder, user, pwd.getpwnam(user).pw_gid)
        data = folder / "data"
        subprocess.run(
            [str(binaries / "initdb"), "-D", str(data), "-U", "replayrig", "-A", "trust", "-E", "UTF8", "--no-sync"],
            check=True,
            capture_output=True,
            cwd=folder,
            **run_as(user),
        )
        options = ("-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={folder}")
        yield from _running(
            Server(
                url=f"postgresql://replayrig@127.0.0.1:{port}/postgres",
                port=port,
                command=(str(binaries / "postgres"), "-D", str(data), "-p", str(port), *options),
                folder=folder,
                user=user,
            )
        )


def _somebody_else() -> str:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    pytest.skip("there is nobody but root to run PostgreSQL")


def _running(server: Server) -> Iterator[Server]:
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder that another user can reach, as pytest's own is not."""
    folder = Path(tempfile.mkdtemp(prefix="replayrig-server-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
