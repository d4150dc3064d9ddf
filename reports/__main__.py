"""``reports show``, ``compare`` and ``export``: what runs measured, as a table, JSON, a page, or for other tools."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from mockserver.profile_files import write_profile
from reports.calibrate import calibrate, calibrate_table, profile_of
from reports.compare import compare
from reports.export import FORMATS, TABLES, export
from reports.fidelity import fidelity
from reports.fidelity_page import as_json, write_fidelity_page
from reports.figures import FIGURES, figure_named, figures
from reports.html import write_page
from reports.intervals import differences_as_json
from reports.load import load_run
from reports.numbers import Objectives
from reports.observations import SchedulerLimits
from reports.pictures import PICTURES, draw, find_browser
from reports.probes import probe_lines, probes
from reports.summary import parse_objectives, summary_of
from reports.terminal import print_calibration, print_comparison, print_fidelity
from reports.vllm_bench import CACHE_NOTE, read_bench
from traces.jsonl import TraceError, read_run
from traces.output import drop_output

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
        status = int(options.command(options))
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads any more; rich's consoles end with 1, too
        drop_output()
        return INVALID
    except (TraceError, ValueError, OSError) as error:
        print(f"reports: {_one_line(error)}", file=sys.stderr)
        return WRONG_INPUT
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def show(options: argparse.Namespace) -> int:
    """Print what the runs measured, side by side where there are several."""
    if options.least > 1 and (options.mock is not None or options.live):
        return _mock_against_live(options)
    if len(options.run) < options.least:
        raise ValueError(f"{options.name} needs {options.least} runs or more, got {len(options.run)}")
    comparison = compare([load_run(path) for path in options.run], _objectives(options))
    num_bytes = None if options.html is None else write_page(comparison, options.html)  # first: nobody may read on
    if options.json:
        against_first = differences_as_json(comparison.runs)
        summaries = [
            {"label": run.label, **summary_of(run.numbers), **({"against_first": found} if found else {})}
            for run, found in zip(comparison.runs, against_first, strict=True)
        ]
        print(json.dumps(summaries[0] if len(summaries) == 1 else summaries, indent=2))
    else:
        print_comparison(comparison, _console())
    _say_size(options, num_bytes)
    return FINE if comparison.is_valid else INVALID


def _mock_against_live(options: argparse.Namespace) -> int:
    if options.mock is None or not options.live or options.run:
        raise ValueError("compare needs both --mock RUN and --live RUN..., and no other runs then")
    bounds = {}
    for text in options.bound:
        name, _, percent = text.partition("=")
        try:
            bounds[name] = float(percent) / 100
        except ValueError:
            raise ValueError(f"a bound is NAME=PERCENT, for example ttft=8, got {text!r}") from None
    runs = compare([load_run(path) for path in (options.mock, *options.live)]).runs
    found = fidelity(runs[0], runs[1:], bounds)
    num_bytes = None if options.html is None else write_fidelity_page(found, options.html)
    if options.json:
        print(json.dumps(as_json(found), indent=2))
    else:
        print_fidelity(found, _console())
    _say_size(options, num_bytes)
    return FINE if found.is_close and all(run.is_valid for run in runs) else INVALID


def export_runs(options: argparse.Namespace) -> int:
    """Write runs, or one figure of them, for another tool."""
    if options.list_figures:
        print("\n".join(FIGURES))
        return FINE
    if not options.run:
        raise ValueError("export needs a run's directory")
    suffix = options.output.suffix.removeprefix(".") if options.output else ""
    to = options.to or (suffix if suffix in (*FORMATS, *PICTURES) else "csv")
    if to in PICTURES and options.figure is None:
        return _export_all_charts(options, to)
    comparison = compare([load_run(path) for path in options.run])
    if to in PICTURES:
        shown = [figure_named(comparison, options.figure)]
        (content,) = draw(shown, comparison, to=to, browser=find_browser(options.browser))
    else:
        content = export(comparison, what=options.what, to=to, figure=options.figure)
    if options.output is not None:
        options.output.write_bytes(content)
    else:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    return FINE


def _export_all_charts(options: argparse.Namespace, to: str) -> int:
    """Every chart of the page as a picture, a file each."""
    folder: Path | None = options.output
    if folder is None or folder.suffix.removeprefix(".") in PICTURES:
        raise ValueError(f"--to {to} writes one chart with --figure NAME, or all of them into a folder: -o FOLDER")
    browser = find_browser(options.browser)
    comparison = compare([load_run(path) for path in options.run])
    shown = figures(comparison)
    folder.mkdir(parents=True, exist_ok=True)
    for figure, content in zip(shown, draw(shown, comparison, to=to, browser=browser), strict=True):
        (folder / f"{figure.name}.{to}").write_bytes(content)
    print(f"{folder}: {len(shown)} charts")
    return FINE


def calibrate_server(options: argparse.Namespace) -> int:
    """Fit what a live server's work costs, and write it as a profile for the mock server."""
    limits = SchedulerLimits(
        max_num_batched_tokens=options.max_num_batched_tokens, is_async=not options.no_async_scheduling
    )
    header, samples = None, []
    if options.csv is not None:
        calibration = calibrate_table(options.csv)
    elif options.live:
        runs = [read_run(directory) for directory in options.live]
        header, samples = runs[0].header, [sample for run in runs for sample in run.samples]
        calibration = calibrate([run.calls for run in runs], limits)
    elif options.vllm_bench:
        found = read_bench(options.vllm_bench, limits)
        calibration = calibrate(found.runs, limits, batches=found.batches)
        if found.runs:
            calibration = replace(calibration, notes=(*calibration.notes, CACHE_NOTE))
    else:
        raise ValueError("calibrate needs --live RUN..., --vllm-bench FILE... or --csv FILE")
    if options.output is not None:
        profile = profile_of(
            calibration,
            name=options.output.stem,
            header=header,
            samples=samples,
            max_model_len=options.max_model_len,
        )
        write_profile(options.output, profile)
    print_calibration(calibration, _console())
    if options.output is not None:
        print(f"profile: {options.output} (mockserver --profile {options.output})")
    return FINE


