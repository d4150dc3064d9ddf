"""Trajectories to other tools' formats: one module a format, each saying what it can hold.

To add one, write a module with ``NAME`` and ``exporter(log)``, which gives a function from a trajectory to its lines,
and list it in ``EXPORTERS``. What a format cannot hold is counted in ``log``.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from traces.exporters import aiperf_dag, atif, mooncake, otel, weka
from traces.importers.log import ImportLog
from traces.jsonl import trajectory_line
from traces.trajectory import Trajectory


def _own(log: ImportLog) -> Callable[[Trajectory], Iterator[bytes]]:
    return lambda trajectory: iter([trajectory_line(trajectory)])


EXPORTERS: dict[str, Callable[[ImportLog], Callable[[Trajectory], Iterator[bytes]]]] = {
    "replayrig": _own,
    **{module.NAME: module.exporter for module in (aiperf_dag, atif, mooncake, otel, weka)},
}


def export_file(path: Path, trajectories: Iterable[Trajectory], format_name: str, log: ImportLog) -> int:
    """Write ``trajectories`` to ``path`` in a format of EXPORTERS, gzipped where it ends in ``.gz``.

    Returns how many there were. Raises TraceError where the format cannot hold one at all.
    """
    export = EXPORTERS[format_name](log)
    num_tasks = 0
    with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as file:
        for trajectory in trajectories:
            for line in export(trajectory):
                file.write(line + b"\n")
            num_tasks += 1
    return num_tasks
