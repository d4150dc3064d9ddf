"""One run by several processes on this machine, for loads that one event loop does not carry.

Each worker does every n-th task. Their records are joined and measured as one run: no average of percentiles, no
merged histogram. A worker that is lost leaves what it had recorded, and the run says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import sys
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import orjson

from loadgen.config import OWN_MOCK, Settings
from loadgen.own_mock import own_mock
from loadgen.perform import Outcome, RunError, Summarize
from loadgen.recorder import Recorder
from loadgen.worker import FINE, INTERRUPTED, READY
from mockserver.clock import cpu_seconds, real_seconds, run_wall
from traces.jsonl import Run, RunWriter, TraceError, read_run
from traces.workload import Workload

_UNTIL_START_S = 0.5
"""From "all are ready" to the start: the time it takes to tell everybody."""
_COMMON_NOTES = ("architecture", "server", "workload")
_PATIENCE_S = 20.0
"""How long workers that were interrupted get to finish their directories."""


@dataclass(eq=False, slots=True)
class _Crew:
    """The worker processes."""

    directories: Sequence[Path]
    processes: list[asyncio.subprocess.Process] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


def perform_with_workers(
    settings: Settings,
    workload: Workload,
    directory: Path,
    *,
    summarize: Summarize,
    run_id: str,
    time_scale: float,
) -> Outcome:
    """As ``perform``, by ``settings.workers`` processes."""
    started_at, cpu_started_at = real_seconds(), cpu_seconds()
    directory.mkdir(parents=True, exist_ok=True)
    crew = _Crew([directory / f"worker-{number}" for number in range(settings.workers)])
    interrupted = False
    try:
        run_wall(lambda: _run(settings, directory, crew, run_id=run_id, time_scale=time_scale))
    except KeyboardInterrupt:
        interrupted = True
    runs = [_read(one) for one in crew.directories]
    if not any(runs):
        raise RunError(crew.complaints[0] if crew.complaints else "no worker has measured anything")
    return _join(
        runs,
        crew,
        workload,
        directory,
        summarize=summarize,
        elapsed_s=real_seconds() - started_at,
        cpu_s=cpu_seconds() - cpu_started_at,
        interrupted=interrupted,
    )


async def _run(settings: Settings, directory: Path, crew: _Crew, *, run_id: str, time_scale: float) -> None:
    if settings.cache_bust:  # one salt for all: workers share the cache
        body = settings.more_body() | {"cache_salt": uuid.uuid4().hex}
        settings = replace(settings, cache_bust=False, extra_body=orjson.dumps(body).decode())
    async with _target(settings, directory, time_scale) as url:
        job = {
            "settings": dataclasses.asdict(replace(settings, workers=1)),
            "server_url": url,
            "num_workers": settings.workers,
            "run_id": run_id,
            "time_scale": time_scale,
        }
        try:
            await _employ(job, crew)
        finally:
            await _dismiss(crew)


@asynccontextmanager
async def _target(settings: Settings, directory: Path, time_scale: float) -> AsyncIterator[str]:
    if settings.target != OWN_MOCK:
        yield settings.target
        return
    async with own_mock(settings, time_scale=time_scale, log_file=directory / "server.log") as url:
        yield url


async def _employ(job: dict[str, object], crew: _Crew) -> None:
    """Start the workers, let them start their tasks together, and wait for them."""
    for number, directory in enumerate(crew.directories):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "loadgen.worker"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        crew.processes.append(process)
        _tell(process, json.dumps(job | {"number": number, "directory": str(directory)}))
    said = await asyncio.gather(*(process.stdout.readline() for process in crew.processes if process.stdout))
    starts_at = real_seconds() + _UNTIL_START_S
    for process, line in zip(crew.processes, said, strict=True):
        if line == READY:
            _tell(process, repr(starts_at))
    await asyncio.gather(*(_ended(process, crew) for process in crew.processes))


async def _ended(process: asyncio.subprocess.Process, crew: _Crew) -> None:
    assert process.stderr is not None, "asked for"
    complaint = await process.stderr.read()
    if await process.wait() not in (FINE, INTERRUPTED):
        text = complaint.decode(errors="replace").strip().splitlines()
        crew.complaints.append(text[-1] if text else f"exit status {process.returncode}")


async def _dismiss(crew: _Crew) -> None:
    """After Ctrl-C, which the workers hear too: let them finish, but not for ever."""
    running = [process for process in crew.processes if process.returncode is None]
    if running:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await asyncio.gather(*(process.wait() for process in running))
        for process in running:
            if process.returncode is None:
                process.kill()


def _tell(process: asyncio.subprocess.Process, line: str) -> None:
    assert process.stdin is not None, "asked for"
    process.stdin.write(line.encode() + b"\n")


def _read(directory: Path) -> Run | None:
    try:
        return read_run(directory)
    except TraceError:  # lost before it recorded anything
        return None


def _join(
    runs: Sequence[Run | None],
    crew: _Crew,
    workload: Workload,
    directory: Path,
    *,
    summarize: Summarize,
    elapsed_s: float,
    cpu_s: float,
    interrupted: bool,
) -> Outcome:
    present = [run for run in runs if run is not None]
    lost = [number for number, run in enumerate(runs) if run is None or not run.header.complete]
    reasons = [reason for run in present for reason in run.header.invalid_reasons]
    if lost and not interrupted:
        why = f" ({crew.complaints[0]})" if crew.complaints else ""
        reasons.insert(0, f"{len(lost)} of {len(runs)} workers were lost: number {', '.join(map(str, lost))}{why}")
    first = present[0].header
    notes = {
        name if name in _COMMON_NOTES else f"{name}, worker {number}": text
        for number, run in enumerate(present)
        for name, text in run.header.notes.items()
    }
    header = replace(
        first,
        num_tasks=sum(run.header.num_tasks for run in present) if not lost else len(workload.trajectories),
        settings=first.settings | {"workers": len(runs)},
        notes=notes,
        elapsed_s=elapsed_s,
        cpu_s=cpu_s + sum(run.header.cpu_s or 0.0 for run in present),
        complete=not lost and not interrupted,
        server_lag=None,
        send_lag=None,
        digest=None,
        invalid_reasons=tuple(dict.fromkeys(reasons)),
    )
    writer = RunWriter(directory, header)
    recorder = Recorder(writer=writer)
    for run in present:
        for call in run.calls:
            recorder.call(call)
        for tool in run.tools:
            recorder.tool(tool)
        for task in run.tasks:
            recorder.task(task)
        for sample in run.samples:
            recorder.sample(sample)
    summary = summarize(
        header=header, calls=recorder.calls, tools=recorder.tools, tasks=recorder.tasks, samples=recorder.samples
    )
    header = replace(header, digest=recorder.digest(), invalid_reasons=tuple(summary["invalid_reasons"]))
    writer.finish(header, summary)
    return Outcome(directory=directory, header=header, summary=summary, interrupted=interrupted)
