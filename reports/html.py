"""One self-contained page: no network, opens from disk, and whatever stands in a run's records stays text."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import hashlib
import json
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from reports import stage
from reports.architecture_page import architectures
from reports.charts import chart
from reports.compare import Comparison, LabelledRun, skipped_statements
from reports.events import MAX_CALLS, events
from reports.figures import figures
from reports.finding import finding
from reports.series import Figure
from reports.table import format_value
from reports.table_markup import table_markup

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header class="top">
<h1>{title}</h1>
<p class="quiet">{subtitle}</p>
<ul class="validity" id="validity">{validity}</ul>
</header>
<nav aria-label="Sections"><div><span class="links">{navigation}</span>\
<button id="theme" type="button" aria-label="Switch between dark and light">Dark</button></div></nav>
<main>
{sections}
</main>
<script type="application/json" id="report">{data}</script>
{scripts}
</body>
</html>
"""

Section = tuple[str, str, str]
_TOO_LONG = "<p>Left out: the replay holds at most {limit:,} calls. Show fewer or shorter runs to see it.</p>"


def write_page(comparison: Comparison, path: Path) -> int:
    """Write the page; returns its size in bytes."""
    page = render(comparison).encode()
    path.write_bytes(page)
    return len(page)


def render(comparison: Comparison) -> str:
    """The whole page as text."""
    shown = figures(comparison)
    streams = events(comparison)
    sections: list[Section] = [
        ("finding", "Finding", _finding(comparison, shown)),
        ("overview", "At a glance", charts_markup(shown, ("prompt_tokens", "critical_path"))),
        ("replay", "Replay", stage.replay(comparison) if streams else _TOO_LONG.format(limit=MAX_CALLS)),
        ("lanes", "One task", stage.lanes(comparison) if streams else ""),
        ("numbers", "All numbers", table_markup(comparison)),
        ("distributions", "Distributions", charts_markup(shown, ("task_time", "ttft", "tpot", "e2e"))),
        (
            "over-time",
            "Over time",
            _over_time(comparison, shown),
        ),
        ("architectures", "Architectures", architectures(comparison)),
        ("runs", "The runs", _provenance(comparison)),
    ]
    return assemble(
        title=_title(comparison),
        subtitle=_subtitle(comparison),
        validity=_validity(comparison),
        sections=sections,
        data={
            "runs": [run.label for run in comparison.runs],
            "events": packed(streams),
            "charts": {
                figure.name: chart(figure, comparison) | {"series": _series(figure, comparison)} for figure in shown
            },
        },
    )


def assemble(*, title: str, subtitle: str, validity: str, sections: Sequence[Section], data: dict[str, Any]) -> str:
    """A page of sections (key, title, markup; those without markup are left out) over the data its scripts read."""
    shown = [section for section in sections if section[2]]
    scripts = [plotly_script(), *(_part(name) for name in ("page.js", "events.js", "replay.js", "lanes.js"))]
    return _PAGE.format(
        policy=_policy(scripts),
        title=escape(title),
        style=_part("page.css"),
        subtitle=escape(subtitle),
        validity=validity,
        navigation="".join(f'<a href="#{key}">{heading}</a>' for key, heading, _ in shown),
        sections="\n".join(
            f'<section id="{key}" aria-labelledby="{key}-title"><h2 id="{key}-title">{heading}</h2>{body}</section>'
            for key, heading, body in shown
        ),
        data=embedded_json(data),
        scripts="\n".join(f"<script>{script}</script>" for script in scripts),
    )


def embedded_json(value: Any) -> str:
    """JSON that may stand in a script element: nothing in it can end the element or start another."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def packed(value: Any) -> str | None:
    """JSON, gzipped, in base64: about a fifth, and the browser unpacks it itself. None where there is nothing."""
    if not value:
        return None
    text = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    return base64.b64encode(gzip.compress(text, compresslevel=6, mtime=0)).decode()


def _policy(scripts: Sequence[str]) -> str:
    """Only these very scripts may run, and nothing may be fetched from anywhere."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"


def plotly_script() -> str:
    """The charting library, whole, as a script that may stand in a page."""
    from plotly.offline import get_plotlyjs  # noqa: PLC0415  # only a page needs its 5 MB

    script: str = get_plotlyjs()
    return script


def _part(name: str) -> str:
    return files("reports").joinpath("page", name).read_text(encoding="utf-8")


def _title(comparison: Comparison) -> str:
    named = {"react": "ReAct"}
    names = [named.get(a, a) for a in dict.fromkeys(run.header.architecture for run in comparison.runs)]
    if len(comparison.runs) == 1:
        return comparison.runs[0].label
    caches = {run.header.prefix_caching for run in comparison.runs}
    cache = ", prefix cache off and on" if {True, False} <= caches else ""
    listed = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 2 else names)
    return f"{listed}{cache}: {len(comparison.runs)} runs compared"


