"""``reports show`` and ``reports compare``: what runs measured, in the terminal, as JSON or as a page."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from reports.compare import Comparison, compare
from reports.html import write_page
from reports.load import load_run
from reports.numbers import Objectives
from reports.summary import parse_objectives, summary_of
from reports.terminal import print_comparison
from traces.jsonl import TraceError

FINE, INVALID, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130


class _Parser(argparse.ArgumentParser):
    """One line on stderr for a wrong option, as for every other wrong input."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and leave."""
        self.exit(WRONG_INPUT, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the return value is the exit status."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except (TraceError, ValueError, OSError) as error:
        print(f"reports: {_one_line(error)}", file=sys.stderr)
        return WRONG_INPUT
    except KeyboardInterrupt:
        return INTERRUPTED


def show(options: argparse.Namespace) -> int:
    """Print what the runs measured, side by side where there are several."""
    if len(options.run) < options.least:
        raise ValueError(f"compare needs two runs or more, got {len(options.run)}")
    comparison = compare([load_run(path) for path in options.run], _objectives(options))
    if options.json:
        summaries = [{"label": run.label, **summary_of(run.numbers)} for run in comparison.runs]
        print(json.dumps(summaries[0] if len(summaries) == 1 else summaries, indent=2))
    else:
        print_comparison(comparison, _console())
    if options.html is not None:
        _write_html(comparison, options.html, quiet=options.json)
    return FINE if comparison.is_valid else INVALID


def _write_html(comparison: Comparison, path: Path, *, quiet: bool) -> None:
    num_bytes = write_page(comparison, path)
    if not quiet:
        print(f"{path}: {num_bytes / 1e6:.1f} MB, opens in a browser without a network")


def _console() -> Console:
    """As wide as the terminal; what is piped into a file is not cut at 80 columns."""
    console = Console(highlight=False)
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(highlight=False, width=160)


def _objectives(options: argparse.Namespace) -> Objectives:
    return parse_objectives(options.goodput)


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="reports", description="What runs measured: tables, pages, comparisons.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, least, text in (
        ("show", 1, "one or more runs"),
        ("compare", 2, "two or more runs, side by side"),
    ):
        command = commands.add_parser(name, help=text, description=f"Show {text}.")
        command.add_argument("run", nargs="+", type=Path, metavar="RUN", help="a run's directory")
        command.add_argument("--json", action="store_true", help="print the numbers as JSON")
        command.add_argument("--html", type=Path, metavar="FILE", help="write one self-contained page")
        command.add_argument(
            "--goodput", nargs="+", default=(), metavar="NAME:MS", help="objectives: ttft:500 tpot:50 e2el:10000"
        )
        command.set_defaults(command=show, least=least)
    return parser


if __name__ == "__main__":
    sys.exit(main())
