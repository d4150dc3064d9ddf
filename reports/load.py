"""Run directories into columns, a record at a time, so that a run of a million calls fits in memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO, TypeVar

from reports.measure import RunColumns, collect
from traces.jsonl import TraceError, iter_records, read_header
from traces.record import CallRecord, RunHeader, ServerSample, TaskRecord, ToolRecord

T = TypeVar("T")

LARGE_BYTES = 50_000_000
"""Reading a file from this size on takes long enough to say how far it is."""
_SAY_EVERY = 50_000


def load_run(directory: Path, *, progress: TextIO | None = None) -> RunColumns:
    """The run that was written to ``directory``; ``TraceError`` says in one line what is wrong with it.

    How far the reading of large files is goes to ``progress`` (by default stderr).
    """
    if not directory.is_dir():
        raise TraceError(f"{directory}: no such run directory")
    if not (directory / "run.json").is_file():
        raise TraceError(f"{directory}: holds no run (run.json is missing)")
    header = read_header(directory)
    stream = sys.stderr if progress is None else progress
    return collect(
        header=header,
        calls=_records(directory / "calls.jsonl", CallRecord, header, stream),
        tools=_records(directory / "tools.jsonl", ToolRecord, header, stream),
        tasks=_records(directory / "tasks.jsonl", TaskRecord, header, stream),
        samples=_records(directory / "server.jsonl", ServerSample, header, stream),
    )


def _records(path: Path, kind: Callable[..., T], header: RunHeader, stream: TextIO) -> Iterator[T]:
    records = iter_records(path, kind, complete=header.complete)
    is_large = path.exists() and path.stat().st_size >= LARGE_BYTES
    return _telling(records, path, stream) if is_large else records


def _telling(records: Iterator[T], path: Path, stream: TextIO) -> Iterator[T]:
    megabytes = path.stat().st_size / 1e6
    number = 0
    for number, record in enumerate(records, start=1):
        if number % _SAY_EVERY == 0:
            print(f"\r{path} ({megabytes:,.0f} MB): {number:,} records", end="", file=stream, flush=True)
        yield record
    print(f"\r{path} ({megabytes:,.0f} MB): {number:,} records", file=stream)
