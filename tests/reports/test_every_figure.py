"""Every figure on a page comes back from the run directories by one documented command: a test for each kind.

Charts of the comparison stand in ``test_export``; here is all else that a page says in numbers.
"""

from __future__ import annotations

import base64
import gzip
import html
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reports.__main__ import main
from reports.compare import compare
from reports.fidelity import fidelity
from reports.fidelity_page import render_fidelity
from reports.html import render
from reports.intervals import Difference, format_difference, format_relative
from reports.load import load_run
from reports.table import METRICS, PERCENTILES, Metric, format_value
from reports.table_markup import WHOLE_RUN
from tests.reports.run_files import write_react_run

JSON_KEYS = {
    "num_computed_tokens": "total_computed_tokens",
    "num_cached_tokens": "total_cached_tokens",
    "num_prompt_tokens": "total_input_tokens",
    "num_output_tokens": "total_output_tokens",
    "goodput": "request_goodput",
    "num_evicted_blocks": "evicted_blocks",
    "num_preemptions": "preemptions",
    "num_failed": "failed",
    "num_prompts_off": "prompts_off",
    "lag": "p99_lag_s",
    "send_lag": "p99_send_lag_s",
    "e2e": "e2el_ms",
    "ttft": "ttft_ms",
    "tpot": "tpot_ms",
    "itl": "itl_ms",
    "latency_from_schedule": "latency_from_schedule_ms",
    "queue_time": "queue_time_ms",
    "task_time": "task_time_s",
    "calls_shape": "calls_per_task",
    "agents_shape": "agents_per_task",
    "tokens_shape": "tokens_per_task",
    "parallelism_shape": "calls_at_once",
    "context_shape": "context_tokens",
    "kv_bytes_shape": "kv_bytes_per_agent",
}
"""Where a row of the table stands in ``reports show --json``, where not under its own key."""
PATH_PARTS = ("queue", "prefill", "decode", "tool", "harness")

Command = Callable[..., str]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    off = write_react_run(folder / "off", call_s=2.0, prefix_caching=False)
    on = write_react_run(folder / "on", call_s=1.0, num_cached_tokens=96, prefix_caching=True)
    return [off, on]


@pytest.fixture(scope="module")
def page(runs: list[Path]) -> str:
    return render(compare([load_run(run) for run in runs]))


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command of ``reports`` and gives what it printed."""

    def run(*arguments: object) -> str:
        capsys.readouterr()
        main([str(argument) for argument in arguments])
        return capsys.readouterr().out

    return run


def rows_of(page: str) -> dict[str, list[tuple[str, str]]]:
    """The table: a row's title to each run's value and difference, as text."""
    cell = r'<td[^>]*>(.*?)<span class="bar"[^>]*></span>(?:<span class="difference">(.*?)</span>)?</td>'
    return {
        html.unescape(title): [
            (value, html.unescape(note).replace("\u00a0", " ")) for value, note in re.findall(cell, cells)
        ]
        for title, cells in re.findall(r'<tr><th scope="row" title="[^"]*">(.*?)</th>(.*?)</tr>', page)
    }


def titles_of(metric: Metric) -> list[tuple[str, str]]:
    """A metric's rows: title, and the percentile or nothing."""
    if not metric.is_spread:
        return [(metric.title, "")]
    return [(f"{metric.title} {percentile}", percentile) for percentile in PERCENTILES]


def from_json(summary: dict[str, Any], metric: Metric, percentile: str) -> float | None:
    """A row's value from the JSON summary, in the row's unit."""
    part = metric.key.removesuffix("_share")
    if part in PATH_PARTS and part != "tool":
        return float(100 * summary[f"path_{part}_s"] / sum(summary[f"path_{one}_s"] for one in PATH_PARTS))
    if metric.key == "num_calls":
        return float(summary["completed"] + summary["failed"])
    key = JSON_KEYS.get(metric.key, metric.key)
    value = summary[f"{percentile}_{key}" if percentile else key]
    scale = metric.scale / 1000 if key.endswith("_ms") else metric.scale
    return None if value is None else float(value * scale)


def test_every_number_of_the_table_is_one_of_show_json(runs: list[Path], page: str, command: Command) -> None:
    summaries = json.loads(command("show", *runs, "--json"))

    rows = rows_of(page)
    expected = {
        title: [format_value(from_json(summary, metric, percentile)) for summary in summaries]
        for metric in METRICS
        for title, percentile in titles_of(metric)
        if title in rows
    }
    assert {title: [value for value, _ in cells] for title, cells in rows.items()} == expected
    assert len(rows) > 30


