"""The comparison's table as markup: every number, how it stands to the others, and to the first run."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from reports.compare import Comparison
from reports.intervals import Difference, differences_to_first, format_difference, format_relative
from reports.meanings import MEANINGS, meanings_markup
from reports.repeats import noise_statements
from reports.table import PERCENTILES, Metric, format_value

WHOLE_RUN = ("makespan_s", "tasks_per_hour", "goodput", "output_throughput", "num_evicted_blocks")
"""Results of a whole run, whose differences have no interval."""


def table_markup(comparison: Comparison) -> str:
    """The table, and below it what its differences mean."""
    head = "".join(f'<th scope="col">{escape(run.label)}</th>' for run in comparison.runs)
    rows = []
    group = None
    against_first = differences_to_first(comparison.runs)
    for metric in comparison.metrics:
        if metric.group != group:
            group = metric.group
            rows.append(
                f'<tr class="group"><th scope="rowgroup" colspan="{len(comparison.runs) + 1}">'
                f"<span>{escape(group)}</span></th></tr>"
            )
        columns = [metric.values(run.numbers) for run in comparison.runs]
        for place, values in enumerate(zip(*columns, strict=True)):
            title = f"{metric.title} {PERCENTILES[place]}" if metric.is_spread else metric.title
            rows.append(_row(title, metric, values, [found.get((metric.key, place)) for found in against_first]))
    notes = "".join(f"<p>{escape(text)}</p>" for text in noise_statements(comparison.runs))
    return meanings_markup(comparison.metrics) + (
        '<div class="scroll" tabindex="0" role="region" aria-label="All numbers">'
        f'<table class="numbers" style="min-width:{8 + 8 * len(comparison.runs)}rem">'
        f'<thead><tr><th scope="col">Metric</th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>{notes}'
    )


def _row(title: str, metric: Metric, values: Sequence[float | None], against_first: Sequence[Difference | None]) -> str:
    known = [value for value in values if value is not None]
    best = None
    if metric.better is not None and len(set(known)) > 1:
        best = min(known) if metric.better == "lower" else max(known)
    top = max((abs(value) for value in known), default=0.0)
    cells = []
    for place, (value, difference) in enumerate(zip(values, against_first, strict=True)):
        width = 0 if value is None or not top else round(100 * abs(value) / top)
        style = ' class="best"' if value is not None and value == best else ""
        text = "" if difference is None else format_difference(difference)
        if not text and place and value is not None and values[0] and metric.key in WHOLE_RUN:
            text = format_relative(value, values[0])
        text = text.replace(" to ", "\u00a0to\u00a0")  # an interval stays on one line
        note = f'<span class="difference">{text}</span>' if text else ""
        bar = f'<span class="bar" style="width:{width}%"></span>'
        cells.append(f"<td{style}>{format_value(value)}{bar}{note}</td>")
    return f'<tr><th scope="row" title="{escape(MEANINGS[metric.key])}">{escape(title)}</th>{"".join(cells)}</tr>'
