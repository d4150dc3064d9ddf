"""Runs that were broken off, found in their own directories: what was asked of them, and what they had done.

A run directory has all that it takes: the settings in ``run.json``, and a record of everything that had ended. What a
kill cut short (half a line, a call in flight) is as if it had never been begun. Several runs that were asked for at
once (an experiment, a sweep, repeats) have a plan above them: those that are complete are kept, one goes on, and the
rest is begun.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from loadgen.config import SECRETS, Settings
from loadgen.past import Past
from loadgen.sources import READER
from loadgen.stores.store import HIDDEN, scheme_of
from mockserver.settings import flag_of
from traces.jsonl import Run, RunLock, TraceError, keep_whole_records, read_header, read_run, rewrite_records
from traces.record import RunHeader
from traces.workload import Workload

OVERRIDES = frozenset(
    {*SECRETS, "target", "workload", "ready_check_timeout_sec", "state", "state_patience", "live", "ray"}
)
"""Settings that a run may be given anew: they say how to reach things, not what is done."""
WORKER_DIRECTORY = "worker-{}"
PLAN = ".plan.json"
"""Out of sight: what is listed beside it are runs, and only runs."""
SHARD = "shard"
"""A note in the header of what is only a worker's part of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """A run that was broken off, and is ours to go on with."""

    run: Run
    lock: RunLock

    def release(self) -> None:
        """Let somebody else go on with it."""
        self.lock.close()

    def past(self) -> Past:
        """What it had done."""
        past = Past()
        past.add_run(self.run)
        return past

    def notes(self, *, at_s: float) -> dict[str, str]:
        """What is to be known of a run that did not go through in one, and goes on at ``at_s``."""
        before = self.run.header.notes.get("resumed")
        at = f"{at_s:.1f} s"
        return {"resumed": f"{before}, {at}" if before else f"the run was broken off and went on at {at}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What somebody asked for, as its directory has it."""

    command: str
    """``run``, ``experiment`` or ``sweep``."""
    settings: Mapping[str, Any]


def write_plan(directory: Path, command: str, settings: Settings) -> None:
    """Several runs will be done in ``directory``: write down what was asked for."""
    directory.mkdir(parents=True, exist_ok=True)
    plan = {"command": command, "settings": settings.public()}
    (directory / PLAN).write_bytes(orjson.dumps(plan, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def find(directory: Path) -> Asked:
    """What was asked for in ``directory``. Raises TraceError where there is nothing to tell it by."""
    if (directory / PLAN).exists():
        try:
            plan = orjson.loads((directory / PLAN).read_bytes())
            return Asked(command=plan["command"], settings=dict(plan["settings"]))
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            raise TraceError(f"{directory / PLAN}: not what a load generator wrote") from None
    header = header_of(directory)
    if header is not None and has_run(directory) and SHARD in header.notes:
        raise TraceError(f"{directory}: only a part of a run, which is resumed as a whole: {directory.parent}")
    if header is not None:
        return Asked(command="run", settings=header.settings | {"repeat": 1})
    raise TraceError(f"{directory}: holds no run (run.json is missing)")


def settings_of(asked: Asked, flags: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """What was asked for, but for what is told anew (one of ``OVERRIDES``)."""
    if asked.settings.get("history") == "live" and asked.settings.get("state") is None:
        raise TraceError("histories of what a server said are not in a run's records: to be resumed it needs a --state")
    known = {one.name for one in dataclasses.fields(Settings)}
    unknown = sorted(asked.settings.keys() - known)
    if unknown:
        raise TraceError(f"this run cannot be resumed: nobody knows its setting {unknown[0]!r}")
    stored = {name: value for name, value in asked.settings.items() if value is not None}
    settings = READER.load_over(stored, flags, environ, OVERRIDES)
    for name in ("state", "target"):
        if HIDDEN in (getattr(settings, name) or ""):
            raise TraceError(f"its password is written nowhere: give {flag_of(name)} with it")
    if settings.state is None:
        return settings
    # A state in memory died with its process; the records have all that matters.
    return replace(settings, state=None) if scheme_of(settings.state) == "memory" else replace(settings, resume=True)


def check_workload(header: RunHeader, workload: Workload) -> None:
    """Raise TraceError where ``workload`` is not what the run was doing."""
    if header.workload_digest != workload.digest:
        raise TraceError(
            f"run {header.run_id!r} cannot be resumed: the workload {workload.name} is not the one that it had"
        )


def take_up(directory: Path, *, retry_failed: bool = False) -> Unfinished:
    """The run in ``directory``, which nobody else writes to from now on.

    ``retry_failed``: calls that failed are forgotten, and so is the end of their tasks.
    """
    lock = RunLock(directory)
    keep_whole_records(directory)
    run = read_run(directory)
    if retry_failed:
        failed = {call.task_id for call in run.calls if call.error is not None}
        run = replace(
            run,
            calls=[call for call in run.calls if call.error is None],
            tasks=[task for task in run.tasks if task.error is None and task.task_id not in failed],
        )
        rewrite_records(directory, calls=run.calls, tasks=run.tasks)
    return Unfinished(run=run, lock=lock)


def header_of(directory: Path) -> RunHeader | None:
    """What the run in ``directory``, or its first worker, says of itself; None where there is none yet."""
    for path in (directory, *sorted(directory.glob(WORKER_DIRECTORY.format("*")))):
        if has_run(path):
            header = read_header(path)
            # A worker that is through says nothing of the others.
            return header if path == directory else replace(header, complete=False)
    return None


def has_run(directory: Path) -> bool:
    """Whether a run got as far as to say what it is."""
    return (directory / "run.json").exists()
