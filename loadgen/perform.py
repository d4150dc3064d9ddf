"""One run from its settings to its finished directory: what is told before ``replay``, and what is made of it after."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from loadgen import doors
from loadgen.architectures import assumptions
from loadgen.call import Transport
from loadgen.config import Settings
from loadgen.doors import Door
from loadgen.harness import Harness
from loadgen.live import LiveView
from loadgen.metrics import MetricsPage
from loadgen.own_load import OwnLoad
from loadgen.past import Past
from loadgen.reachable import CheckedTransport
from loadgen.recorder import LagLimit, Recorder
from loadgen.resume import SHARD, Unfinished
from loadgen.run import GaveUp, first_of, replay
from loadgen.schedule import CallSchedule, read_schedule
from loadgen.shard import Shard
from loadgen.state import StateKeeper, open_state
from loadgen.stores.store import shown
from loadgen.target import TargetError
from loadgen.transports.inprocess import build_machine
from loadgen.transports.patient import CappedTransport, RetryingTransport
from mockserver import tokens
from mockserver.clock import Clock, VirtualClock, WallClock, cpu_seconds, real_seconds, run_virtual, run_wall
from traces.jsonl import RunWriter, read_header, read_summary
from traces.record import Lag, RunHeader, ServerSample
from traces.workload import Workload

Summarize = Callable[..., dict[str, Any]]
"""``reports.summary.summarize``, handed in by the command line: the load generator only records."""

_SAMPLE_PERIOD_S = 0.5
_SAMPLE_PERIOD_REAL_S = 0.4
"""Over HTTP a look at the server costs a request: not more often than this in real time."""


class RunError(Exception):
    """Something broke while a run went on; the text says what, and where lies what was measured before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A run that has ended."""

    directory: Path
    header: RunHeader
    summary: dict[str, Any]
    interrupted: bool
    columns: Any = None
    """Its records as the command line wants them for the table, where it has kept them; None: they are on disk."""
    numbers: Any = None
    """What the command line measured in them."""

    @classmethod
    def of(cls, directory: Path) -> Outcome:
        """A run that ended earlier, from its directory."""
        header = read_header(directory)
        return cls(directory=directory, header=header, summary=read_summary(directory), interrupted=not header.complete)

    @property
    def is_valid(self) -> bool:
        """Whether its numbers may be believed."""
        return not self.header.invalid_reasons


@dataclass(eq=False, slots=True, kw_only=True)
class Performance:
    """One run in the making."""

    settings: Settings
    workload: Workload
    directory: Path
    run_id: str
    time_scale: float
    view: LiveView | None = None
    header: RunHeader | None = None
    recorder: Recorder | None = None
    complete: bool = False
    server_lag: Lag | None = None
    lag_limit: LagLimit | None = None
    shard: Shard = field(default_factory=Shard)
    unfinished: Unfinished | None = None
    """The run that is resumed; None: it starts."""
    past: Past = field(default_factory=Past)
    schedule: CallSchedule | None = None
    notes: dict[str, str] = field(default_factory=dict)
    own_load: OwnLoad = field(default_factory=OwnLoad)
    harness: Harness = field(default_factory=Harness)

    async def in_virtual_time(self, clock: VirtualClock) -> None:
        """The run in process, waiting for nothing."""
        await self._in_process(clock)

    async def in_process_wall_time(self) -> None:
        """The run in process, in real time."""
        await self._in_process(WallClock(self.time_scale))

    async def _in_process(self, clock: Clock) -> None:
        async with self.state(clock) as state:
            await _start_at(clock, self.past)
            async with doors.in_process(build_machine(self.settings, clock)) as door:
                await self.through(door, clock, state=state)

    @asynccontextmanager
    async def state(self, clock: Clock) -> AsyncIterator[StateKeeper | None]:
        """The agents' state, where it is to be kept."""
        settings = self.settings
        if settings.state is None:
            yield None
            return
        async with open_state(
            settings.state,
            settings.state_name or str(self.directory.absolute()),
            fingerprint=settings.fingerprint(self.workload.digest),
            resume=settings.resume,
            clock=clock,
            patience_s=settings.state_patience,
            past=self.past,
        ) as state:
            yield state

    async def through(
        self,
        door: Door,
        clock: Clock,
        *,
        target: str | None = None,
        page: MetricsPage | None = None,
        state: StateKeeper | None = None,
    ) -> None:
        settings = self.settings
        header = self.header = self._first_header(clock, target, page)
        before = self.unfinished
        writer = RunWriter(
            self.directory, header, goes_on=before.lock if before else None, together=settings.is_virtual
        )
        recorder = self.recorder = Recorder(writer=writer, keep_chunks=settings.save_detailed, lag_limit=self.lag_limit)
        if before is not None:
            recorder.take_over(before.run)
        if self.view is not None:
            self.view.start(recorder, clock)
            recorder.on_record = self.view.tick
        shard, tasks = self.shard, self.workload.trajectories
        self.harness = settings.harness(is_our_model=settings.is_own_machine, shard=shard)
        self.harness.state, self.harness.past = state, self.past
        self.harness.schedule = self.schedule
        try:
            async with self.own_load.watching() if isinstance(clock, WallClock) else contextlib.nullcontext():
                await replay(
                    shard.of(tasks),
                    shard.of(settings.arrivals(tasks)),
                    architecture=settings.find_architecture(),
                    clock=clock,
                    transport=self._patient(door.transport, clock, target),
                    look=door.look if shard.is_first else _look_away,
                    recorder=recorder,
                    tool_times=settings.tool_times(),
                    harness=self.harness,
                    max_model_len=door.max_model_len,
                    max_concurrency=shard.share(settings.max_concurrency),
                    is_open_loop=settings.is_open_loop,
                    duration_s=settings.duration,
                    sample_period_s=self._sample_period_s(None if settings.is_virtual else clock.rate),
                )
            self.complete = True
        finally:
            self.server_lag = door.lag()
            self.notes |= door.notes()

    def _sample_period_s(self, rate: float | None) -> float:
        if self.settings.sample_period is not None:
            return self.settings.sample_period
        return _SAMPLE_PERIOD_S if rate is None else max(_SAMPLE_PERIOD_S, _SAMPLE_PERIOD_REAL_S * rate)

    def _patient(self, transport: Transport, clock: Clock, url: str | None) -> Transport:
        """``transport`` to the server at ``url`` with a second try and a cap, where they are asked for."""
        settings = self.settings
        if settings.max_retries and not settings.is_in_process:
            transport = RetryingTransport(transport, clock, settings.max_retries, seed=settings.seed)
        if url is not None:
            transport = CheckedTransport(inner=transport, url=url, patience_s=settings.ready_check_timeout_sec)
        most = self.shard.share(settings.max_calls_in_flight)
        if most is not None:
            transport = CappedTransport(transport, asyncio.Semaphore(most))
        return transport

    def _first_header(self, clock: Clock, target: str | None, page: MetricsPage | None) -> RunHeader:
        settings = self.settings
        is_ours = settings.is_own_machine
        profile, config = settings.resolve()
        return RunHeader(
            run_id=self.run_id,
            architecture=settings.architecture,
            workload=self.workload.name,
            workload_digest=self.workload.digest,
            num_tasks=len(self.shard.of(self.workload.trajectories)),
            target=shown(target or settings.target),
            clock="virtual" if settings.is_virtual else "wall",
            time_scale=None if settings.is_virtual else clock.rate,
            profile=profile.name if is_ours else None,
            prefix_caching=config.enable_prefix_caching if is_ours else (page.prefix_caching if page else None),
            max_num_seqs=config.max_num_seqs * settings.num_ranks if is_ours else None,
            block_size=config.block_size if is_ours else (page.block_size if page else None),
            seed=settings.seed,
            notes={
                **self.notes,
                "architecture": assumptions(settings.find_architecture()),
                **({"kv_bytes_per_token": f"{profile.kv_bytes_per_token:g}"} if is_ours else {}),
                **(self.unfinished.notes(at_s=self.past.ended_at) if self.unfinished else {}),
                **({} if self.shard.is_whole else {SHARD: f"worker {self.shard.number} of {self.shard.num_shards}"}),
                **({"workload": _skipped_text(self.workload)} if self.workload.num_skipped else {}),
            },
            settings=settings.public(),
            version=_version(),
            started_on=self.unfinished.run.header.started_on
            if self.unfinished
            else datetime.now(UTC).isoformat(timespec="seconds"),
        )


