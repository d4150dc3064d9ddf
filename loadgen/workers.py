"""One run by several workers, for loads that one event loop does not carry.

Each worker does every n-th task. Their records are joined and measured as one run: no average of percentiles, no
merged histogram. A worker that is lost leaves what it had recorded, and the run says so.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from loadgen.config import OWN_MOCK, Settings
from loadgen.crew import Process, employ
from loadgen.own_mock import own_mock
from loadgen.past import Past
from loadgen.perform import Outcome, RunError, Summarize
from loadgen.ray_crew import UNTIL_START_S as RAY_UNTIL_START_S
from loadgen.ray_crew import ray_crew
from loadgen.recorder import Recorder
from loadgen.resume import WORKER_DIRECTORY
from mockserver.clock import cpu_seconds, real_seconds, run_wall
from traces.jsonl import Run, RunWriter, TraceError, forget_run, read_run
from traces.workload import Workload, workload_file

_UNTIL_START_S = 0.5
_COMMON_NOTES = ("architecture", "server", "workload")


def perform_with_workers(
    settings: Settings,
    workload: Workload,
    directory: Path,
    *,
    summarize: Summarize,
    run_id: str,
    time_scale: float,
    notes: Mapping[str, str] | None = None,
    resumes: bool = False,
    retry_failed: bool = False,
) -> Outcome:
    """As ``perform``, by ``settings.workers`` processes. ``resumes``: each of them goes on in its own directory."""
    started_at, cpu_started_at = real_seconds(), cpu_seconds()
    directory.mkdir(parents=True, exist_ok=True)
    directories = [directory / WORKER_DIRECTORY.format(number) for number in range(settings.workers)]
    job: dict[str, Any] = {"run_id": run_id, "time_scale": time_scale, "retry_failed": retry_failed}
    if not resumes:
        for one in directory.glob(WORKER_DIRECTORY.format("*")):  # as many as an older run had
            forget_run(one)
    else:
        job["resumes_at"] = max((_ended_at(run) for one in directories if (run := _read(one))), default=0.0)
    word = _Word()
    interrupted = False
    try:
        word = run_wall(lambda: _run(settings, workload, directory, directories, job))
    except KeyboardInterrupt:
        interrupted = True
    runs = [_read(one) for one in directories]
    if not any(runs):
        raise RunError(word.complaints[0] if word.complaints else "no worker has measured anything")
    try:
        return _join(
            runs,
            word,
            settings,
            workload,
            directory,
            summarize=summarize,
            elapsed_s=real_seconds() - started_at,
            cpu_s=cpu_seconds() - cpu_started_at,
            interrupted=interrupted,
            more_notes=notes or {},
        )
    except OSError as error:  # a full disk
        raise RunError(f"stopped: {error.filename or directory}: {error.strerror}") from error


def _ended_at(run: Run) -> float:
    past = Past()
    past.add_run(run)
    return past.ended_at


async def _run(
    settings: Settings, workload: Workload, directory: Path, directories: Sequence[Path], job: dict[str, Any]
) -> _Word:
    if settings.cache_bust:  # one salt for all: workers share the cache
        body = settings.more_body() | {"cache_salt": uuid.uuid4().hex}
        settings = replace(settings, cache_bust=False, extra_body=orjson.dumps(body).decode())
    job |= {"settings": dataclasses.asdict(settings), "num_workers": settings.workers}
    if settings.ray is None:
        async with _target(settings, directory, job["time_scale"]) as url:
            workers = [Process(one) for one in directories]
            return _Word(complaints=await employ(workers, job | {"server_url": url}, until_start_s=_UNTIL_START_S))
    async with ray_crew(settings.ray, directories, workload_file(workload)) as crew:
        async with _target(settings, directory, job["time_scale"], host=crew.host) as url:
            complaints = await employ(crew.workers, job | {"server_url": url}, until_start_s=RAY_UNTIL_START_S)
        return _Word(complaints=complaints, notes={"ray": crew.note()})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Word:
    """What is known of the workers beside their records."""

    complaints: Sequence[str] = ()
    """What those that failed say."""
    notes: dict[str, str] = field(default_factory=dict)


@asynccontextmanager
async def _target(
    settings: Settings, directory: Path, time_scale: float, *, host: str = "127.0.0.1"
) -> AsyncIterator[str]:
    """The server's URL; a mock for the run is started on this machine, known as ``host``."""
    if settings.target != OWN_MOCK:
        yield settings.target
        return
    async with own_mock(settings, time_scale=time_scale, log_file=directory / "server.log", host=host) as url:
        yield url


def _read(directory: Path) -> Run | None:
    try:
        return read_run(directory)
    except TraceError:  # lost before it recorded anything
        return None


def _join(
    runs: Sequence[Run | None],
    word: _Word,
    settings: Settings,
    workload: Workload,
    directory: Path,
    *,
    summarize: Summarize,
    elapsed_s: float,
    cpu_s: float,
    interrupted: bool,
    more_notes: Mapping[str, str],
) -> Outcome:
    present = [run for run in runs if run is not None]
    lost = [number for number, run in enumerate(runs) if run is None or not run.header.complete]
    reasons = [reason for run in present for reason in run.header.invalid_reasons]
    if lost and not interrupted:
        why = f" ({word.complaints[0]})" if word.complaints else ""
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
        settings=settings.public(),
        notes=notes | word.notes | dict(more_notes),
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
