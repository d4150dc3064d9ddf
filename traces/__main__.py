"""The command line ``traces``: import, export, synth, stats, sample, filter, scale, anonymize."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from traces import commands, synth
from traces.exporters import EXPORTERS
from traces.importers import FORMATS
from traces.jsonl import TraceError
from traces.output import drop_output

_WORKLOAD = f"{synth.NAME}, or a file in any format that import knows"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 fine, 2 wrong usage or input (one line on stderr), 130 interrupted."""
    options = _parser().parse_args(arguments)
    try:
        exit_code: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
        return 0
    except (TraceError, OSError) as error:
        print(f"traces: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="traces", description="Trajectories: in, out, and made to measure.")
    subparsers = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        added = subparsers.add_parser(name, help=text, description=text)
        added.set_defaults(run=run)
        return added

    _import_options(command("import", commands.run_import, "turn recordings of other tools into trajectories"))
    export = command("export", commands.run_export, "turn trajectories into another tool's format")
    export.add_argument("workload", help=_WORKLOAD)
    export.add_argument("--format", required=True, choices=sorted(EXPORTERS))
    _out(export)

    made = command("synth", commands.run_synth, "write a generated workload")
    made.add_argument("name", nargs="?", default=synth.NAME, choices=[synth.NAME])
    made.add_argument("--like", metavar="FILE", help="with the statistics of these trajectories and none of their text")
    _out(made)
    _seed_and_number(made)

    stats = command("stats", commands.run_stats, "what a workload is like, in numbers")
    stats.add_argument("workload", help=_WORKLOAD)
    how = stats.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print JSON instead of tables")
    how.add_argument("--html", type=Path, metavar="FILE", help="write a page with charts")
    _seed_and_number(stats)

    some = command("sample", commands.run_sample, "keep some tasks, drawn at random")
    some.add_argument("workload", help=_WORKLOAD)
    some.add_argument("-n", type=_at_least_one, required=True, metavar="N", help="how many")
    some.add_argument("--seed", type=int, default=0)
    _out(some)
    _filter_options(command("filter", commands.run_filter, "keep the tasks that fit"))
    _scale_options(command("scale", commands.run_scale, "change lengths, delays and arrivals by factors"))

    anonymous = command("anonymize", commands.run_anonymize, "take the text out; keep counts, sharing and shape")
    anonymous.add_argument("workload", help=_WORKLOAD)
    anonymous.add_argument("--secret", help="so that another run gives the same (default: a random one)")
    _out(anonymous)
    return parser


def _import_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("files", nargs="+", metavar="FILE", help="files, folders, globs, or - for stdin")
    _out(command)
    command.add_argument("--format", choices=sorted(FORMATS), help="do not recognise it by the content")
    command.add_argument("--strict", action="store_true", help="stop at the first record that cannot be used")


def _filter_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("workload", help=_WORKLOAD)
    command.add_argument(
        "--domain", action="append", default=[], metavar="D", help="tasks that use its tools; may be repeated"
    )
    for name in ("min-calls", "max-calls", "min-prompt-tokens", "max-prompt-tokens"):
        command.add_argument(f"--{name}", type=_at_least_one, metavar="N")
    command.add_argument("--with-fan-out", action="store_true", help="tasks in which an agent spawned others")
    _out(command)


def _scale_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("workload", help=_WORKLOAD)
    command.add_argument("--tokens", type=float, default=1.0, metavar="F", help="all lengths; texts become filler")
    command.add_argument("--delays", type=float, default=1.0, metavar="F", help="delays and tool latencies")
    command.add_argument(
        "--arrivals", type=float, default=1.0, metavar="F", help="when tasks start; 0.5: twice the load"
    )
    _out(command)


def _out(command: argparse.ArgumentParser) -> None:
    command.add_argument("-o", "--out", type=Path, required=True, help="the file to write; gzipped if it ends in .gz")


def _seed_and_number(command: argparse.ArgumentParser) -> None:
    command.add_argument("--seed", type=int, default=0, help="of a generated workload (default: 0)")
    command.add_argument("--num-tasks", type=_at_least_one, metavar="N", help="only N tasks")


def _at_least_one(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}") from None
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


if __name__ == "__main__":
    sys.exit(main())
