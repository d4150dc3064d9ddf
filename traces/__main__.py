"""The command line ``traces``: import, synth, stats, export."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import orjson
from rich.console import Console

from traces import synth
from traces.importers import FORMATS, import_files
from traces.importers.log import ImportLog
from traces.jsonl import TraceError, write_trajectories
from traces.stats import measure
from traces.stats_table import import_summary, stats_tables
from traces.trajectory import Trajectory
from traces.workload import load_workload


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 fine, 2 wrong usage or input (one line on stderr)."""
    options = _parser().parse_args(arguments)
    try:
        exit_code: int = options.run(options)
    except (TraceError, OSError) as error:
        print(f"traces: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="traces", description="Trajectories in and out.")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    command = commands.add_parser("import", help="turn recordings of other tools into trajectories")
    command.add_argument("files", nargs="+", metavar="FILE", help="files, folders, globs, or - for stdin")
    command.add_argument("-o", "--out", type=Path, required=True, help="FILE.jsonl, or FILE.jsonl.gz")
    command.add_argument("--format", choices=sorted(FORMATS), help="do not recognise it from the content")
    command.add_argument("--strict", action="store_true", help="stop at the first record that cannot be used")
    command.set_defaults(run=_import)

    command = commands.add_parser("synth", help="write a generated workload")
    command.add_argument("name", nargs="?", default=synth.NAME, choices=[synth.NAME])
    command.add_argument("-o", "--out", type=Path, required=True, help="FILE.jsonl, or FILE.jsonl.gz")
    _add_workload_options(command)
    command.set_defaults(run=_synth)

    command = commands.add_parser("stats", help="what a workload is like, in numbers")
    command.add_argument("workload", help=f"{synth.NAME}, or a file in any known format")
    command.add_argument("--json", action="store_true", help="print JSON instead of tables")
    _add_workload_options(command)
    command.set_defaults(run=_stats)
    return parser


def _add_workload_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--seed", type=int, default=0, help="of a generated workload (default: 0)")
    command.add_argument("--num-tasks", type=_at_least_one, metavar="N", help="only the first N tasks")


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def _import(options: argparse.Namespace) -> int:
    log = ImportLog(strict=options.strict)
    counts = _Counts()
    trajectories = import_files(options.files, log, format_name=options.format)
    write_trajectories(options.out, counts.watch(trajectories))
    console = Console(highlight=False, soft_wrap=True)
    console.print(import_summary(log, num_calls=counts.num_calls, num_tool_calls=counts.num_tool_calls))
    if not counts.num_tasks:
        raise TraceError("nothing imported")
    console.print(f"{options.out}: {counts.num_tasks} tasks")
    return 0


class _Counts:
    """Counts trajectories on their way."""

    def __init__(self) -> None:
        self.num_tasks = 0
        self.num_calls = 0
        self.num_tool_calls = 0

    def watch(self, trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
        for trajectory in trajectories:
            self.num_tasks += 1
            self.num_calls += trajectory.num_calls
            self.num_tool_calls += trajectory.num_tool_calls
            yield trajectory


def _synth(options: argparse.Namespace) -> int:
    trajectories = synth.generate(seed=options.seed, num_tasks=options.num_tasks)
    num_written = write_trajectories(options.out, trajectories)
    print(f"{options.out}: {num_written} tasks")
    return 0


def _stats(options: argparse.Namespace) -> int:
    workload = load_workload(options.workload, seed=options.seed, num_tasks=options.num_tasks)
    stats = measure(workload.trajectories)
    if options.json:
        content = {"workload": workload.name, "digest": workload.digest, **asdict(stats)}
        print(orjson.dumps(content, option=orjson.OPT_INDENT_2).decode())
        return 0
    console = Console(highlight=False)
    for table in stats_tables(workload.name, stats):
        console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