def _skipped_text(workload: Workload) -> str:
    return (
        f"{workload.name}: {workload.num_skipped:,} records could not be used and are left out: traces import says why"
    )


async def _look_away() -> ServerSample | None:
    """One worker looks at the server; the others need not."""
    return None


def perform(
    settings: Settings,
    workload: Workload,
    directory: Path,
    *,
    summarize: Summarize,
    run_id: str,
    time_scale: float = 1.0,
    view: LiveView | None = None,
    shard: Shard | None = None,
    lag_limit: LagLimit | None = None,
    notes: Mapping[str, str] | None = None,
    unfinished: Unfinished | None = None,
) -> Outcome:
    """Do one run, or a shard of it, and finish its directory; Ctrl-C ends it early and keeps what was measured.

    ``unfinished`` is the run in ``directory`` that this one goes on with. With a ``lag_limit`` it also ends early once
    the limit is passed. ``notes`` go into the header.
    """
    performance = Performance(
        settings=settings,
        workload=workload,
        directory=directory,
        run_id=run_id,
        time_scale=time_scale,
        view=view,
        shard=shard or Shard(),
        lag_limit=lag_limit,
        notes=dict(notes or {}),
        unfinished=unfinished,
        past=unfinished.past() if unfinished else Past(),
        schedule=None
        if settings.call_schedule is None
        else read_schedule(
            Path(settings.call_schedule), workload_digest=workload.digest, architecture=settings.architecture
        ),
    )
    performance.past.ended_at = max(performance.past.ended_at, performance.shard.starts_at)
    gc.collect()  # the run before has left a machine, a ring of references: 30 MB that this one can have
    started_at, cpu_started_at = real_seconds(), cpu_seconds()
    tokens.encoding()  # built here, it does not make the first call late
    interrupted = False
    failure: BaseException | None = None
    try:
        if settings.is_virtual:
            run_virtual(performance.in_virtual_time)
        elif settings.is_in_process:
            run_wall(performance.in_process_wall_time)
        else:
            from loadgen.perform_http import over_http  # noqa: PLC0415  (importing aiohttp takes a third of a second)

            run_wall(functools.partial(over_http, performance))
    except KeyboardInterrupt:
        if performance.recorder is None:
            raise
        interrupted = True
    except ExceptionGroup as group:
        failure = first_of(group)
        if performance.recorder is None:
            raise failure from group
        failure.__cause__ = group
        if isinstance(failure, GaveUp):
            failure = None  # the outcome says it
    finally:
        if view is not None:
            view.stop()
    try:
        outcome = _finish(
            performance,
            summarize,
            elapsed_s=real_seconds() - started_at,
            cpu_s=cpu_seconds() - cpu_started_at,
            interrupted=interrupted,
        )
    except OSError as error:  # a full disk: the records that it had room for are there
        failure = failure or error
    if failure is not None:
        raise RunError(_stopped(failure, performance)) from failure
    return outcome


