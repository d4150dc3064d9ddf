"""What a run replays: the embedded workload by its name, or any file of trajectories."""

from __future__ import annotations

import gzip
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from traces import synth
from traces.importers import read_any
from traces.importers.log import ImportLog
from traces.jsonl import TraceError, trajectory_line
from traces.trajectory import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Trajectories to replay, and what tells them from others."""

    name: str
    trajectories: tuple[Trajectory, ...]
    digest: str
    """sha256 over the trajectories as their lines on disk; equal workloads have equal digests."""
    num_skipped: int = 0
    """Records of the file that could not be used: ``traces import`` says why."""


def load_workload(name_or_path: str, *, seed: int = 0, num_tasks: int | None = None) -> Workload:
    """The embedded workload ``name_or_path``, or else the file of that path, whichever format it has.

    ``num_tasks`` keeps the first so many tasks. ``seed`` matters to generated workloads only. Raises
    TraceError where there is no such thing or where a record of it is damaged.
    """
    log = ImportLog()
    trajectories = tuple(iter_workload(name_or_path, seed=seed, num_tasks=num_tasks, log=log))
    if not trajectories:
        raise TraceError(f"{name_or_path}: no trajectories in it")
    name = name_or_path if name_or_path in _embedded() else Path(name_or_path).name
    digest = digest_of(trajectories)
    return Workload(name=name, trajectories=trajectories, digest=digest, num_skipped=log.num_skipped)


def workload_file(workload: Workload) -> dict[str, bytes]:
    """The workload as the content of a file, by its name, for machines that do not have it; empty where all have it."""
    if workload.name in _embedded():
        return {}
    lines = b"".join(trajectory_line(trajectory) + b"\n" for trajectory in workload.trajectories)
    return {workload.name: gzip.compress(lines) if workload.name.endswith(".gz") else lines}


def iter_workload(
    name_or_path: str, *, seed: int = 0, num_tasks: int | None = None, log: ImportLog | None = None
) -> Iterator[Trajectory]:
    """The same trajectories one at a time, for workloads of any size; what is left out goes to ``log``."""
    if num_tasks is not None and num_tasks < 1:
        raise TraceError(f"num_tasks must be at least 1, got {num_tasks}")
    generate = _embedded().get(name_or_path)
    if generate is not None:
        return generate(seed, num_tasks)
    return itertools.islice(_read_file(name_or_path, ImportLog() if log is None else log), num_tasks)


def digest_of(trajectories: Iterable[Trajectory]) -> str:
    """sha256 over the trajectories' lines."""
    digest = hashlib.sha256()
    for trajectory in trajectories:
        digest.update(trajectory_line(trajectory))
        digest.update(b"\n")
    return digest.hexdigest()


def _embedded() -> dict[str, Callable[[int, int | None], Iterator[Trajectory]]]:
    return {synth.NAME: lambda seed, num_tasks: synth.generate(seed=seed, num_tasks=num_tasks)}


def _read_file(path: str, log: ImportLog) -> Iterator[Trajectory]:
    if not Path(path).exists():
        known = ", ".join(_embedded())
        raise TraceError(f"{path}: no such file, and no embedded workload of that name (known: {known})")
    return read_any(Path(path), log)
