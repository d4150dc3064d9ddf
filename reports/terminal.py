"""The comparison as a table for a terminal: validity first, readable without colour."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from reports.bands import HEAD, band_rows
from reports.calibrate import ADVICE, UNITS, Calibration
from reports.compare import Comparison, skipped_statements
from reports.fidelity import Fidelity
from reports.fidelity_page import gap_rows, verdict_lines
from reports.finding import finding
from reports.intervals import differences_to_first, format_difference
from reports.repeats import noise_statements
from reports.table import PERCENTILES, format_value
from reports.unlike import hints


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Validity, one line a run; the table; the finding in words."""
    for line, is_valid in validity_lines(comparison):
        console.print(Text(line, style="" if is_valid else "bold red"))
    for line in window_lines(comparison):
        console.print(Text(line))
    for text in skipped_statements(comparison.runs):
        console.print(Text(text))
    console.print(comparison_table(comparison))
    _print_bands(comparison, console)
    for paragraph in [*finding(comparison), *noise_statements(comparison.runs)]:
        console.print(Text(paragraph), soft_wrap=False)


def _print_bands(comparison: Comparison, console: Console) -> None:
    """Calls per task against published bands, where more than the two architectures of the first sketch are shown."""
    rows = band_rows(comparison.runs)
    if len(rows) < 2:
        return
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in HEAD:
        table.add_column(title)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def validity_lines(comparison: Comparison) -> list[tuple[str, bool]]:
    """Whether the runs may be believed: one line where all are valid, else one for each that is not."""
    invalid = [run for run in comparison.runs if not run.is_valid]
    num_runs = len(comparison.runs)
    if not invalid:
        return [("valid" if num_runs == 1 else f"all {num_runs} runs are valid", True)]
    lines = [(f"INVALID: {run.label}: {'; '.join(run.numbers.invalid_reasons)}", False) for run in invalid]
    return lines if len(invalid) == num_runs else [*lines, (f"{num_runs - len(invalid)} other runs are valid", True)]


def window_lines(comparison: Comparison) -> list[str]:
    """One for each run of which a part is measured: which."""
    return [
        f"{run.label}: measured from {window.from_at:.1f} s to {window.until_at:.1f} s,"
        f" in which {run.numbers.num_calls_measured:,} of {len(run.columns.calls):,} calls were due"
        for run in comparison.runs
        if (window := run.numbers.window) is not None
    ]


def comparison_table(comparison: Comparison) -> Table:
    """A row for each number that is shown briefly, a column for each run."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("", no_wrap=True)
    for run in comparison.runs:
        table.add_column(Text(run.label), justify="right")
    against_first = differences_to_first(comparison.runs) if len(comparison.runs) == 2 else []
    if against_first:
        table.add_column("second against first", justify="right")
    group = None
    for metric in comparison.metrics:
        if not metric.is_brief:
            continue
        if group is not None and metric.group != group:
            table.add_section()
        group = metric.group
        columns = [metric.values(run.numbers) for run in comparison.runs]
        for place, values in enumerate(zip(*columns, strict=True)):
            title = f"{metric.title} {PERCENTILES[place]}" if metric.is_spread else metric.title
            cells = [format_value(value) for value in values]
            if against_first:
                difference = against_first[1].get((metric.key, place))
                cells.append("" if difference is None else format_difference(difference))
            table.add_row(title, *cells)
    return table


def print_fidelity(found: Fidelity, console: Console) -> None:
    """The verdict for each metric, then the errors by prompt length, then what live runs differ by."""
    for run in (found.mock, *found.live):
        if not run.is_valid:
            reasons = "; ".join(run.numbers.invalid_reasons)
            console.print(Text(f"INVALID: {run.label}: {reasons}", style="bold red"))
    for line, is_close in verdict_lines(found):
        console.print(Text(line, style="" if is_close else "bold red"))
    for text in hints(found):
        console.print(Text(text))
    for title, gaps in (("mock against live", found.gaps), ("live runs among themselves", found.floors)):
        if not gaps:
            continue
        head, rows = gap_rows(gaps)
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        table.add_column(title)
        for name in head[1:]:
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(*row)
        console.print(table)


def print_calibration(calibration: Calibration, console: Console) -> None:
    """What each unit of work costs, how sure that is, and which requests would tell the rest."""
    found = calibration.fit
    for note in calibration.notes:
        console.print(Text(note))
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title, justify in (("", "left"), ("cost", "right"), ("95 % interval", "right"), ("", "left")):
        table.add_column(title, justify="right" if justify == "right" else "left", no_wrap=True)
    for one in found.coefficients:
        scale, unit = UNITS[one.name]
        interval = f"{format_value(one.low * scale)} to {format_value(one.high * scale)}"
        verdict = unit if one.is_determined else f"{unit} (not determined)"
        table.add_row(one.name, format_value(one.value * scale), interval, verdict)
    console.print(table)
    padding = "are padded to captured sizes" if found.is_padded else "are not padded"
    console.print(
        f"{found.num_observations} observations, {found.num_outliers} of them left out as wild; decode batches"
        f" {padding}; median error of one observation {found.median_relative_error:.1%}"
    )
    shares = calibration.shares
    if shares.work < 1:
        console.print(
            f"{shares.work:.1%} of frontend_s is work that other requests wait for, {shares.arrival:.1%} holds up those"
            f" that are being answered (arrival_s in the profile), {shares.wakeup:.1%} is spent on an idle server only"
            " (wakeup_s), and the rest side by side (frontend_latency_s)"
        )
    for one in calibration.undetermined:
        console.print(Text(f"{one.name} cannot be told from these records; {ADVICE[one.name]} would tell"))
