"""The command line: ``loadgen run``, ``loadgen experiment``, ``loadgen sweep`` and ``loadgen resume``."""

from __future__ import annotations

import argparse
import gc
import os
import select
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rich.console import Console

from loadgen import experiment, kv, resume, sandbox_needs, sweep
from loadgen.architectures import short_name
from loadgen.config import OWN_MOCK, Settings
from loadgen.live import LiveView
from loadgen.perform import Outcome, RunError, perform
from loadgen.recorder import LagLimit
from loadgen.sources import READER
from loadgen.target import TargetError
from loadgen.twin import kept_twin, virtual_twin
from mockserver.settings import OneLineParser, SettingsError, dashed
from traces.jsonl import TraceError
from traces.output import drop_output
from traces.workload import Workload, load_workload

if TYPE_CHECKING:
    from reports.measure import RunColumns
    from reports.numbers import Numbers

CALCULATORS = {one.NAME: one for one in (kv, sandbox_needs)}
"""Commands that print arithmetic and run nothing."""
RESUME, PROBE = "resume", "probe"
EXIT_FINE, EXIT_INVALID, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    try:
        return _command(sys.argv[1:] if argv is None else list(argv))
    except KeyboardInterrupt:
        print("loadgen: interrupted before anything was measured", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError as error:
        if _is_read():
            print(f"loadgen: {_one_line(error)}", file=sys.stderr)
        else:
            drop_output()
        return EXIT_INVALID
    except RunError as error:
        print(f"loadgen: {_one_line(error)}", file=sys.stderr)
        if sys.flags.dev_mode:
            raise
        return EXIT_INVALID
    except (SettingsError, TraceError, TargetError, ValueError, OSError) as error:
        print(f"loadgen: {_one_line(error)}", file=sys.stderr)
        return EXIT_USAGE


def _command(arguments: Sequence[str]) -> int:
    if arguments[:1] == [PROBE]:
        from loadgen import probe  # noqa: PLC0415  (what sends calls over HTTP is slow to import)

        return probe.main(arguments[1:])
    flags = vars(_parser().parse_args([dashed(one) for one in arguments]))
    command = flags.pop("command")
    if command in CALCULATORS:
        print("\n".join(CALCULATORS[command].lines(flags)))
        return EXIT_FINE
    asked = None
    again = None
    if command == RESUME:
        again = Again(directory=Path(flags.pop("directory")), retry_failed=flags.pop("retry_failed", False))
        asked = resume.find(again.directory)
        command = asked.command
    settings = READER.load(flags, os.environ) if asked is None else resume.settings_of(asked, flags, os.environ)
    settings = _with_key(settings)
    _check(settings)
    workload = load_workload(settings.workload, seed=settings.seed, num_tasks=settings.num_tasks)
    gc.freeze()
    return _COMMANDS[command](settings, workload, again)


def _with_key(settings: Settings) -> Settings:
    """A server at a URL gets OPENAI_API_KEY where no other key is given, as from vLLM's own client."""
    if settings.is_own_machine or settings.api_key is not None:
        return settings
    return replace(settings, api_key=os.environ.get("OPENAI_API_KEY"))


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="loadgen", description="Replay agents against a model server.", allow_abbrev=False)
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="|".join((*_COMMANDS, RESUME, *CALCULATORS, PROBE))
    )
    for name, text in (
        ("run", "one architecture over one workload against one target"),
        ("experiment", "the reference experiment: ReAct and orchestrator, cache off and on, on the same tasks"),
        ("sweep", "the same run at one load after the other, or in search of the largest that is good enough"),
    ):
        command = commands.add_parser(
            name, help=text, description=text, argument_default=argparse.SUPPRESS, allow_abbrev=False
        )
        READER.add_flags(command, name)
    text = "a run that was broken off goes on in its own directory, at the next unfinished call of each task"
    command = commands.add_parser(
        RESUME, help=text, description=text, argument_default=argparse.SUPPRESS, allow_abbrev=False
    )
    command.add_argument("directory", metavar="DIR", help="what the run was written to")
    command.add_argument("--retry-failed", action="store_true", help="send calls that failed once more")
    READER.add_flags(command, names=resume.OVERRIDES)
    for name, calculator in CALCULATORS.items():
        command = commands.add_parser(name, help=calculator.HELP, description=calculator.HELP, allow_abbrev=False)
        calculator.add_flags(command)
    commands.add_parser(
        PROBE, help="send the requests to a live server that let reports calibrate determine its cost"
    )  # reads its own flags
    return parser


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """What is resumed, and how; the commands are given None where they start."""

    directory: Path
    retry_failed: bool = False
    """Send calls that failed once more."""