def _stopped(failure: BaseException, performance: Performance) -> str:
    """Why a run stopped, and what to do about it."""
    why = str(failure) if isinstance(failure, TargetError) else f"{type(failure).__name__}: {failure}"
    if isinstance(failure, OSError) and failure.strerror and failure.filename:
        why = f"{failure.filename}: {failure.strerror}"
    assert performance.recorder is not None, "the run has begun"
    directory = performance.directory
    if not performance.shard.is_whole:
        return f"stopped: {why}"
    kept = f"stopped: {why}; {len(performance.recorder.calls):,} calls are in {directory}"
    if performance.settings.history == "live" and performance.settings.state is None:
        return kept
    return f"{kept}, and `loadgen resume {directory}` goes on from there"


def _finish(
    performance: Performance, summarize: Summarize, *, elapsed_s: float, cpu_s: float, interrupted: bool
) -> Outcome:
    header, recorder = performance.header, performance.recorder
    assert header is not None, "the run has begun"
    assert recorder is not None, "the run has begun"
    lags = [call.lag_s for call in recorder.calls if call.lag_s is not None]
    header = replace(
        header,
        elapsed_s=elapsed_s,
        cpu_s=cpu_s,
        complete=performance.complete,
        # A duration leaves tasks out on purpose; nothing else does.
        num_tasks=header.num_tasks if performance.settings.duration is None else recorder.num_tasks_started,
        # What reached the client counts, where it is known: the server's own figure is a part of it.
        server_lag=None if lags else performance.server_lag,
        digest=recorder.digest(),
        notes={
            **header.notes,
            **performance.notes,
            **_notes(recorder),
            **performance.harness.notes(),
            **_own_notes(performance.own_load),
        },
        invalid_reasons=performance.own_load.reasons(),
    )
    records = {
        "calls": recorder.calls,
        "tools": recorder.tools,
        "tasks": recorder.tasks,
        "samples": recorder.samples,
    }
    summary = summarize(header=header, **records)
    header = replace(
        header,
        server_lag=header.server_lag or _lag_of(summary, "lag", len(lags)),
        send_lag=_lag_of(summary, "send_lag", len(recorder.calls)),
        invalid_reasons=tuple(summary["invalid_reasons"]),
    )
    assert recorder.writer is not None, "a performance writes"
    recorder.writer.finish(header, summary)
    return Outcome(directory=performance.directory, header=header, summary=summary, interrupted=interrupted)


