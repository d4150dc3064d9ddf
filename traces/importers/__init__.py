"""Foreign recordings to trajectories: one module a format, recognised by content.

To add a format, write a module with ``NAME``, ``recognises(value)`` (of the first JSON value in a file) and
``read(source, log)``, and list it in ``FORMATS``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from traces.importers import (
    agent_trace,
    agentperf,
    aiperf_dag,
    atif,
    chat_messages,
    claude_code,
    codex,
    exgentic,
    gemini_cli,
    lmcache,
    mini_swe_agent,
    mooncake,
    openhands,
    otel,
    own,
    request_csv,
    request_log,
    swe_agent,
    tau2_bench,
    tau_bench,
    toolathlon,
    tracelab,
    weka,
    who_and_when,
)
from traces.importers.log import ImportLog
from traces.importers.sources import Source, find_sources
from traces.jsonl import TraceError
from traces.trajectory import Trajectory, Turn


@dataclass(frozen=True, slots=True)
class Format:
    """How one format is recognised and read."""

    recognises: Callable[[Any], bool]
    read: Callable[[Source, ImportLog], Iterator[Trajectory]]


# In this order the first that recognises a file reads it, so formats with fewer marks of their own come later.
FORMATS = {
    module.NAME: Format(module.recognises, module.read)
    for module in (
        own,
        toolathlon,
        weka,
        otel,
        aiperf_dag,
        mooncake,
        request_csv,
        agentperf,
        request_log,
        lmcache,
        tau_bench,
        tau2_bench,
        mini_swe_agent,
        openhands,
        swe_agent,
        who_and_when,
        exgentic,
        gemini_cli,
        agent_trace,
        atif,
        claude_code,
        codex,
        tracelab,
        chat_messages,
    )
}


def import_files(patterns: Iterable[str], log: ImportLog, *, format_name: str | None = None) -> Iterator[Trajectory]:
    """All trajectories in the files that ``patterns`` name, with task ids that are unique; a summary is in ``log``."""
    if format_name is not None and format_name not in FORMATS:
        raise TraceError(f"no format {format_name!r}; there are: {', '.join(FORMATS)}")
    num_by_id: dict[str, int] = {}
    sources = list(find_sources(patterns))
    log.paths = frozenset(source.path for source in sources)
    for source in sources:
        for trajectory in _import_source(source, log, format_name):
            task_id = _unused(trajectory.task_id, num_by_id)
            turns = _with_agent_ids_of_their_own(trajectory.turns, {})
            yield replace(trajectory, task_id=task_id, turns=turns)


def _with_agent_ids_of_their_own(turns: tuple[Turn, ...], num_by_id: dict[str, int]) -> tuple[Turn, ...]:
    """``turns`` whose subagents, at whatever depth, all have different ids."""
    if not any(turn.spawns for turn in turns):
        return turns
    return tuple(
        replace(
            turn,
            spawns=tuple(
                replace(
                    spawn,
                    agent_id=_unused(spawn.agent_id or "agent", num_by_id),
                    turns=_with_agent_ids_of_their_own(spawn.turns, num_by_id),
                )
                for spawn in turn.spawns
            ),
        )
        for turn in turns
    )


def _unused(name: str, num_by_name: dict[str, int]) -> str:
    """``name``, or ``name~2`` and so on where it was given away before."""
    number = num_by_name[name] = num_by_name.get(name, 0) + 1
    return name if number == 1 else _unused(f"{name}~{number}", num_by_name)


def read_any(path: Path, log: ImportLog) -> Iterator[Trajectory]:
    """The trajectories of a file in our own or any foreign format. Raises TraceError where there is none in it."""
    trajectories = import_files([str(path)], log)
    first = next(trajectories, None)
    if first is None:
        reason, where = next(iter(log.first_skipped_by_reason.items()), ("no trajectories in it", str(path)))
        raise TraceError(f"{where}: {reason}")
    yield from itertools.chain([first], trajectories)


def recognise(source: Source) -> str | None:
    """The name of the format that ``source`` is in; None where it is in none we know."""
    value = source.first_value
    if value is None:
        value = source.first_line
    return next((name for name, one in FORMATS.items() if one.recognises(value)), None)


def _import_source(source: Source, log: ImportLog, format_name: str | None) -> Iterator[Trajectory]:
    name = format_name or recognise(source)
    if name is None:
        if source.is_named:
            log.skip(source.name, "a file in no known format")
        else:
            log.note("files in the folder that are in no known format: left out")
        return
    log.num_files += 1
    for trajectory in FORMATS[name].read(source, log):
        log.num_tasks_by_format[name] += 1
        yield trajectory