def _run(settings: Settings, workload: Workload, again: Again | None) -> int:
    run_id = f"{workload.name}-{short_name(settings.architecture)}-{_stamp()}"
    directory = again.directory if again else Path(settings.out or f"runs/{run_id}")
    twin = _kept_twin(settings, workload)
    if settings.repeat == 1:
        if again is None:
            (directory / resume.PLAN).unlink(missing_ok=True)  # of what was here before
        return _tell([_one(settings, workload, directory, run_id, again, twin=twin)])
    twin = twin or _twin(settings, workload)
    outcomes: list[Outcome] = []
    _plan(directory, "run", settings, again)
    for number in range(settings.repeat):
        name = f"repeat-{number + 1}"
        other = replace(settings, seed=settings.seed + number)
        outcomes.append(_one(other, workload, directory / name, f"{run_id}-{name}", again, twin=twin))
        if outcomes[-1].interrupted:
            break
    return _tell(outcomes)


def _experiment(settings: Settings, workload: Workload, again: Again | None) -> int:
    directory = again.directory if again else Path(settings.out or f"runs/experiment-{_stamp()}")
    outcomes: list[Outcome] = []
    cells = list(experiment.cells(settings))
    # All of them are looked at before anything is run.
    kept = {cell.name: _kept_twin(cell.settings, workload, cell.name) for cell in cells}
    _plan(directory, "experiment", settings, again)
    for cell in cells:
        outcomes.append(_one(cell.settings, workload, directory / cell.name, cell.name, again, twin=kept[cell.name]))
        if outcomes[-1].interrupted:
            break
    if settings.is_virtual:
        print(f"digest: {experiment.digest_of(outcomes)}")
    return _tell(outcomes)


def _sweep(settings: Settings, workload: Workload, again: Again | None) -> int:
    directory = again.directory if again else Path(settings.out or f"runs/sweep-{_stamp()}")
    _plan(directory, "sweep", settings, again)
    points = sweep.sweep(settings, lambda point, name: _one(point, workload, directory / name, name, again))
    code = _tell([point.outcome for point in points])
    if settings.goodput:
        print(sweep.verdict(settings, points))
    return code


def _plan(directory: Path, command: str, settings: Settings, again: Again | None) -> None:
    if again is None:
        resume.write_plan(directory, command, settings)


def _one(
    settings: Settings,
    workload: Workload,
    directory: Path,
    run_id: str,
    again: Again | None,
    *,
    twin: Outcome | None = None,
) -> Outcome:
    """One run, or what is left of it."""
    header = resume.header_of(directory) if again else None
    if header is None:
        return _at_its_scale(settings, workload, directory, run_id, twin or _twin(settings, workload))
    assert again is not None, "there is a header to go on from"
    resume.check_workload(header, workload)
    if header.complete and not again.retry_failed:
        print(f"{directory}: the run is complete, there is nothing to resume")
        return Outcome.of(directory)
    # An automatic scale and all that comes with it stay as they were found.
    settings = replace(settings, stream_interval=header.settings.get("stream_interval"))
    scale = header.time_scale or 1.0
    return _perform(settings, workload, directory, run_id=header.run_id, time_scale=scale, again=again)


_COMMANDS = {"run": _run, "experiment": _experiment, "sweep": _sweep}


def _at_its_scale(
    settings: Settings, workload: Workload, directory: Path, run_id: str, twin: Outcome | None
) -> Outcome:
    """One run; over HTTP at the scale that was asked for, or else at one that this machine turns out to carry."""
    if twin is None or settings.fixed_time_scale is not None:
        outcome = _perform(settings, workload, directory, run_id=run_id, time_scale=settings.fixed_time_scale or 1.0)
    else:
        time_scale = experiment.carried_time_scale(twin)
        settings = replace(settings, stream_interval=settings.stream_interval or experiment.STREAM_INTERVAL)
        limit = experiment.lag_limit(twin)
        too_fast: list[str] = []
        for _ in range(experiment.MOST_TRIES):
            outcome = _perform(
                settings,
                workload,
                directory,
                run_id=run_id,
                time_scale=time_scale,
                lag_limit=limit,
                notes={"tries": f"too fast for this machine: {', '.join(too_fast)}"} if too_fast else {},
            )
            if not experiment.is_too_fast(outcome) or time_scale <= 1.0:
                break
            print(f"{run_id}: this machine does not carry {time_scale:g}x now", flush=True)
            too_fast.append(f"{time_scale:g}x")
            time_scale = max(float(f"{time_scale * experiment.SLOWER:.3g}"), 1.0)
    if twin is not None and not outcome.interrupted:
        _compare_with_twin(outcome, twin)
    return outcome


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y%m%d-%H%M%S")


