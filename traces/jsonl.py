"""Trajectories and run records on disk: one JSON object a line, streamed in and out.

A trajectory line says what it is (``"replayrig": "trajectory/1"``), so files can be cut, joined and told from
others by their first line. A run is a directory (see ``RunWriter``) whose version stands in ``run.json``.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import gzip
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError

from traces.record import SCHEMA_VERSION, CallRecord, RunHeader, ServerSample, TaskRecord, ToolRecord
from traces.trajectory import Trajectory

T = TypeVar("T")

TRAJECTORY_VERSION = 1
TRAJECTORY_LINE_START = f'{{"replayrig":"trajectory/{TRAJECTORY_VERSION}",'.encode()
_RECORD_FILES: dict[str, type] = {
    "calls": CallRecord,
    "tools": ToolRecord,
    "tasks": TaskRecord,
    "server": ServerSample,
}
RECORD_NAMES = tuple(f"{name}.jsonl" for name in _RECORD_FILES)
PAGE_NAMES = ("run.json", "summary.json")
"""What a run directory holds: files that only grow, and files that are written anew."""
_MOST_PENDING = 256
"""Records that are written together, at most: some 100 KB."""


class TraceError(Exception):
    """A trace file or a run directory is not what it claims to be; the text says where."""


def trajectory_line(trajectory: Trajectory) -> bytes:
    """The trajectory as one line of JSON, without the line's end: the same bytes for equal trajectories."""
    try:
        return TRAJECTORY_LINE_START + orjson.dumps(trajectory)[1:]
    except TypeError as error:
        raise TraceError(f"task {trajectory.task_id!r} cannot be written: {error}") from None


def write_trajectories(path: Path, trajectories: Iterable[Trajectory]) -> int:
    """Write ``trajectories`` to ``path``, gzipped where it ends in ``.gz``; returns how many there were."""
    if path.suffix != ".gz":
        with path.open("wb") as file:
            return _write_lines(file, trajectories)
    # mtime=0: the same trajectories give the same bytes.
    with path.open("wb") as raw, gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as packed:
        return _write_lines(packed, trajectories)


def read_trajectories(path: Path) -> Iterator[Trajectory]:
    """The trajectories of a file that ``write_trajectories`` wrote, one at a time."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
            for line_number, line in enumerate(lines, start=1):
                if line.strip():
                    yield parse_trajectory_line(line, where=f"{path}:{line_number}")
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{path}: {_reason(error)}") from None


def parse_trajectory_line(line: bytes, *, where: str) -> Trajectory:
    """One line of a trajectory file; ``where`` is named if it is not one."""
    if not line.startswith(TRAJECTORY_LINE_START):
        _refuse_other_versions(line, where)
    trajectory: Trajectory = _parse(_adapter(Trajectory), line, where)
    return trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run directory, read back."""

    header: RunHeader
    calls: list[CallRecord]
    tools: list[ToolRecord]
    tasks: list[TaskRecord]
    samples: list[ServerSample]
    summary: dict[str, Any]
    """Empty where the run did not end."""


class RunLock:
    """A run directory that one process writes to; it is free again when that process ends, however it ends."""

    def __init__(self, directory: Path) -> None:
        self._descriptor = os.open(directory, os.O_RDONLY)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise TraceError(f"{directory}: another process writes to this run") from None
        except OSError:  # a file system without locks: nobody can be kept out
            pass

    def close(self) -> None:
        """Let others have it."""
        os.close(self._descriptor)


def forget_run(directory: Path) -> None:
    """Remove what a run left in ``directory``."""
    for name in (*RECORD_NAMES, *PAGE_NAMES):
        (directory / name).unlink(missing_ok=True)


