"""The workers of one run: each does its job somewhere else, and all of them start at the same instant."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from loadgen.worker import FINE, INTERRUPTED, READY
from mockserver import huge_pages
from mockserver.clock import real_seconds

_PATIENCE_S = 20.0
"""How long workers that were interrupted get to finish their directories."""


class Worker(Protocol):
    """One of them, wherever it is. What it records is in ``directory`` when it has ended."""

    directory: Path

    async def get_ready(self, job: Mapping[str, Any]) -> bool:
        """Take the job and open the door to the server; whether that went well."""
        ...

    async def start(self, at: float) -> None:
        """Be told when the run starts, by ``real_seconds`` here."""
        ...

    async def ended(self) -> str | None:
        """Return when it has done its job, or else why it has not."""
        ...

    async def dismiss(self) -> None:
        """Let it finish its directory if it is still at work, but not for ever."""
        ...


async def employ(workers: Sequence[Worker], job: Mapping[str, Any], *, until_start_s: float) -> list[str]:
    """Let ``workers`` do their parts of ``job``; returns what those that failed say.

    ``until_start_s``: from "all are ready" to the start, the time that it takes to tell everybody.
    """
    try:
        jobs = [{**job, "number": number, "directory": str(one.directory)} for number, one in enumerate(workers)]
        ready = await asyncio.gather(*(one.get_ready(its) for one, its in zip(workers, jobs, strict=True)))
        starts_at = real_seconds() + until_start_s
        await asyncio.gather(*(one.start(starts_at) for one, is_ready in zip(workers, ready, strict=True) if is_ready))
        said = await asyncio.gather(*(one.ended() for one in workers))
    finally:
        await asyncio.gather(*(one.dismiss() for one in workers))
    return [text for text in said if text is not None]


@dataclass(eq=False, slots=True)
class Process:
    """A worker process on this machine."""

    directory: Path
    _process: asyncio.subprocess.Process | None = None

    async def get_ready(self, job: Mapping[str, Any]) -> bool:
        """Start it, and wait for its word."""
        self._process = process = await asyncio.create_subprocess_exec(
            *huge_pages.command("loadgen.worker"),
            env=huge_pages.environ(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        self._tell(json.dumps(job))
        assert process.stdout is not None, "asked for"
        return await process.stdout.readline() == READY

    async def start(self, at: float) -> None:
        """Monotonic time is one clock for all processes of a machine."""
        self._tell(repr(at))

    async def ended(self) -> str | None:
        """The last line that it complained with, where it failed."""
        process = self._process
        assert process is not None, "it has been started"
        assert process.stderr is not None, "asked for"
        complaint = await process.stderr.read()
        return complaint_of(await process.wait(), complaint)

    async def dismiss(self) -> None:
        """After Ctrl-C, which it hears too where it came from a terminal; the end of its input says the same."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None, "asked for"
        process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await process.wait()
        if process.returncode is None:
            process.kill()

    def _tell(self, line: str) -> None:
        assert self._process is not None, "it has been started"
        assert self._process.stdin is not None, "asked for"
        with contextlib.suppress(ConnectionError):  # it is gone, which ``ended`` will tell
            self._process.stdin.write(line.encode() + b"\n")


def complaint_of(status: int, stderr: bytes) -> str | None:
    """Why a worker process that ended with ``status`` failed; None where it did not."""
    if status in (FINE, INTERRUPTED):
        return None
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    lines = stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit status {status}"
