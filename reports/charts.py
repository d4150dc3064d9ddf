"""Figures as plotly's JSON: what is drawn how. Colours of text and grid are the page's: dark or light."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

from reports.compare import Comparison, LabelledRun
from reports.series import Figure, Series
from reports.table import format_value

Json = dict[str, Any]

RUN_COLOURS = ("#2f7fd1", "#d9741a", "#1f9d6b", "#a05fc4", "#d8485f", "#3a9bab", "#8a8a3a", "#7f7f8f")
"""Mid tones: at least 3:1 against both a white and a near-black page."""
DASHES = ("solid", "dash", "dot", "longdash", "dashdot", "longdashdot")
PATTERNS = ("", "/", ".", "x", "-", "|")
PART_COLOURS = ("#b8508f", "#4f9aa8", "#8f8a2f", "#6b6fc4", "#7f7f8f")
PART_PATTERNS = ("", "/", ".", "x", "-")
_PANEL_HEIGHT = 130


def styles(runs: Sequence[LabelledRun]) -> list[tuple[str, int]]:
    """A colour for each architecture, and a number that tells runs of one architecture apart without colour.

    Where all runs are of one architecture each has its own colour.
    """
    kinds = [run.header.architecture for run in runs]
    if len(set(kinds)) == 1:
        kinds = [run.label for run in runs]
    order = list(dict.fromkeys(kinds))
    taken: set[tuple[str, int]] = set()
    result = []
    for run, kind in zip(runs, kinds, strict=True):
        number = 1 if run.header.prefix_caching is False and kinds.count(kind) > 1 else 0
        while (kind, number) in taken:
            number += 1
        taken.add((kind, number))
        result.append((RUN_COLOURS[order.index(kind) % len(RUN_COLOURS)], number))
    return result


def chart(figure: Figure, comparison: Comparison) -> Json:
    """``{"data": [...], "layout": {...}}`` for plotly."""
    draw = {"bars": _bars, "stack": _stack, "lines": _lines, "panels": _panels}[figure.kind]
    data, layout = draw(figure, comparison)
    return {"data": data, "layout": layout}


def plain(text: str) -> str:
    """Text that plotly shows as it is: it reads a few HTML tags otherwise."""
    return html.escape(text, quote=False)


def _broken(label: str) -> str:
    """A run's label over several lines, so that it leaves room for the bars on a phone."""
    return plain(label).replace(", ", "<br>")


def _bars(figure: Figure, comparison: Comparison) -> tuple[list[Json], Json]:
    style = styles(comparison.runs)
    data = []
    for series in figure.series:
        colour, number = style[series.run or 0]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": plain(series.name),
                "x": series.x,
                "y": [_broken(str(label)) for label in series.y],
                "text": [format_value(float(value)) for value in series.x],
                "textposition": "outside",
                "cliponaxis": False,
                "marker": _marker(colour, PATTERNS[number % len(PATTERNS)]),
                "hovertemplate": f"%{{x:,.4~g}} {plain(figure.x_title)}<extra></extra>",
            }
        )
    layout = _bar_layout(figure, 70 + 46 * len(figure.series)) | {"showlegend": False}
    top = max(float(value) for series in figure.series for value in series.x)
    layout["xaxis"] |= {"range": [0, top * 1.15 or 1]}  # room for the number at the end of the longest bar
    layout["margin"] = _MARGIN | {"t": 8}
    return data, layout


def _stack(figure: Figure, comparison: Comparison) -> tuple[list[Json], Json]:
    data = []
    for series in figure.series:
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": plain(series.name),
                "x": series.x,
                "y": [_broken(str(label)) for label in series.y],
                "marker": _marker(PART_COLOURS[series.part], PART_PATTERNS[series.part]),
                "hovertemplate": "%{x:,.4~g}<extra>" + plain(series.name) + "</extra>",
            }
        )
    return data, _bar_layout(figure, 110 + 46 * len(comparison.runs)) | {"barmode": "stack", "legend": _LEGEND}


def _lines(figure: Figure, comparison: Comparison) -> tuple[list[Json], Json]:
    style = styles(comparison.runs)
    data = []
    for series in figure.series:
        colour, number = style[series.run or 0]
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": plain(series.name),
                "x": _rounded(series.x),
                "y": _rounded(series.y),
                "line": {"color": colour, "width": 2.5, "dash": DASHES[number % len(DASHES)]},
                "hovertemplate": f"%{{y:.1f}} %: %{{x:,.4~g}}<extra>{plain(series.name)}</extra>",
            }
        )
    axis: Json = {"title": {"text": plain(figure.x_title)}, "automargin": True, "rangemode": "tozero"}
    if figure.is_log_x:
        axis |= {"type": "log", "dtick": 1, "range": _log_range(figure.series)}
    layout = {
        "height": 360,
        "margin": _MARGIN,
        "xaxis": axis,
        "yaxis": {"title": {"text": plain(figure.y_title)}, "range": [0, 101], "automargin": True},
        "legend": _LEGEND,
    }
    return data, layout