def list_probes(options: argparse.Namespace) -> int:
    """Print the requests to send to a live server, one JSON object a line, so that all of its cost can be fitted."""
    found = probes(max_model_len=options.max_model_len, max_num_seqs=options.max_num_seqs, repeats=options.repeats)
    print(probe_lines(found), end="")
    return FINE


def _say_size(options: argparse.Namespace, num_bytes: int | None) -> None:
    if num_bytes is not None and not options.json:
        print(f"{options.html}: {num_bytes / 1e6:.1f} MB, opens in a browser without a network")


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
        command.add_argument(
            "run", nargs="+" if least == 1 else "*", type=Path, metavar="RUN", help="a run's directory"
        )
        command.add_argument("--json", action="store_true", help="print the numbers as JSON")
        command.add_argument("--html", type=Path, metavar="FILE", help="write one self-contained page")
        command.add_argument(
            "--goodput", nargs="+", default=(), metavar="NAME:MS", help="objectives: ttft:500 tpot:50 e2el:10000"
        )
        command.set_defaults(command=show, least=least, name=name)
        if name == "compare":
            command.add_argument(
                "--mock", type=Path, metavar="RUN", help="a run on the mock, to hold against live ones"
            )
            command.add_argument("--live", nargs="+", type=Path, metavar="RUN", help="runs on the live server")
            command.add_argument(
                "--bound", nargs="+", default=(), metavar="NAME=%", help="largest median errors: ttft=8 tpot=5 e2e=5"
            )
    _add_export(commands)
    _add_calibrate(commands)
    _add_probes(commands)
    return parser


def _add_export(commands: Any) -> None:
    command = commands.add_parser(
        "export", help="a run, or one figure, for other tools", description=export_runs.__doc__
    )
    command.add_argument("run", nargs="*", type=Path, metavar="RUN", help="a run's directory")
    command.add_argument("--what", choices=TABLES, default="calls", help="which records (default: calls)")
    command.add_argument(
        "--to", choices=(*FORMATS, "perfetto", "vllm", *PICTURES), help="format (default: by the file's name, else csv)"
    )
    command.add_argument("--figure", metavar="NAME", help="one figure of the page: its numbers, or svg, png")
    command.add_argument("--list-figures", action="store_true", help="print the names of the figures")
    command.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to write (default: stdout)")
    command.add_argument(
        "--browser", type=Path, metavar="FILE", help="Chromium or Chrome that draws svg and png (default: the PATH's)"
    )
    command.set_defaults(command=export_runs)


def _add_calibrate(commands: Any) -> None:
    text = "a live server's cost, as a profile for the mock server"
    command = commands.add_parser("calibrate", help=text, description=calibrate_server.__doc__)
    command.add_argument("--live", nargs="+", type=Path, metavar="RUN", help="runs against the live server")
    command.add_argument(
        "--vllm-bench",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="what vllm bench serve --save-detailed or bench latency wrote instead",
    )
    command.add_argument(
        "--csv", type=Path, metavar="FILE", help="measured steps instead: prefill_tokens, decode_seqs, context, ms"
    )
    command.add_argument("-o", "--output", type=Path, metavar="FILE.toml", help="where to write the profile")
    command.add_argument("--max-num-batched-tokens", type=int, default=8192, metavar="N", help="the server's setting")
    command.add_argument("--max-model-len", type=int, default=262_144, metavar="N", help="the server's setting")
    command.add_argument("--no-async-scheduling", action="store_true", help="the server schedules synchronously")
    command.set_defaults(command=calibrate_server)


def _add_probes(commands: Any) -> None:
    text = "the requests that let calibrate determine everything"
    command = commands.add_parser("probes", help=text, description=list_probes.__doc__)
    command.add_argument("--max-model-len", type=int, default=32_768, metavar="N", help="the server's setting")
    command.add_argument("--max-num-seqs", type=int, default=256, metavar="N", help="the server's setting")
    command.add_argument("--repeats", type=int, default=3, metavar="N", help="how often each is sent")
    command.set_defaults(command=list_probes)


if __name__ == "__main__":
    sys.exit(main())
