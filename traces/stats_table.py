"""Workload statistics and import summaries as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich import box
from rich.table import Table
from rich.text import Text

from traces.counts import Counts
from traces.importers.log import ImportLog
from traces.stats import Distribution, Stats

_COLUMNS = ("p5", "p25", "p50", "p75", "p95", "max", "mean")
_MAX_DOMAINS = 12


def stats_tables(name: str, stats: Stats, *, num_skipped: int) -> Iterator[Table | Text]:
    """The whole page: totals, distributions, domains."""
    yield Text(f"{name}: {stats.num_tasks:,} tasks, {stats.num_calls:,} calls, {stats.num_tool_calls:,} tool calls")
    if num_skipped:
        yield Text(f"{num_skipped:,} records could not be used: traces import says why")
    yield _totals(stats)
    yield _distributions(stats)
    if stats.num_tool_calls_by_domain:
        yield _domains(stats)


def import_summary(log: ImportLog, counts: Counts) -> Text:
    """What an import found, what it had to assume, and what it left out and why."""
    formats = ", ".join(f"{name}: {num:,}" for name, num in sorted(log.num_tasks_by_format.items()))
    num_tasks = log.num_tasks_by_format.total()
    lines = [
        f"{num_tasks:,} tasks ({formats or 'none'}) with {counts.num_calls:,} calls and {counts.num_tool_calls:,}"
        f" tool calls from {log.num_files:,} files",
        f"{counts.num_prompt_tokens:,} prompt tokens (ReAct), {counts.num_output_tokens:,} output tokens",
    ]
    lines += notes("not in the files, or inferred:", log.num_by_note)
    if log.num_skipped:
        lines.append("skipped:")
        lines += [
            f"  {num:>8,}  {reason} (first: {log.first_skipped_by_reason[reason]})"
            for reason, num in log.num_skipped_by_reason.most_common()
        ]
    return Text("\n".join(lines))


def notes(title: str, num_by_note: Mapping[str, int]) -> list[str]:
    """``title`` and a line for each note; nothing where there are none."""
    lines = [f"  {num:>8,}  {what}" for what, num in sorted(num_by_note.items())]
    return [title, *lines] if lines else []


def _totals(stats: Stats) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_row("prompt tokens (ReAct)", f"{stats.num_prompt_tokens:,}")
    table.add_row("output tokens", f"{stats.num_output_tokens:,}")
    table.add_row("distinct tokens", f"{stats.distinct_tokens:,}")
    table.add_row("best possible hit rate", f"{stats.best_hit_rate:.1%}")
    table.add_row("tool steps that call several tools", f"{stats.parallel_share:.1%}")
    return table


def _distributions(stats: Stats) -> Table:
    table = Table(pad_edge=False, box=box.SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    for name, distribution in stats.distributions.items():
        cells = [_cell(distribution, column) for column in _COLUMNS]
        table.add_row(name, *cells)
    return table


def _domains(stats: Stats) -> Table:
    table = Table(pad_edge=False, box=box.SIMPLE_HEAD)
    table.add_column("tool domain")
    table.add_column("tool calls", justify="right")
    table.add_column("tasks", justify="right")
    for domain, num_calls in list(stats.num_tool_calls_by_domain.items())[:_MAX_DOMAINS]:
        table.add_row(domain, f"{num_calls:,}", f"{stats.num_tasks_by_domain[domain]:,}")
    num_more = len(stats.num_tool_calls_by_domain) - _MAX_DOMAINS
    if num_more > 0:
        table.add_row(f"and {num_more} more", "", "")
    return table


def _cell(distribution: Distribution, column: str) -> str:
    value: float = getattr(distribution, column)
    if value >= 1_000_000:
        return f"{value / 1e6:,.1f}M"
    if value >= 100_000:
        return f"{value / 1e3:,.0f}k"
    if value >= 10_000:
        return f"{value / 1e3:,.1f}k"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.2f}"
