"""The page's moving parts as markup: the replay of two runs side by side, and the swim lanes of one task."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from reports.compare import Comparison, LabelledRun

SPEEDS = (0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_VALUES = (
    ("done", "tasks done"),
    ("batch", "running batch"),
    ("waiting", "requests waiting"),
    ("queue", "prompt tokens to compute"),
    ("prefill", "prefill tokens/s"),
    ("decode", "decode tokens/s"),
    ("hits", "hit rate so far"),
    ("evicted", "blocks evicted"),
)
_LEGEND = (
    ("waiting", "waiting for the server"),
    ("prefill", "prefill"),
    ("decode", "decode"),
    ("tool", "tools"),
    ("done", "done"),
)


def replay(comparison: Comparison) -> str:
    """Play, pause, speed and scrub, and one or two runs under them."""
    left, right = _first_pair(comparison.runs)
    sides = [_side(comparison, left)] + ([_side(comparison, right)] if right is not None else [])
    speeds = "".join(f'<option value="{speed:g}">{speed:g}x</option>' for speed in SPEEDS)
    legend = "".join(f'<span><i class="cell {kind}"></i>{name}</span>' for kind, name in _LEGEND)
    if any(len(run.columns.evictions) for run in comparison.runs):
        legend += '<span><i class="cell struck"></i>cached blocks just evicted</span>'
    return (
        "<p>What the runs' own records say happened, on one simulated clock.</p>"
        '<div class="controls"><button type="button" id="replay-play" aria-pressed="false">Play</button>'
        f'<label>Speed <select id="replay-speed">{speeds}</select></label>'
        '<label class="scrub"><span class="visually-hidden">Simulated time</span>'
        '<input type="range" id="replay-at" min="0" max="1" value="0" step="any"></label>'
        '<output id="replay-clock" for="replay-at">0.0 s</output></div>'
        f'<p class="legend">{legend}</p><div class="sides">{"".join(sides)}</div>'
    )


def lanes(comparison: Comparison) -> str:
    """A run and a task to pick, why the task took so long, and its lanes."""
    left, _ = _first_pair(comparison.runs)
    options = "".join(
        f'<option value="{place}"{" selected" if place == left else ""}>{escape(run.label)}</option>'
        for place, run in enumerate(comparison.runs)
    )
    return (
        "<p>Every call, tool and wait of one task, an agent a lane. The line under the bars is the critical path:"
        " the chain that decided when the task ended.</p>"
        f'<div class="controls"><label>Run <select id="lanes-run">{options}</select></label>'
        '<label>Task, longest first <select id="lanes-task"></select></label></div>'
        '<p id="lanes-why" role="status"></p>'
        '<figure><div id="lanes-chart" role="img" aria-label="Swim lanes of the task"></div></figure>'
    )


def _first_pair(runs: Sequence[LabelledRun]) -> tuple[int, int | None]:
    """The two runs shown first: two architectures with the cache on, where there are such."""
    if len(runs) == 1:
        return 0, None
    for cache in (True, False, None):
        places = [place for place, run in enumerate(runs) if run.header.prefix_caching is cache]
        for place in places[1:]:
            if runs[place].header.architecture != runs[places[0]].header.architecture:
                return places[0], place
    return 0, 1


def _side(comparison: Comparison, chosen: int) -> str:
    options = "".join(
        f'<option value="{place}"{" selected" if place == chosen else ""}>{escape(run.label)}</option>'
        for place, run in enumerate(comparison.runs)
    )
    values = "".join(f'<div><dt>{name}</dt><dd data-value="{key}">-</dd></div>' for key, name in _VALUES)
    return (
        f'<div class="side"><label><span class="visually-hidden">Run</span><select>{options}</select></label>'
        ' <span class="over" role="status"></span>'
        f'<dl>{values}</dl><canvas role="img" aria-label="State of the run at this time"></canvas>'
        '<div class="lists quiet"><div><h3>Cached blocks evicted last</h3>'
        '<p class="evicted-when"></p><ul class="evicted"></ul></div>'
        "<div><h3>Tokens of a history computed again</h3>"
        '<p class="losses-when"></p><ul class="losses"></ul></div></div></div>'
    )