class RunWriter:
    """Writes a run directory while the run goes on: whatever was recorded survives a kill -9.

    It holds ``run.json`` (the header), ``calls.jsonl``, ``tools.jsonl``, ``tasks.jsonl``, ``server.jsonl`` and
    ``summary.json`` (when the run has ended). A directory that holds an older run is started afresh, except by whoever
    has locked it to go on after its last whole records.

    ``together``: records are written some hundred at a time and not at once, for runs that take seconds and can be
    done again; a kill then takes the last of them.
    """

    def __init__(
        self, directory: Path, header: RunHeader, *, goes_on: RunLock | None = None, together: bool = False
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = goes_on or RunLock(directory)
        self._directory = directory
        (directory / "summary.json").unlink(missing_ok=True)
        self._together = together
        self._pending: dict[str, list[object]] = {name: [] for name in _RECORD_FILES}
        self._num_pending = 0
        # Unbuffered: each record is one write() that the kernel keeps even when this process is killed.
        self._files: dict[str, IO[bytes]] = {}
        for name in _RECORD_FILES:
            path = directory / f"{name}.jsonl"
            if goes_on is not None:
                _keep_whole_lines(path)
            self._files[name] = path.open("wb" if goes_on is None else "ab", buffering=0)
        _write_json(directory / "run.json", header)

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def call(self, record: CallRecord) -> None:
        """A model call has ended."""
        self._append("calls", record)

    def tool(self, record: ToolRecord) -> None:
        """A tool has ended."""
        self._append("tools", record)

    def task(self, record: TaskRecord) -> None:
        """A task has ended."""
        self._append("tasks", record)

    def sample(self, record: ServerSample) -> None:
        """The server was looked at."""
        self._append("server", record)

    def finish(self, header: RunHeader, summary: dict[str, Any]) -> None:
        """The run has ended: its final header and its summary replace what stood there at the start."""
        self._write_pending()  # a header that says complete comes after all that it speaks of
        _write_json(self._directory / "summary.json", summary)
        _write_json(self._directory / "run.json", header)
        self.close()

    def close(self) -> None:
        """Close the files; what was recorded stays."""
        if all(file.closed for file in self._files.values()):
            return
        try:
            self._write_pending()
        finally:
            self._lock.close()
            for file in self._files.values():
                file.close()

    def _append(self, name: str, record: object) -> None:
        if not self._together:
            self._write(name, _line(record))
            return
        self._pending[name].append(record)
        self._num_pending += 1
        if self._num_pending == _MOST_PENDING:
            self._write_pending()

    def _write_pending(self) -> None:
        self._num_pending = 0
        for name, records in self._pending.items():
            if records:
                lines, self._pending[name] = b"".join(map(_line, records)), []
                self._write(name, lines)

    def _write(self, name: str, lines: bytes) -> None:
        file = self._files[name]
        rest = lines
        try:
            while rest:  # a disk that is nearly full takes a part
                rest = rest[file.write(rest) :]
        except OSError as error:
            num_written = len(lines) - len(rest)
            file.truncate(file.tell() - num_written + lines.rfind(b"\n", 0, num_written) + 1)  # whole lines are kept
            raise OSError(error.errno, error.strerror, str(self._directory / f"{name}.jsonl")) from None


def read_run(directory: Path) -> Run:
    """A run directory as it stands: of a run that was killed, everything up to its last whole record."""
    header = read_header(directory)
    return Run(
        header=header,
        calls=list(iter_records(directory / "calls.jsonl", CallRecord, complete=header.complete)),
        tools=list(iter_records(directory / "tools.jsonl", ToolRecord, complete=header.complete)),
        tasks=list(iter_records(directory / "tasks.jsonl", TaskRecord, complete=header.complete)),
        samples=list(iter_records(directory / "server.jsonl", ServerSample, complete=header.complete)),
        summary=read_summary(directory),
    )


def read_summary(directory: Path) -> dict[str, Any]:
    """The summary of a run directory; empty where the run has not ended."""
    path = directory / "summary.json"
    return _read_json(path) if path.exists() else {}


def read_header(directory: Path) -> RunHeader:
    """The header of a run directory."""
    path = directory / "run.json"
    header_json = _read_json(path)
    version = header_json.get("schema_version")
    if version != SCHEMA_VERSION:
        raise TraceError(f"{path}: schema_version must be {SCHEMA_VERSION}, got {version!r}")
    header: RunHeader = _parse(_adapter(RunHeader), orjson.dumps(header_json), str(path))
    return header


def iter_records(path: Path, kind: Callable[..., T], *, complete: bool) -> Iterator[T]:
    """The records of one file of a run, one at a time.

    ``complete``: the run ended, so that a last line which is cut off is damage and not the moment of its death.
    """
    adapter = _adapter(kind)
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    if complete:
                        raise TraceError(
                            f"{path}:{number}: the file ends inside a record, but run.json says it is complete"
                        )
                    return
                if line != b"\n":
                    yield _parse(adapter, line, f"{path}:{number}")
    except OSError as error:
        raise TraceError(f"{path}: {_reason(error)}") from None


def keep_whole_records(directory: Path) -> None:
    """Cut off what a kill left of the last records of a run."""
    for name in _RECORD_FILES:
        _keep_whole_lines(directory / f"{name}.jsonl")


def rewrite_records(directory: Path, **records: Iterable[object]) -> None:
    """Let ``records`` (``calls=...``, ``tasks=...``) be all that the run directory has of their kind."""
    for name, kept in records.items():
        lines = b"".join(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE) for record in kept)
        _replace(directory / f"{name}.jsonl", lines)


def _write_json(path: Path, value: object) -> None:
    _replace(path, orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def _replace(path: Path, content: bytes) -> None:
    """Written beside and moved into place: a reader finds the old file or the new one, never half of one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def _line(record: object) -> bytes:
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


def _keep_whole_lines(path: Path) -> None:
    """Cut off what a kill left of a last line."""
    with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
        file.truncate(file.read().rfind(b"\n") + 1)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = orjson.loads(path.read_bytes())
    except OSError as error:
        raise TraceError(f"{path}: {_reason(error)}") from None
    except orjson.JSONDecodeError as error:
        raise TraceError(f"{path}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise TraceError(f"{path}: must hold a JSON object")
    return value


def _write_lines(file: IO[bytes] | gzip.GzipFile, trajectories: Iterable[Trajectory]) -> int:
    num_written = 0
    for trajectory in trajectories:
        file.write(trajectory_line(trajectory) + b"\n")
        num_written += 1
    return num_written


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _parse(adapter: TypeAdapter[Any], line: bytes, where: str) -> Any:
    try:
        return adapter.validate_json(line, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise TraceError(f"{where}: {field + ': ' if field else ''}{first['msg']}") from None


def _refuse_other_versions(line: bytes, where: str) -> None:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise TraceError(f"{where}: not JSON: {error}") from None
    expected = f"trajectory/{TRAJECTORY_VERSION}"
    found = value.get("replayrig") if isinstance(value, dict) else None
    if found != expected:
        got = repr(found) if isinstance(found, str) or found is None else "something else"
        raise TraceError(f'{where}: must be an object with "replayrig": "{expected}", got {got}')


def _reason(error: Exception) -> str:
    """What went wrong, without the path that the caller names already."""
    return getattr(error, "strerror", None) or str(error)