async def _start_at(clock: Clock, past: Past) -> None:
    """A run that is resumed goes on when the latest of its past ended."""
    if past.is_empty:
        return
    if isinstance(clock, WallClock):
        clock.start(at=past.ended_at)
    else:
        await clock.sleep_until(past.ended_at)


def _own_notes(own_load: OwnLoad) -> dict[str, str]:
    return {"load generator": own_load.in_words()} if own_load.elapsed_s else {}


def _notes(recorder: Recorder) -> dict[str, str]:
    notes = {
        "overhead": f"{recorder.num_overhead_calls:,} of {len(recorder.calls):,} calls are not in the recording:"
        " the architecture adds them"
    }
    num_removed = recorder.num_results_removed
    if num_removed:
        notes["context"] = f"{num_removed} tool results gave way because a history had outgrown the model's context"
    if prompts := _prompts_in_words(recorder):
        notes["prompts"] = prompts
    return notes


def _prompts_in_words(recorder: Recorder) -> str | None:
    """How many prompts are as long there as in the trace; None where they were not made to be, or nobody knows."""
    differences = [
        call.num_prompt_tokens - call.expected_prompt_tokens
        for call in recorder.calls
        if call.num_prompt_tokens is not None and call.expected_prompt_tokens is not None
    ]
    if not differences:
        return None
    num_exact = differences.count(0)
    text = f"{num_exact:,} of {len(differences):,} prompts have as many tokens as in the trace"
    if num_exact == len(differences):
        return text
    return f"{text}; the others have {min(differences):+,} to {max(differences):+,}"


def _version() -> str:
    try:
        return version("replayrig")
    except PackageNotFoundError:  # a source tree that is not installed
        return "unknown"


def _lag_of(summary: dict[str, Any], name: str, num_samples: int) -> Lag | None:
    p50_s, p99_s, max_s = (summary[f"{kind}_{name}_s"] for kind in ("p50", "p99", "max"))
    return None if p50_s is None else Lag(p50_s=p50_s, p99_s=p99_s, max_s=max_s, num_samples=num_samples)