def _panels(figure: Figure, comparison: Comparison) -> tuple[list[Json], Json]:
    """One panel for each run, below each other: one y axis for all, each its own time."""
    runs = list(dict.fromkeys(series.run or 0 for series in figure.series))
    top = max((float(value) for series in figure.series for value in series.y), default=0.0)
    if figure.is_filled:
        top = 100.0
    height = 90 + _PANEL_HEIGHT * len(runs)
    legend = _LEGEND | {"yref": "container", "y": 1, "yanchor": "top"}
    layout: Json = {"height": height, "margin": _MARGIN | {"t": 52}, "legend": legend, "annotations": []}
    gap = 0.38 / len(runs)
    size = (1 - gap * (len(runs) - 1)) / len(runs)
    for row, run in enumerate(runs):
        number = "" if row == 0 else str(row + 1)
        bottom = 1 - row * (size + gap) - size
        layout[f"yaxis{number}"] = {
            "domain": [max(bottom, 0), bottom + size],
            "anchor": f"x{number}",
            "range": [0, top * 1.04 or 1],
            "nticks": 4,
            "automargin": True,
        }
        layout[f"xaxis{number}"] = {"anchor": f"y{number}", "automargin": True, "nticks": 8, "rangemode": "tozero"}
        layout["annotations"].append(
            {
                "text": plain(comparison.runs[run].label),
                "x": 0,
                "xanchor": "left",
                "xref": "paper",
                "y": bottom + size,
                "yanchor": "bottom",
                "yref": "paper",
                "showarrow": False,
                "font": {"size": 12},
            }
        )
    layout["xaxis" + ("" if len(runs) == 1 else str(len(runs)))]["title"] = {"text": plain(figure.x_title)}
    layout["yaxis"]["title"] = {"text": plain(figure.y_title)}
    if len({series.part for series in figure.series}) == 1 and not figure.is_filled:
        layout |= {"showlegend": False, "margin": _MARGIN | {"t": 24}}  # the title says what the one line is
    data = [_panel_line(series, runs.index(series.run or 0), figure) for series in figure.series]
    return data, layout


def _panel_line(series: Series, row: int, figure: Figure) -> Json:
    number = "" if row == 0 else str(row + 1)
    colour = PART_COLOURS[series.part]
    line: Json = {
        "type": "scatter",
        "mode": "lines",
        "name": plain(series.name),
        "legendgroup": series.name,
        "showlegend": row == 0,
        "x": _rounded(series.x),
        "y": _rounded(series.y),
        "xaxis": f"x{number}",
        "yaxis": f"y{number}",
        "line": {"color": colour, "width": 1.8, "dash": DASHES[series.part % len(DASHES)]},
        "hovertemplate": f"%{{x:,.0f}} s: %{{y:,.4~g}} {plain(figure.y_title)}<extra>{plain(series.name)}</extra>",
    }
    if figure.is_filled:
        line |= {"stackgroup": f"panel{row}", "line": {"color": colour, "width": 1}}
    return line


_MARGIN = {"l": 10, "r": 16, "t": 44, "b": 44}
_LEGEND = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"}


def _marker(colour: str, pattern: str) -> Json:
    overlay = {"shape": pattern, "fillmode": "overlay", "fgcolor": "rgba(255,255,255,0.8)", "size": 7, "solidity": 0.3}
    return {"color": colour, "pattern": overlay}


def _bar_layout(figure: Figure, height: int) -> Json:
    return {
        "height": height,
        "margin": _MARGIN,
        "bargap": 0.35,
        "xaxis": {"title": {"text": plain(figure.x_title)}, "automargin": True, "rangemode": "tozero", "nticks": 6},
        "yaxis": {"autorange": "reversed", "automargin": True, "type": "category"},
    }


def _log_range(series: Sequence[Series]) -> list[float]:
    """Decades that hold the lines from their 1st percentile on: near-zero values would squeeze the rest."""
    positive = [
        x for one in series for x, y in zip(map(float, one.x), map(float, one.y), strict=True) if x > 0 and y >= 1
    ]
    if not positive:
        return [-3, 1]
    return [math.log10(min(positive)) - 0.1, math.log10(max(positive)) + 0.1]


def _rounded(values: Sequence[float] | Sequence[str]) -> list[float]:
    return [float(f"{float(value):.5g}") for value in values]
