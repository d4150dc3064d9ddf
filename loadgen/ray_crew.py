"""Workers on a Ray cluster: the same worker processes as on this machine, each started by an actor where Ray puts it.

The actor carries what goes in and out. In: the job, a copy of the workload, the instant of the start by the clock of
its own machine. Out: what the worker has recorded, about a second later, so that a worker that is lost with its machine
leaves that much.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadgen.crew import complaint_of
from loadgen.resume import has_run, take_up
from loadgen.worker import READY
from mockserver import huge_pages
from mockserver.clock import WallClock, real_seconds
from traces.jsonl import PAGE_NAMES, RECORD_NAMES

UNTIL_START_S = 2.0
_NUM_CLOCK_PROBES = 15
_NEWS_PERIOD_S = 1.0
_ROOM_TIMEOUT_S = 60.0
_PATIENCE_S = 20.0
_CONNECT_TIMEOUT_S = 10.0

News = tuple[dict[str, bytes], dict[str, bytes], "int | None", bytes]
"""What the record files have grown by, the other files, and where the process has ended its status and complaint."""


class RayError(OSError):
    """A Ray cluster cannot be used as it is told to; the text is one line for who named it."""


class Post:
    """A worker's place on the cluster: the actor, which has a process do the work."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="replayrig-"))
        self._process: subprocess.Popen[bytes] | None = None

    def take(self, job: dict[str, Any], files: Mapping[str, bytes]) -> bool:
        """Start a worker process on ``job`` in a directory that holds ``files``; whether it got ready."""
        for name, content in files.items():
            path = self._directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        run = self._directory / "run"
        run.mkdir(exist_ok=True)
        workload = next((self._directory / "workload").glob("*"), None)
        job |= {"directory": str(run), "workload_path": None if workload is None else str(workload)}
        with (self._directory / "stderr").open("wb") as stderr:
            self._process = subprocess.Popen(
                huge_pages.command("loadgen.worker"),
                env=huge_pages.environ(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        assert self._process.stdout is not None, "asked for"
        self._tell(json.dumps(job))
        return self._process.stdout.readline() == READY

    def clock(self) -> float:
        """The time here."""
        return real_seconds()

    def start(self, at: float) -> None:
        """Tell the worker when the run starts, by the clock here."""
        self._tell(repr(at))

    def news(self, known_bytes: Mapping[str, int]) -> News:
        """What has happened since the record files were as long as ``known_bytes`` says."""
        assert self._process is not None, "it has a job"
        status = self._process.poll()  # first: what is read below is then all there is
        run = self._directory / "run"
        grown = {name: _from(run / name, known_bytes.get(name, 0)) for name in RECORD_NAMES}
        pages = {name: content for name in PAGE_NAMES if (content := _from(run / name, 0))}
        return grown, pages, status, (self._directory / "stderr").read_bytes()[-2000:]

    def interrupt(self) -> None:
        """As Ctrl-C does."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def leave(self) -> None:
        """Everything has been fetched."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _tell(self, line: str) -> None:
        assert self._process is not None, "it has a job"
        assert self._process.stdin is not None, "asked for"
        with contextlib.suppress(BrokenPipeError):  # it is gone, which its status will tell
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()


def _from(path: Path, offset: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read()
    except FileNotFoundError:
        return b""


@dataclass(eq=False, slots=True, kw_only=True)
class RayWorker:
    """A worker of ``loadgen.crew`` whose post is an actor."""

    directory: Path
    post: Any
    """The actor's handle."""
    workload: Mapping[str, bytes]
    """The workload as a file to send along; empty where it is an embedded one."""
    lost: type[Exception]
    """What Ray raises where an actor is gone."""
    uncertainty_s: float = 0.0
    """How far the two machines' clocks may be apart after they were compared."""
    _offset_s: float = 0.0
    _known_bytes: dict[str, int] = field(default_factory=dict)
    _is_at_work: bool = False

    async def get_ready(self, job: Mapping[str, Any]) -> bool:
        """Send the job, and what the worker had done where the run is resumed; compare the clocks."""
        files = {f"workload/{name}": content for name, content in self.workload.items()}
        self.directory.mkdir(parents=True, exist_ok=True)
        if job.get("resumes_at") is not None and has_run(self.directory):
            take_up(self.directory, retry_failed=job["retry_failed"]).release()
            for name in (*RECORD_NAMES, "run.json"):
                files[f"run/{name}"] = content = _from(self.directory / name, 0)
                self._known_bytes[name] = len(content)
        try:
            is_ready = await self.post.take.remote({**job, "retry_failed": False}, files)
            self._is_at_work = True
            if is_ready:
                await self._compare_clocks()
        except self.lost:
            return False  # ``ended`` says it
        return bool(is_ready)

    async def start(self, at: float) -> None:
        """``at``, by the clock of the other machine."""
        with contextlib.suppress(self.lost):
            await self.post.start.remote(at + self._offset_s)

    async def ended(self) -> str | None:
        """Fetch what is recorded, again and again, until there is no more."""
        clock = WallClock()
        while True:
            try:
                status, complaint = await self._fetch()
            except self.lost as error:
                self._is_at_work = False
                lines = str(error).strip().splitlines()
                return f"its actor is gone: {lines[0]}" if lines else "its actor is gone"
            if status is not None:
                self._is_at_work = False
                return complaint_of(status, complaint)
            await clock.sleep_until(clock.now() + _NEWS_PERIOD_S)

    async def dismiss(self) -> None:
        """Interrupt it, which Ctrl-C here does not, and fetch what it had recorded."""
        clock = WallClock()
        with contextlib.suppress(self.lost):
            if self._is_at_work:
                await self.post.interrupt.remote()
            while self._is_at_work and clock.now() < _PATIENCE_S:
                status, _ = await self._fetch()
                self._is_at_work = status is None
                await clock.sleep_until(clock.now() + 0.1)
            await self.post.leave.remote()

    async def _compare_clocks(self) -> None:
        """From the answer that came fastest; half its way is what the two may still be apart."""
        best_s = float("inf")
        for _ in range(_NUM_CLOCK_PROBES):
            asked_at = real_seconds()
            there = await self.post.clock.remote()
            way_s = real_seconds() - asked_at
            if way_s < best_s:
                best_s, self._offset_s = way_s, there - (asked_at + way_s / 2)
        self.uncertainty_s = best_s / 2

    async def _fetch(self) -> tuple[int | None, bytes]:
        grown, pages, status, complaint = await self.post.news.remote(self._known_bytes)
        for name, content in grown.items():
            with (self.directory / name).open("ab") as file:
                file.write(content)
            self._known_bytes[name] = self._known_bytes.get(name, 0) + len(content)
        for name, content in pages.items():
            (self.directory / name).write_bytes(content)
        return status, complaint


@dataclass(frozen=True, slots=True, kw_only=True)
class RayCrew:
    """The workers of one run on a cluster."""

    workers: tuple[RayWorker, ...]
    host: str
    """This machine, as the cluster knows it."""

    def note(self) -> str:
        """One line for the run's header."""
        apart_s = max(worker.uncertainty_s for worker in self.workers)
        return (
            f"{len(self.workers)} workers on a Ray cluster, their clocks within {apart_s * 1000:.2f} ms of each other"
        )


@asynccontextmanager
async def ray_crew(address: str, directories: Sequence[Path], workload: Mapping[str, bytes]) -> AsyncIterator[RayCrew]:
    """An actor for each of ``directories`` on the cluster at ``address``. Raises RayError where that cannot be."""
    ray = _import_ray()
    _check_that_somebody_listens(address)
    try:
        own = {"num_cpus": len(directories)} if address == "local" else {}
        ray.init(address=address, log_to_driver=False, logging_level="error", **own)
    except Exception as error:  # Ray has no one class for it
        raise RayError(f"the Ray cluster at {address} cannot be reached: {' '.join(str(error).split())}") from None
    try:
        actor = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(Post)
        posts = [actor.remote() for _ in directories]
        _, waiting = ray.wait([post.clock.remote() for post in posts], num_returns=len(posts), timeout=_ROOM_TIMEOUT_S)
        if waiting:
            raise RayError(f"the Ray cluster at {address} has no room for {len(waiting)} of {len(posts)} workers")
        yield RayCrew(
            workers=tuple(
                RayWorker(directory=directory, post=post, workload=workload, lost=ray.exceptions.RayError)
                for directory, post in zip(directories, posts, strict=True)
            ),
            host=ray.util.get_node_ip_address(),
        )
    finally:
        ray.shutdown()


def _check_that_somebody_listens(address: str) -> None:
    """Ray itself asks for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return  # auto, local: Ray knows where
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_TIMEOUT_S):
            pass
    except OSError as error:
        raise RayError(f"the Ray cluster at {address} cannot be reached: {error.strerror or error}") from None


def _import_ray() -> Any:
    try:
        import ray  # noqa: PLC0415  (an extra: loaded when it is asked for)
        import ray.exceptions  # noqa: PLC0415
        import ray.util  # noqa: PLC0415
    except ImportError:
        raise RayError("workers on a Ray cluster need Ray: pip install 'replayrig[ray]'") from None
    return ray
