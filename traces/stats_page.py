"""Workload statistics as one self-contained HTML page: no scripts, nothing loaded from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape

from traces.stats import Distribution, Stats

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: right; padding: .2rem .6rem; }
td:first-child, th:first-child { text-align: left; } tr + tr td { border-top: 1px solid #ddd; }
svg { width: 100%; height: auto; } .box { fill: #9ecae1; } .line { stroke: #333; stroke-width: 1; }
.bar { fill: #6baed6; } text { font: 11px system-ui, sans-serif; fill: #333; }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd; } text { fill: #ddd; }
.line { stroke: #ccc; } tr + tr td { border-color: #444; } }
"""
_COLUMNS = ("p5", "p25", "p50", "p75", "p95", "max", "mean")
_WIDTH = 640
_MAX_DOMAINS = 20


def stats_page(name: str, stats: Stats) -> str:
    """The whole page."""
    title = escape(f"{name}: {stats.num_tasks:,} tasks, {stats.num_calls:,} calls")
    totals = [
        ("prompt tokens (ReAct)", f"{stats.num_prompt_tokens:,}"),
        ("output tokens", f"{stats.num_output_tokens:,}"),
        ("distinct tokens", f"{stats.distinct_tokens:,}"),
        ("best possible hit rate", f"{stats.best_hit_rate:.1%}"),
        ("tool calls", f"{stats.num_tool_calls:,}"),
        ("tool steps that call several tools", f"{stats.parallel_share:.1%}"),
    ]
    rows = "".join(f"<tr><td>{escape(label)}</td><td>{value}</td></tr>" for label, value in totals)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f"<h1>{title}</h1><table>{rows}</table><h2>Distributions</h2>{_table(stats)}"
        f"<h2>Spread</h2><p>Box: p25 to p75, line: p5 to p95, mark: median; logarithmic.</p>{_boxes(stats)}"
        f"{_growth(stats)}{_domains(stats)}</html>\n"
    )


def _table(stats: Stats) -> str:
    head = "".join(f"<th>{column}</th>" for column in _COLUMNS)
    rows = "".join(
        f"<tr><td>{escape(name)}</td>{''.join(f'<td>{_number(getattr(one, column))}</td>' for column in _COLUMNS)}</tr>"
        for name, one in stats.distributions.items()
    )
    return f"<table><tr><th></th>{head}</tr>{rows}</table>"


def _boxes(stats: Stats) -> str:
    shown = {name: one for name, one in stats.distributions.items() if one.p95 > 0}
    if not shown:
        return ""
    digits = max(len(str(int(one.p95))) for one in shown.values())

    def x(value: float) -> float:
        """Where ``value`` stands: 0.1 at the left, the next power of ten at the right."""
        return 170 + (_WIDTH - 190) * math.log10(max(value, 0.1) * 10) / (digits + 1)

    marks = "".join(
        f'<line class="line" stroke-dasharray="2 4" x1="{x(10**power):.0f}" x2="{x(10**power):.0f}" y1="0"'
        f' y2="{len(shown) * 22}"/><text text-anchor="middle" x="{x(10**power):.0f}"'
        f' y="{len(shown) * 22 + 14}">{_power(power)}</text>'
        for power in range(digits + 1)
    )
    boxes = "".join(_box(name, one, x, 22 * row) for row, (name, one) in enumerate(shown.items()))
    return f'<svg viewBox="0 0 {_WIDTH} {len(shown) * 22 + 20}">{marks}{boxes}</svg>'


def _box(name: str, one: Distribution, x: Callable[[float], float], y: int) -> str:
    middle = y + 11
    width = max(x(one.p75) - x(one.p25), 1.0)
    return (
        f'<text x="0" y="{middle + 4}">{escape(name)}</text>'
        f'<line class="line" x1="{x(one.p5):.1f}" x2="{x(one.p95):.1f}" y1="{middle}" y2="{middle}"/>'
        f'<rect class="box" x="{x(one.p25):.1f}" y="{y + 4}" width="{width:.1f}" height="14"/>'
        f'<line class="line" x1="{x(one.p50):.1f}" x2="{x(one.p50):.1f}" y1="{y + 3}" y2="{y + 19}"/>'
    )


def _growth(stats: Stats) -> str:
    if len(stats.prompt_growth) < 2:
        return ""
    bars = "".join(
        f'<rect class="bar" x="{40 + index * 55}" y="{150 - 140 * share:.1f}" width="45" height="{140 * share:.1f}"/>'
        f'<text x="{48 + index * 55}" y="166">{index * 10} %</text>'
        for index, share in enumerate(stats.prompt_growth)
    )
    return (
        "<h2>Growth</h2><p>A prompt's share of its task's longest one, by how much of the task is done; median.</p>"
        f'<svg viewBox="0 0 {_WIDTH} 170">{bars}</svg>'
    )


def _domains(stats: Stats) -> str:
    domains = list(stats.num_tool_calls_by_domain.items())[:_MAX_DOMAINS]
    if not domains:
        return ""
    most = domains[0][1]
    bars = "".join(
        f'<text x="0" y="{row * 20 + 14}">{escape(domain[:28])}</text>'
        f'<rect class="bar" x="170" y="{row * 20 + 3}" width="{380 * num / most:.1f}" height="14"/>'
        f'<text x="{176 + 380 * num / most:.0f}" y="{row * 20 + 14}">{num:,}</text>'
        for row, (domain, num) in enumerate(domains)
    )
    return f'<h2>Tool calls by domain</h2><svg viewBox="0 0 {_WIDTH} {len(domains) * 20 + 4}">{bars}</svg>'


def _power(power: int) -> str:
    """10 to the ``power``, short: 1, 10, 100, 1k ... 1M."""
    return f"{10 ** (power % 3)}{('', 'k', 'M', 'G', 'T')[min(power // 3, 4)]}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:,.2f}"
