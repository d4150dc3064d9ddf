"""Every recording in a folder, replayed whole in virtual time: as recorded, and cut anew.

    python -m benchmarks.recordings FOLDER [--architectures recorded react orchestrator] [--timeout 600]

Each run is a ``loadgen run`` in a process of its own (a fork: nothing is imported again). A line a file: its format,
tasks and calls, then each architecture's makespan in simulated seconds, and what it cost. ``!`` marks a run that
failed; what it said follows. Files in no known format are passed over.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadgen.commands import main as loadgen
from mockserver import tokens
from traces.importers import recognise
from traces.importers.sources import find_sources

ARCHITECTURES = ("recorded", "react", "orchestrator")
_CRASHED = 70
MAX_MODEL_LEN = 1_000_000
"""Recorded prompts may be longer than the profile's model takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """One run of one file."""

    exit_code: int
    summary: dict[str, Any] | None
    complaint: str
    cpu_s: float
    peak_mb: float

    @property
    def is_fine(self) -> bool:
        """Every task ended, and every call was answered."""
        one = self.summary
        return (
            self.exit_code == 0
            and one is not None
            and one["failed"] == 0
            and one["num_tasks_succeeded"] == one["num_tasks"]
        )


def recordings(folder: Path) -> Iterator[tuple[Path, str]]:
    """The files under ``folder`` that are in a format we know, and which."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        for source in find_sources([str(path)]):
            name = recognise(source)
            if name is not None:
                yield path, name


def replayed(path: Path, architecture: str, *, timeout_s: float) -> Replay:
    """``path`` whole, in virtual time."""
    with tempfile.TemporaryDirectory(prefix="replayrig-") as scratch:
        options = ["--workload", str(path), "--architecture", architecture, "--clock", "virtual", "--no-live"]
        options += ["--max-model-len", str(MAX_MODEL_LEN), "--out", scratch]
        output = Path(scratch, "output")
        exit_code, usage = _run(["run", *options], output, timeout_s)
        lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
        found = Path(scratch, "summary.json")
        return Replay(
            exit_code=exit_code,
            summary=json.loads(found.read_bytes()) if found.exists() else None,
            complaint=lines[-1] if lines else "",
            cpu_s=usage.ru_utime + usage.ru_stime,
            peak_mb=usage.ru_maxrss / 1024,
        )


def _run(argv: list[str], output: Path, timeout_s: float) -> tuple[int, Any]:
    """The exit code of ``loadgen`` with these arguments and what it used; a run that takes too long is killed."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        with output.open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        exit_code = _CRASHED
        try:
            exit_code = loadgen(argv)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(exit_code)
    gives_up_at = time.monotonic() + timeout_s
    while True:
        process_id, status, usage = os.wait4(child, os.WNOHANG)
        if process_id:
            return os.waitstatus_to_exitcode(status), usage
        if time.monotonic() > gives_up_at:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)


def row(path: Path, name: str, replays: dict[str, Replay]) -> str:
    """One file as a line of a Markdown table."""
    first = next(iter(replays.values()))
    counts = [str(first.summary["num_tasks"]), str(first.summary["completed"])] if first.summary else ["", ""]
    makespans = [
        f"{one.summary['makespan_s']:,.1f}" if one.is_fine and one.summary else f"! {one.exit_code}"
        for one in replays.values()
    ]
    cost = f"{sum(one.cpu_s for one in replays.values()):.1f} s, {max(one.peak_mb for one in replays.values()):.0f} MB"
    return "| " + " | ".join([str(path), name, *counts, *makespans, cost]) + " |"


def main() -> int:
    """Print the table; 1 where a run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--architectures", nargs="+", default=list(ARCHITECTURES))
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for one run")
    given = parser.parse_args()
    columns = ["file", "format", "tasks", "calls", *given.architectures, "CPU, memory"]
    print("| " + " | ".join(columns) + " |\n|" + " --- |" * len(columns), flush=True)
    complaints = []
    tokens.encoding()
    for module in ("compare", "load", "measure", "summary", "terminal"):  # what a run imports late, once for all
        importlib.import_module(f"reports.{module}")
    for path, name in recordings(given.folder):
        replays = {one: replayed(path, one, timeout_s=given.timeout) for one in given.architectures}
        print(row(path.relative_to(given.folder), name, replays), flush=True)
        complaints += [f"{path}, {one}: {run.complaint}" for one, run in replays.items() if not run.is_fine]
    print("\n".join(complaints))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
