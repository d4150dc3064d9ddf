"""What a report on a huge run costs. ``python -m benchmarks.huge_report RUN [--calls N]``.

Copies of RUN's records, each with task ids of its own and later than the one before it, become a run of N calls (by
default a million) in a temporary folder. Then ``reports`` reads it, each command in a process of its own; what it tells
of its progress is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from traces.jsonl import RunWriter, read_run
from traces.record import CallRecord, ServerSample, TaskRecord, ToolRecord

Record = TypeVar("Record", CallRecord, ToolRecord, TaskRecord, ServerSample)


def grow(source: Path, directory: Path, num_calls: int) -> None:
    """Write a run of at least ``num_calls`` calls to ``directory``, of copies of the run in ``source``."""
    run = read_run(source)
    num_copies = -(-num_calls // len(run.calls))
    makespan_s = max(task.ended_at for task in run.tasks)
    header = replace(run.header, num_tasks=len(run.tasks) * num_copies, run_id="huge", digest=None)
    with RunWriter(directory, header) as writer:
        for copy in range(num_copies):
            for call in _moved(run.calls, copy, copy * makespan_s):
                writer.call(call)
            for tool in _moved(run.tools, copy, copy * makespan_s):
                writer.tool(tool)
            for task in _moved(run.tasks, copy, copy * makespan_s):
                writer.task(task)
        for sample in run.samples:
            writer.sample(sample)
        writer.finish(header, {})


def _moved(records: list[Record], copy: int, later_s: float) -> Iterator[Record]:
    for record in records:
        changes = {
            name: value + later_s
            for name in record.__slots__
            if name.endswith("_at") and isinstance(value := getattr(record, name), float)
        }
        names = {
            name: f"{copy}-{getattr(record, name)}"
            for name in ("task_id", "agent_id", "call_id")
            if name in record.__slots__
        }
        yield replace(record, **changes, **names)  # type: ignore[arg-type]  # each kind has the fields that are named


def measure(arguments: list[str]) -> tuple[int, float, float]:
    """Exit status, seconds and peak megabytes of one command of ``reports``; its progress goes to this terminal."""
    started = time.perf_counter()
    with subprocess.Popen([sys.executable, "-m", "reports", *arguments], stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, time.perf_counter() - started, usage.ru_maxrss / 1024


def main() -> None:
    """Grow the run, then read it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--calls", type=int, default=1_000_000, metavar="N")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="replayrig-huge-") as folder:
        huge, page = Path(folder) / "huge", Path(folder) / "page.html"
        grow(options.run, huge, options.calls)
        num_bytes = sum(path.stat().st_size for path in huge.iterdir())
        num_tasks = json.loads((huge / "run.json").read_text())["num_tasks"]
        print(f"{options.calls:,} calls or a few more, {num_tasks:,} tasks, {num_bytes / 1e6:,.0f} MB")
        for arguments in (["show", str(huge), "--json"], ["show", str(huge), "--html", str(page)]):
            status, took_s, peak_mb = measure(arguments)
            print(f"reports {arguments[0]} {arguments[2]}: {took_s:.0f} s, peak {peak_mb:,.0f} MB, status {status}")
        print(f"page: {page.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