def _subtitle(comparison: Comparison) -> str:
    def distinct(values: Sequence[str]) -> str:
        return " / ".join(dict.fromkeys(values))

    headers = [run.header for run in comparison.runs]
    return ", ".join(
        [
            f"workload {distinct([header.workload for header in headers])}",
            f"{distinct([str(header.num_tasks) for header in headers])} tasks",
            f"profile {distinct([header.profile or 'unknown' for header in headers])}",
            f"{distinct([_clock(run) for run in comparison.runs])}",
            f"target {distinct([header.target for header in headers])}",
            f"replayrig {distinct([header.version for header in headers])}",
        ]
    )


def _clock(run: LabelledRun) -> str:
    header = run.header
    if header.time_scale is None:
        return f"{header.clock} time"
    return f"{header.clock} time, {header.time_scale:g} simulated seconds a second"


def _validity(comparison: Comparison) -> str:
    """One line where all is well; a line for each run that must not be believed, and why."""
    invalid = [run for run in comparison.runs if not run.is_valid]
    valid = [run for run in comparison.runs if run.is_valid]
    items = []
    for run in invalid:
        reasons = escape("; ".join(run.numbers.invalid_reasons))
        items.append(f'<li class="invalid"><b>INVALID</b>: {escape(run.label)}: {reasons}</li>')
    if valid:
        lag_s = max((run.numbers.lag.p99_s for run in valid if run.numbers.lag is not None), default=None)
        lag = "" if lag_s is None else f" (p99 lag at most {format_value(lag_s)} s)"
        which = "all runs" if not invalid and len(valid) > 1 else "; ".join(run.label for run in valid)
        items.append(f'<li class="valid"><b>Valid</b>: {escape(which)}{lag}</li>')
    items += [f'<li class="left-out">{escape(text)}</li>' for text in skipped_statements(comparison.runs)]
    return "".join(items)


def _finding(comparison: Comparison, shown: Sequence[Figure]) -> str:
    words = ""
    for text in finding(comparison):
        first, dot, rest = _unbroken(text).partition(". ")
        words += f"<p><strong>{escape(first + dot)}</strong>{escape(rest)}</p>"
    pictures = charts_markup(shown, ("makespan", "hit_rate"))
    return f'<div class="beside"><div class="finding">{words}</div>{pictures}</div>'


def _unbroken(text: str) -> str:
    """A number stays on one line with its unit."""
    return re.sub(r"(?<=\d) (?=(?:s|M|G|%|times)\b|%)", "\u00a0", text)


def charts_markup(shown: Sequence[Figure], names: Sequence[str]) -> str:
    by_name = {figure.name: figure for figure in shown}
    parts = [_figure(by_name[name]) for name in names if name in by_name]
    return f'<div class="charts">{"".join(parts)}</div>' if parts else ""


def _over_time(comparison: Comparison, shown: Sequence[Figure]) -> str:
    names = ("prefill_queue", "batch", "kv_pool", "evictions", "prefill_rate", "cached_rate", "output_rate")
    charts = charts_markup(shown, names)
    if not charts:
        return ""
    text = "From samples of the server. Each run has a time axis of its own, and all share the scale of the other axis."
    if not any(run.numbers.num_evicted_blocks for run in comparison.runs):
        text += " No evictions are known of any run."
    return f"<p>{text}</p>{charts}"


def _figure(figure: Figure) -> str:
    title = escape(figure.title)
    buttons = "".join(
        f'<button type="button" data-save="{kind}" aria-label="Save {title} as {kind.upper()}">{kind.upper()}</button>'
        for kind in ("svg", "png", "csv")
    )
    return (
        f"<figure><figcaption><h3>{title}</h3><p>{escape(figure.caption)}</p></figcaption>"
        f'<div class="chart" data-chart="{figure.name}" role="img" aria-label="{title}"></div>'
        f'<div class="tools">{buttons}</div></figure>'
    )


def _series(figure: Figure, comparison: Comparison) -> list[dict[str, Any]]:
    """The figure's numbers for the CSV button: what ``reports export --figure`` prints."""
    return [
        {"run": None if one.run is None else comparison.runs[one.run].label, "name": one.name, "x": one.x, "y": one.y}
        for one in figure.series
    ]


def _provenance(comparison: Comparison) -> str:
    blocks = []
    for run in comparison.runs:
        header = json.dumps(dataclasses.asdict(run.header), indent=2, default=str)
        blocks.append(f"<details><summary>{escape(run.label)}</summary><pre>{escape(header)}</pre></details>")
    text = (
        "<p>Everything here is computed from the run directories; these commands give the same numbers:</p>"
        "<pre>reports show RUN... --json\nreports export RUN... --figure NAME</pre>"
    )
    return text + "".join(blocks)