def test_every_difference_of_the_table_is_one_of_show_json(runs: list[Path], page: str, command: Command) -> None:
    first, second = json.loads(command("show", *runs, "--json"))

    shown = {title: cells[1][1] for title, cells in rows_of(page).items() if cells[1][1]}
    expected = {
        title: format_difference(Difference(**second["against_first"][key]))
        for metric in METRICS
        for title, percentile in titles_of(metric)
        if (key := f"{metric.key}_{percentile}" if percentile else metric.key) in second["against_first"]
    }
    for metric in METRICS:
        if metric.key in WHOLE_RUN and (before := from_json(first, metric, "")):
            expected[metric.title] = format_relative(from_json(second, metric, "") or 0.0, before)
    assert expected["Makespan (s)"] == "-33 %"
    assert shown == expected
    assert len(shown) > 10


def test_every_sentence_of_the_finding_is_printed_by_compare(runs: list[Path], page: str, command: Command) -> None:
    printed = " ".join(command("compare", *runs).split())

    paragraphs = re.findall(r"<p><strong>(.*?)</strong>(.*?)</p>", page)
    assert paragraphs
    for first, rest in paragraphs:
        assert " ".join(html.unescape(f"{first}{rest}").split()) in printed


def streams_of(page: str) -> list[dict[str, Any]]:
    match = re.search(r'id="report">(.*?)</script>', page, re.S)
    assert match is not None
    streams: list[dict[str, Any]] = json.loads(gzip.decompress(base64.b64decode(json.loads(match[1])["events"])))
    return streams


def ms(values: list[float]) -> list[int]:
    return [round(value * 1000) for value in values]


@pytest.mark.parametrize("place", [0, 1])
def test_what_the_replay_plays_is_what_export_prints(place: int, runs: list[Path], page: str, command: Command) -> None:
    stream = streams_of(page)[place]

    def exported(what: str, order: str) -> dict[str, list[Any]]:
        rows = json.loads(command("export", runs[place], "--what", what, "--to", "json"))
        rows.sort(key=lambda row: row[order])
        return {name: [row[name] for row in rows] for name in rows[0]}

    calls, packed = exported("calls", "due_at"), stream["calls"]
    due = list(itertools.accumulate(packed["due"]))
    last = [sum(parts) for parts in zip(due, *(packed[n] for n in ("sent", "queue", "prefill", "decode")), strict=True)]
    assert (due, last) == (ms(calls["due_at"]), ms(calls["last_token_at"]))
    for name in ("prompt", "cached", "output"):
        assert packed[name] == calls[f"num_{name}_tokens"]
    assert [stream["agents"][agent] for agent in packed["agent"]] == calls["agent_id"]
    tools, tasks = exported("tools", "started_at"), exported("tasks", "started_at")
    assert list(itertools.accumulate(stream["tools"]["started"])) == ms(tools["started_at"])
    assert stream["tasks"]["ended_at"] == ms(tasks["ended_at"])
    assert stream["samples"]["num_used_blocks"] == exported("server", "at")["num_used_blocks"]
    evictions = exported("evictions", "at")
    assert list(itertools.accumulate(stream["evictions"]["at"])) == ms(evictions["at"])
    assert stream["evictions"]["blocks"] == evictions["num_blocks"]


@pytest.mark.parametrize("place", [0, 1])
def test_why_a_task_took_so_long_is_what_export_prints(
    place: int, runs: list[Path], page: str, command: Command
) -> None:
    tasks = json.loads(command("export", runs[place], "--what", "tasks", "--to", "json"))

    shares = [ms([task[f"path_{part}_s"] for part in PATH_PARTS]) for task in tasks]
    assert streams_of(page)[place]["tasks"]["shares"] == shares


def test_every_chart_of_mock_against_live_is_printed_by_compare_json(runs: list[Path], command: Command) -> None:
    mock, live = compare([load_run(run) for run in runs]).runs
    page = render_fidelity(fidelity(mock, [live]))

    printed = json.loads(command("compare", "--mock", runs[0], "--live", runs[1], "--json"))

    match = re.search(r'id="report">(.*?)</script>', page, re.S)
    assert match is not None
    drawn = {name: chart["series"] for name, chart in json.loads(match[1])["charts"].items()}
    assert drawn == printed["charts"]
    assert set(drawn) == {"qq_ttft", "qq_tpot", "qq_e2e"}
