"""Charts as SVG and PNG files, drawn by plotly in a headless Chromium or Chrome of this machine; no network.

The browser opens one local page, draws every chart there, and prints the page as it then stands, pictures included.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from reports.charts import chart, plain
from reports.compare import Comparison
from reports.html import embedded_json, plotly_script
from reports.series import Figure

PICTURES = ("svg", "png")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
"""Looked for on the PATH, in this order."""
_WIDTH = 960
_TITLE_HEIGHT = 44
_TIMEOUT_S = 180.0
_PAGE = """<!DOCTYPE html><meta charset="utf-8"><title>charts</title>
<body><script>{plotly}</script><script type="application/json" id="charts">{charts}</script><script>
(async () => {{
  for (const one of JSON.parse(document.getElementById("charts").textContent)) {{
    const picture = document.createElement("i");
    picture.title = await Plotly.toImage(one.chart, one.options);
    document.body.append(picture);
  }}
}})();
</script></body>"""


def find_browser(given: Path | None = None) -> str:
    """The browser to draw with; ``ValueError`` where there is none."""
    if given is not None:
        if not os.access(given, os.X_OK):
            raise ValueError(f"{given}: no program that can be run")
        return str(given)
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        raise ValueError(
            f"pictures need a browser: none of {', '.join(BROWSERS)} is installed; --browser names another"
        )
    return found


def draw(figures: Sequence[Figure], comparison: Comparison, *, to: str, browser: str) -> list[bytes]:
    """Each figure as ``svg`` or ``png``, with its title, on white. ``ValueError`` where the browser draws nothing."""
    charts = [_on_a_slide(figure, comparison, to) for figure in figures]
    with tempfile.TemporaryDirectory(prefix="replayrig-charts-") as folder:
        page = Path(folder) / "charts.html"
        page.write_text(_PAGE.format(plotly=plotly_script(), charts=embedded_json(charts)), encoding="utf-8")
        printed, complaint = _print(page, browser, Path(folder) / "profile")
    pictures = [_content(uri) for uri in re.findall(r'<i title="data:([^"]*)">', printed)]
    if len(pictures) != len(figures):
        raise ValueError(f"{browser} drew {len(pictures)} of {len(figures)} charts{complaint}")
    return pictures


def _on_a_slide(figure: Figure, comparison: Comparison, to: str) -> dict[str, Any]:
    made = chart(figure, comparison)
    layout = made["layout"]
    margin = layout["margin"]
    layout |= {
        "title": {"text": plain(figure.title), "x": 0, "xref": "paper", "y": 1, "yref": "container", "yanchor": "top"},
        "height": layout["height"] + _TITLE_HEIGHT,
        "margin": margin | {"t": margin["t"] + _TITLE_HEIGHT},
        "font": {"family": "Helvetica, Arial, sans-serif", "size": 13, "color": "#1b1f24"},
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
    }
    layout["title"] |= {"pad": {"t": 14}}
    if layout.get("legend", {}).get("yref") == "container":
        layout["legend"] |= {"y": 1 - _TITLE_HEIGHT / layout["height"]}  # below the title
    for name in layout:
        if name.startswith(("xaxis", "yaxis")):
            layout[name] |= {"gridcolor": "#d5d9df", "zerolinecolor": "#d5d9df"}
    options = {"format": to, "width": _WIDTH, "height": layout["height"], "scale": 2 if to == "png" else 1}
    return {"chart": made, "options": options}


def _print(page: Path, browser: str, profile: Path) -> tuple[str, str]:
    """What the page is in the end, and what the browser said last."""
    command = [
        browser,
        "--headless=new",
        "--disable-gpu",
        "--no-first-run",
        f"--user-data-dir={profile}",
        # Its clock jumps ahead while nothing happens, so the page is printed once all is drawn.
        "--virtual-time-budget=60000",
        "--dump-dom",
        page.as_uri(),
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.insert(1, "--no-sandbox")  # refused to root; the page is ours and fetches nothing
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise ValueError(f"{browser} did not draw the charts within {_TIMEOUT_S:g} s") from None
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return done.stdout.decode("utf-8", "replace"), f": {said[-1]}" if said else ""


def _content(uri: str) -> bytes:
    """The bytes of a data URI, without its ``data:``."""
    kind, _, text = uri.partition(",")
    text = text.replace("&amp;", "&").replace("&quot;", '"')
    return base64.b64decode(text) if kind.endswith(";base64") else unquote_to_bytes(text)
