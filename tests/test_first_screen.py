"""The README's first screen says what its command gives today."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## ")[0]
PREFILL_TOKENS_PER_S = 60_000


@pytest.fixture(scope="module")
def summary_by_run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """``loadgen experiment --clock virtual``: the summaries by the runs' names."""
    out = tmp_path_factory.mktemp("experiment")
    command = [sys.executable, "-m", "loadgen", "experiment", "--clock", "virtual", "--no-live", "--out", str(out)]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return {path.parent.name: json.loads(path.read_bytes()) for path in out.glob("*/summary.json")}


def shown(number: float) -> str:
    """Four digits, as the tables print them."""
    return f"{number:,.0f}" if number >= 1000 else f"{number:.4g}"


def test_makespans_are_those_of_the_experiment(summary_by_run: dict[str, dict[str, Any]]) -> None:
    for architecture, name in (("react", "ReAct"), ("orchestrator", "orchestrator")):
        (row,) = re.findall(rf"^\| {name}:.*?\| ([\d,.]+) s \| ([\d,.]+) s \|$", README, flags=re.MULTILINE)

        off, on = (summary_by_run[f"{architecture}-{cache}"] for cache in ("nocache", "cache"))
        assert off["valid"]
        assert on["valid"]
        assert row == (shown(off["duration"]), shown(on["duration"]))


def test_factors_are_those_of_the_experiment(summary_by_run: dict[str, dict[str, Any]]) -> None:
    seconds = {name: summary["duration"] for name, summary in summary_by_run.items()}
    (faster_off, faster_on) = re.findall(
        r"^\| the orchestrator is .*\| ([\d.]+) times \| ([\d.]+) times \|$", README, re.M
    )[0]
    (react, orchestrator) = re.findall(r"ReAct: ([\d.]+) times as fast, against ([\d.]+) times", README)[0]

    assert float(faster_off) == pytest.approx(seconds["react-nocache"] / seconds["orchestrator-nocache"], abs=0.05)
    assert float(faster_on) == pytest.approx(seconds["react-cache"] / seconds["orchestrator-cache"], abs=0.005)
    assert float(react) == pytest.approx(seconds["react-nocache"] / seconds["react-cache"], abs=0.5)
    assert float(orchestrator) == pytest.approx(
        seconds["orchestrator-nocache"] / seconds["orchestrator-cache"], abs=0.05
    )


def test_work_is_that_of_the_experiment(summary_by_run: dict[str, dict[str, Any]]) -> None:
    millions = {name: f"{summary['total_computed_tokens'] / 1e6:.1f} M" for name, summary in summary_by_run.items()}

    assert f"{millions['orchestrator-nocache']} prompt tokens instead of {millions['react-nocache']}" in README


def test_react_without_a_cache_is_bound_by_prefill(summary_by_run: dict[str, dict[str, Any]]) -> None:
    """Its makespan is the time that the reference node needs for its prompt tokens, and at most a tenth more."""
    summary = summary_by_run["react-nocache"]
    prefill_s = summary["total_input_tokens"] / PREFILL_TOKENS_PER_S

    assert prefill_s <= summary["duration"] <= 1.10 * prefill_s
