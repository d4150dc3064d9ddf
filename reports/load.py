"""Run directories into columns, a record at a time, so that a run of a million calls fits in memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, TypeVar

from reports.measure import RunColumns, collect
from traces.jsonl import TraceError, iter_records, read_header
from traces.record import CallRecord, RunHeader, ServerSample, TaskRecord, ToolRecord

T = TypeVar("T")

LARGE_BYTES = 50_000_000
"""Reading a file from this size on takes long enough to say how far it is."""
_SAY_EVERY = 50_000


def load_run(directory: Path, *, progress: TextIO | None = None, large_bytes: int = LARGE_BYTES) -> RunColumns:
    """The run that was written to ``directory``; ``TraceError`` says in one line what is wrong with it.

    How far the reading of files of ``large_bytes`` or more is goes to ``progress`` (by default stderr).
    """
    if not directory.is_dir():
        raise TraceError(f"{directory}: no such run directory")
    if not (directory / "run.json").is_file():
        raise TraceError(f"{directory}: holds no run (run.json is missing)")
    header = read_header(directory)
    told = _Progress(stream=sys.stderr if progress is None else progress, large_bytes=large_bytes)
    return collect(
        header=header,
        calls=_records(directory / "calls.jsonl", CallRecord, header, told),
        tools=_records(directory / "tools.jsonl", ToolRecord, header, told),
        tasks=_records(directory / "tasks.jsonl", TaskRecord, header, told),
        samples=_records(directory / "server.jsonl", ServerSample, header, told),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Progress:
    """Where and about which files it is said how far the reading is."""

    stream: TextIO
    large_bytes: int


def _records(path: Path, kind: Callable[..., T], header: RunHeader, told: _Progress) -> Iterator[T]:
    records = iter_records(path, kind, complete=header.complete)
    is_large = path.exists() and path.stat().st_size >= told.large_bytes
    return _telling(records, path, told.stream) if is_large else records


def _telling(records: Iterator[T], path: Path, stream: TextIO) -> Iterator[T]:
    megabytes = path.stat().st_size / 1e6
    number = 0
    for number, record in enumerate(records, start=1):
        if number % _SAY_EVERY == 0:
            print(f"\r{path} ({megabytes:,.0f} MB): {number:,} records", end="", file=stream, flush=True)
        yield record
    print(f"\r{path} ({megabytes:,.0f} MB): {number:,} records", file=stream)