def _twin(settings: Settings, workload: Workload) -> Outcome | None:
    """The run in virtual time; None where the machine is not ours to copy."""
    if settings.target != OWN_MOCK:
        return None
    with tempfile.TemporaryDirectory(prefix="replayrig-") as scratch:
        twin = virtual_twin(settings)
        return _perform(replace(twin, live=False), workload, Path(scratch), run_id="virtual twin")


def _kept_twin(settings: Settings, workload: Workload, name: str = "") -> Outcome | None:
    """The same from before, where ``--twins`` says where."""
    return None if settings.twins is None else kept_twin(Path(settings.twins) / name, settings, workload.digest)


def _perform(
    settings: Settings,
    workload: Workload,
    directory: Path,
    *,
    run_id: str,
    time_scale: float = 1.0,
    lag_limit: LagLimit | None = None,
    notes: Mapping[str, str] | None = None,
    again: Again | None = None,
) -> Outcome:
    from reports import measure, summary  # noqa: PLC0415  (numpy is not needed to refuse a flag)

    objectives = summary.parse_objectives(settings.goodput)
    measured: list[tuple[RunColumns, Numbers]] = []

    def summarize(**records: Any) -> dict[str, Any]:
        columns = measure.collect(**records)
        measured.append((columns, summary.numbers_of(columns, objectives)))
        return summary.summary_of(measured[-1][1])

    if settings.has_workers:
        from loadgen.workers import perform_with_workers  # noqa: PLC0415  (as for the probe)

        outcome = perform_with_workers(
            settings,
            workload,
            directory,
            summarize=summarize,
            run_id=run_id,
            time_scale=time_scale,
            notes=notes,
            resumes=again is not None,
            retry_failed=again is not None and again.retry_failed,
        )
        return _with_numbers(outcome, *measured[-1])
    view = None
    if settings.live:
        title = run_id if settings.is_virtual else f"{run_id} at {time_scale:g}x"
        view = LiveView(title=title, num_tasks=len(workload.trajectories), console=Console(stderr=True))
    outcome = perform(
        settings,
        workload,
        directory,
        summarize=summarize,
        run_id=run_id,
        time_scale=time_scale,
        view=view,
        lag_limit=lag_limit,
        notes=notes,
        unfinished=resume.take_up(directory, retry_failed=again.retry_failed) if again else None,
    )
    return _with_numbers(outcome, *measured[-1])


def _with_numbers(outcome: Outcome, columns: RunColumns, numbers: Numbers) -> Outcome:
    """What was measured once is not measured again for the table."""
    return replace(outcome, columns=replace(columns, header=outcome.header), numbers=numbers)


def _compare_with_twin(outcome: Outcome, twin: Outcome) -> None:
    real, virtual = outcome.summary["makespan_s"], twin.summary["makespan_s"]
    if real and virtual:
        print(
            f"{outcome.header.run_id}: makespan {real:.1f} s over HTTP at {outcome.header.time_scale:g}x,"
            f" {virtual:.1f} s in virtual time ({real / virtual - 1:+.1%})",
            flush=True,
        )


def _tell(outcomes: Sequence[Outcome]) -> int:
    """The table, where the results lie, and the exit code that they deserve."""
    from reports.compare import compare  # noqa: PLC0415  (as for summarize)
    from reports.load import load_run  # noqa: PLC0415
    from reports.terminal import print_comparison  # noqa: PLC0415

    # What is piped into a file is not cut at 80 columns.
    console = Console(highlight=False, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160)
    runs = [load_run(one.directory) if one.columns is None else one.columns for one in outcomes]
    print_comparison(compare(runs, numbers=[one.numbers for one in outcomes]), console)
    for outcome in outcomes:
        print(f"results: {outcome.directory}")
    if any(outcome.interrupted for outcome in outcomes):
        return EXIT_INTERRUPTED
    return EXIT_FINE if all(outcome.is_valid for outcome in outcomes) else EXIT_INVALID


def _check(settings: Settings) -> None:
    """Names that only this package knows."""
    for name in (settings.architecture, *settings.compared_architectures()):
        settings.find_architecture(name)


def _is_read() -> bool:
    """Whether our output still has a reader: a pipe without one says so unasked."""
    watched = select.poll()
    watched.register(sys.stdout.fileno(), 0)
    return not watched.poll(0)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def command_line() -> NoReturn:
    """``main`` as a whole process, which ends without taking a million objects apart one by one: a tenth of a run."""
    code = main()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # nobody reads any more
        code = code or EXIT_INVALID
    os._exit(code)
