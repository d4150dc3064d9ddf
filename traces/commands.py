"""What the commands of ``traces`` do, given their options. Each returns the exit code."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

import orjson
from rich.console import Console
from rich.text import Text

from traces import synth
from traces.anonymize import Anonymizer
from traces.counts import Counts
from traces.exporters import export_file
from traces.importers import import_files
from traces.importers.log import ImportLog
from traces.jsonl import TraceError, write_trajectories
from traces.like import workload_like
from traces.stats import measure
from traces.stats_page import stats_page
from traces.stats_table import import_summary, notes, stats_tables
from traces.trajectory import Trajectory
from traces.transform import Filter, Scale, kept, sample
from traces.workload import iter_workload, load_workload


def run_import(options: argparse.Namespace) -> int:
    """Recordings of other tools to trajectories."""
    log = ImportLog(strict=options.strict)
    counts = Counts()
    trajectories = counts.watch(import_files(options.files, log, format_name=options.format))
    first = next(trajectories, None)
    console = _console()
    if first is None:
        console.print(import_summary(log, counts))
        raise TraceError("nothing imported")
    write_trajectories(options.out, _chain(first, trajectories))
    console.print(import_summary(log, counts))
    console.print(Text(f"{options.out}: {counts.num_tasks:,} tasks"))
    return 0


def run_export(options: argparse.Namespace) -> int:
    """Trajectories to another tool's format."""
    log = ImportLog()
    num_tasks = export_file(options.out, _workload(options), options.format, log)
    console = _console()
    for line in notes("not in the format, or made up:", log.num_by_note):
        console.print(Text(line))
    console.print(Text(f"{options.out}: {num_tasks:,} tasks in the format {options.format}"))
    return 0


def run_synth(options: argparse.Namespace) -> int:
    """A generated workload."""
    if options.like is None:
        return _write(options.out, synth.generate(seed=options.seed, num_tasks=options.num_tasks))
    name = Path(options.like).name
    old = iter_workload(options.like)
    return _write(options.out, workload_like(old, name=name, seed=options.seed, num_tasks=options.num_tasks))


def run_stats(options: argparse.Namespace) -> int:
    """What a workload is like, in numbers."""
    workload = load_workload(options.workload, seed=options.seed, num_tasks=options.num_tasks)
    stats = measure(workload.trajectories)
    console = _console()
    if options.json:
        about = {"workload": workload.name, "digest": workload.digest, "num_skipped": workload.num_skipped}
        content = {**about, **asdict(stats)}
        console.print(Text(orjson.dumps(content, option=orjson.OPT_INDENT_2).decode()))
        return 0
    if options.html is not None:
        options.html.write_text(stats_page(workload.name, stats), encoding="utf-8")
        console.print(Text(str(options.html)))
        return 0
    for table in stats_tables(workload.name, stats, num_skipped=workload.num_skipped):
        Console(highlight=False).print(table)
    return 0


def run_sample(options: argparse.Namespace) -> int:
    """Some of the tasks."""
    return _write(options.out, sample(_workload(options), options.n, seed=options.seed))


def run_filter(options: argparse.Namespace) -> int:
    """Those of the tasks that fit."""
    wanted = Filter(
        domains=frozenset(options.domain),
        min_calls=options.min_calls,
        max_calls=options.max_calls,
        min_prompt_tokens=options.min_prompt_tokens,
        max_prompt_tokens=options.max_prompt_tokens,
        with_fan_out=options.with_fan_out,
    )
    return _write(options.out, kept(_workload(options), wanted))


def run_scale(options: argparse.Namespace) -> int:
    """The tasks in other sizes or at other times."""
    try:
        scale = Scale(tokens=options.tokens, delays=options.delays, arrivals=options.arrivals)
    except ValueError as error:
        raise TraceError(str(error)) from None
    return _write(options.out, map(scale.apply, _workload(options)))


def run_anonymize(options: argparse.Namespace) -> int:
    """The tasks without their text."""
    return _write(options.out, map(Anonymizer(options.secret).apply, _workload(options)))


def _workload(options: argparse.Namespace) -> Iterator[Trajectory]:
    return iter_workload(options.workload)


def _write(path: Path, trajectories: Iterable[Trajectory]) -> int:
    trajectories = iter(trajectories)
    first = next(trajectories, None)
    if first is None:
        raise TraceError("no tasks are left")
    num_written = write_trajectories(path, _chain(first, trajectories))
    _console().print(Text(f"{path}: {num_written:,} tasks"))
    return 0


def _chain(first: Trajectory, rest: Iterator[Trajectory]) -> Iterator[Trajectory]:
    yield first
    yield from rest


def _console() -> Console:
    return Console(highlight=False, soft_wrap=True)
