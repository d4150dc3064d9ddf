"""Our own trajectory files, so that everything that reads foreign ones reads them too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from traces.importers.log import ImportLog
from traces.importers.sources import Source
from traces.jsonl import parse_trajectory_line
from traces.trajectory import Trajectory

NAME = "replayrig"


def recognises(value: Any) -> bool:
    """Whether ``value`` is a line of ours."""
    kind = value.get("replayrig") if isinstance(value, dict) else None
    return isinstance(kind, str) and kind.startswith("trajectory/")


def read(source: Source, log: ImportLog) -> Iterator[Trajectory]:
    """The trajectories of ``source``; a damaged line is not skipped, because we wrote it."""
    for where, line in source.lines(log.skip):
        yield parse_trajectory_line(line, where=where)
