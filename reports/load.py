"""Run directories into columns."""

from __future__ import annotations

from pathlib import Path

from reports.measure import RunColumns, collect
from traces.jsonl import TraceError, read_run


def load_run(directory: Path) -> RunColumns:
    """The run that was written to ``directory``; ``TraceError`` says in one line what is wrong with it."""
    if not directory.is_dir():
        raise TraceError(f"{directory}: no such run directory")
    if not (directory / "run.json").is_file():
        raise TraceError(f"{directory}: holds no run (run.json is missing)")
    run = read_run(directory)
    return collect(header=run.header, calls=run.calls, tools=run.tools, tasks=run.tasks, samples=run.samples)
