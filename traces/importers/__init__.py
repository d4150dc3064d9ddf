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

from traces.importers import own, toolathlon
from traces.importers.log import ImportLog
from traces.importers.sources import Source, find_sources
from traces.jsonl import TraceError
from traces.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Format:
    """How one format is recognised and read."""

    recognises: Callable[[Any], bool]
    read: Callable[[Source, ImportLog], Iterator[Trajectory]]


# In this order the first that recognises a file reads it, so formats with fewer marks of their own come later.
FORMATS = {module.NAME: Format(module.recognises, module.read) for module in (own, toolathlon)}


def import_files(patterns: Iterable[str], log: ImportLog, *, format_name: str | None = None) -> Iterator[Trajectory]:
    """All trajectories in the files that ``patterns`` name, with task ids that are unique; a summary is in ``log``."""
    if format_name is not None and format_name not in FORMATS:
        raise TraceError(f"no format {format_name!r}; there are: {', '.join(FORMATS)}")
    num_by_id: dict[str, int] = {}
    for source in find_sources(patterns):
        for trajectory in _import_source(source, log, format_name):
            number = num_by_id[trajectory.task_id] = num_by_id.get(trajectory.task_id, 0) + 1
            yield trajectory if number == 1 else replace(trajectory, task_id=f"{trajectory.task_id}~{number}")


def read_any(path: Path) -> Iterator[Trajectory]:
    """The trajectories of a file in our own or any foreign format. Raises TraceError where there is none in it."""
    log = ImportLog()
    trajectories = import_files([str(path)], log)
    first = next(trajectories, None)
    if first is None:
        reason, where = next(iter(log.first_skipped_by_reason.items()), ("no trajectories in it", str(path)))
        raise TraceError(f"{where}: {reason}")
    yield from itertools.chain([first], trajectories)


def recognise(source: Source) -> str | None:
    """The name of the format that ``source`` is in; None where it is in none we know."""
    value = source.first_value
    return next((name for name, one in FORMATS.items() if one.recognises(value)), None)


def _import_source(source: Source, log: ImportLog, format_name: str | None) -> Iterator[Trajectory]:
    name = format_name or recognise(source)
    if name is None:
        log.skip(source.name, "a file in no known format")
        return
    log.num_files += 1
    for trajectory in FORMATS[name].read(source, log):
        log.num_tasks_by_format[name] += 1
        yield trajectory
