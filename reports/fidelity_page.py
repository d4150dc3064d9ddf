"""Mock against live as one page: the verdict first, each number beside its noise floor, Q-Q plots below."""

from __future__ import annotations

import dataclasses
from html import escape
from pathlib import Path
from typing import Any

from reports.charts import DASHES, RUN_COLOURS, plain
from reports.fidelity import METRICS, Fidelity, Gap, quantile_pairs
from reports.html import Section, assemble, charts_markup
from reports.series import Figure, Series
from reports.table import PERCENTILES, format_value
from reports.unlike import hints

NAMES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"}


def as_json(found: Fidelity) -> dict[str, Any]:
    """Everything that was compared, for other programs."""
    return {
        "mock": found.mock.label,
        "live": [run.label for run in found.live],
        "is_close": found.is_close,
        "verdicts": [dataclasses.asdict(one) | {"is_close": one.is_close} for one in found.verdicts],
        "gaps": [dataclasses.asdict(one) for one in found.gaps],
        "sent_apart_s": found.sent_apart_s,
        "floors": [dataclasses.asdict(one) for one in found.floors],
        "charts": {figure.name: _series(figure) for figure in _figures(found)},
    }


def verdict_lines(found: Fidelity) -> list[tuple[str, bool]]:
    """One line a metric: how far, against which bound, beside which floor."""
    lines = []
    for one in found.verdicts:
        says = "within" if one.is_close else "BEYOND"
        floor = (
            "with one live run, what live runs differ by is not known"
            if one.floor is None
            else f"live runs differ among themselves by {one.floor:.1%}"
        )
        text = f"{NAMES[one.metric]}: median error {one.error:.1%}, {says} its bound of {one.bound:.0%}; {floor}"
        lines.append((text, one.is_close))
    return lines


def gap_rows(gaps: tuple[Gap, ...]) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of the table of errors, as text."""
    head = ["", "prompt tokens", "calls", *(f"error at {p}" for p in PERCENTILES), "median error", "KS", "Pearson"]
    rows = [
        [
            NAMES[gap.metric],
            gap.bucket,
            format_value(gap.num_calls),
            *(f"{error:+.1%}" for error in gap.percentile_errors),
            "-" if gap.median_error is None else f"{gap.median_error:.1%}",
            f"{gap.ks_distance:.3f}",
            "-" if gap.pearson is None else f"{gap.pearson:.4f}",
        ]
        for gap in gaps
    ]
    return head, rows


def write_fidelity_page(found: Fidelity, path: Path) -> int:
    """Write the page; returns its size in bytes."""
    page = render_fidelity(found).encode()
    path.write_bytes(page)
    return len(page)


def render_fidelity(found: Fidelity) -> str:
    """The page as text."""
    shown = _figures(found)
    sections: list[Section] = [
        ("errors", "Errors", _table(found.gaps)),
        ("plots", "Quantile against quantile", charts_markup(shown, [figure.name for figure in shown])),
        ("floor", "Live runs among themselves", _table(found.floors) if found.floors else ""),
    ]
    validity = "".join(
        f'<li class="{"valid" if is_close else "invalid"}"><b>{"Close" if is_close else "NOT CLOSE"}</b>:'
        f" {escape(line)}</li>"
        for line, is_close in verdict_lines(found)
    )
    validity += "".join(f"<li>{escape(text)}</li>" for text in hints(found))
    invalid = [run for run in (found.mock, *found.live) if not run.is_valid]
    for run in invalid:
        reasons = escape("; ".join(run.numbers.invalid_reasons))
        validity += f'<li class="invalid"><b>INVALID</b>: {escape(run.label)}: {reasons}</li>'
    return assemble(
        title=f"Mock against live: {found.mock.label}",
        subtitle=f"mock: {found.mock.header.run_id}; live: {', '.join(run.header.run_id for run in found.live)};"
        f" profile {found.mock.header.profile or 'unknown'}",
        validity=validity,
        sections=sections,
        data={"runs": [], "events": None, "charts": {figure.name: _chart(figure) for figure in shown}},
    )


def _table(gaps: tuple[Gap, ...]) -> str:
    head, rows = gap_rows(gaps)
    cells = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>' + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:]) + "</tr>"
        for row in rows
    )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Errors"><table>'
        f"<thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _figures(found: Fidelity) -> list[Figure]:
    return [figure for metric in METRICS if (figure := _qq_figure(found, metric)).series]


def _series(figure: Figure) -> list[dict[str, Any]]:
    return [{"run": None, "name": one.name, "x": one.x, "y": one.y} for one in figure.series]


def _qq_figure(found: Fidelity, metric: str) -> Figure:
    values = METRICS[metric]
    series = []
    for name, run in (("mock", found.mock), *((f"live run {k}", run) for k, run in enumerate(found.live[1:], start=2))):
        x, y = quantile_pairs(values(run.columns.calls), values(found.live[0].columns.calls))
        series.append(Series(name=name, x=x, y=y))
    return Figure(
        name=f"qq_{metric}",
        title=f"{NAMES[metric]}, mock against live",
        caption="The same quantiles of both, 0 to 100 %. On the grey line they are equal; above it the mock is slower.",
        kind="lines",
        x_title="live, seconds, logarithmic",
        y_title="mock, seconds, logarithmic",
        series=series,
        is_log_x=True,
    )


def _chart(figure: Figure) -> dict[str, Any]:
    data: list[dict[str, Any]] = []
    positive = [value for one in figure.series for value in map(float, [*one.x, *one.y]) if value > 0]
    ends = [min(positive, default=1e-3), max(positive, default=1.0)]
    data.append(
        {
            "type": "scatter",
            "mode": "lines",
            "name": "equal",
            "x": ends,
            "y": ends,
            "line": {"color": "#8a8f98", "width": 1},
        }
    )
    for place, one in enumerate(figure.series):
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": plain(one.name),
                "x": one.x,
                "y": one.y,
                "marker": {"size": 4},
                "line": {
                    "color": RUN_COLOURS[place % len(RUN_COLOURS)],
                    "dash": DASHES[place % len(DASHES)],
                    "width": 2,
                },
                "hovertemplate": "live %{x:.3~g} s, here %{y:.3~g} s<extra></extra>",
            }
        )
    axis = {"type": "log", "automargin": True}
    layout = {
        "height": 380,
        "margin": {"l": 10, "r": 16, "t": 44, "b": 44},
        "xaxis": axis | {"title": {"text": figure.x_title}},
        "yaxis": axis | {"title": {"text": figure.y_title}},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
    }
    return {"data": data, "layout": layout, "series": _series(figure)}
