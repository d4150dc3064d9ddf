"""The page: self-contained, whole, and safe whatever the records say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from reports.charts import styles
from reports.compare import compare
from reports.html import embedded_json, render
from reports.load import load_run
from reports.meanings import MEANINGS
from reports.table import METRICS
from tests.reports.records import make_call, make_run, make_sample, make_task, make_tool
from tests.reports.run_files import write_react_run

HOSTILE = "</script><script>alert(1)</script><!--\u2028"


def page_of(tmp_path: Path) -> str:
    runs = [write_react_run(tmp_path / name, call_s=2.0, prefix_caching=name == "on") for name in ("off", "on")]
    return render(compare([load_run(run) for run in runs]))


def embedded(page: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="report">(.*?)</script>', page, re.S)
    assert match is not None
    value: dict[str, Any] = json.loads(match[1])
    return value


def test_nothing_is_fetched_and_only_the_pages_own_scripts_may_run(tmp_path: Path) -> None:
    page = page_of(tmp_path)

    assert "default-src 'none'; script-src 'sha256-" in page
    assert re.findall(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=", page.partition("/**")[0]) == []


def test_the_page_says_validity_before_anything_else(tmp_path: Path) -> None:
    page = page_of(tmp_path)

    assert page.index("<b>Valid</b>") < page.index('id="finding"') < page.index('data-chart="makespan"')


def test_every_chart_on_the_page_has_its_data(tmp_path: Path) -> None:
    page = page_of(tmp_path)

    assert sorted(re.findall(r'data-chart="(\w+)"', page)) == sorted(embedded(page)["charts"])
    assert embedded(page)["charts"]["makespan"]["data"][0]["x"] == [6.0]


def test_what_a_server_does_not_tell_is_left_out_and_the_rest_is_drawn() -> None:
    """As a real vLLM's metrics: no evictions, no prefill queue, and one sample that lacks the cache's state."""
    samples = [
        make_sample(
            float(k),
            num_running=k,
            num_waiting_tokens=None,
            num_evicted_blocks=None,
            num_used_blocks=None if k == 1 else k,
        )
        for k in range(4)
    ]

    charts = embedded(render(compare([make_run(samples=samples)])))["charts"]

    assert "batch" in charts
    assert "prefill_queue" not in charts
    assert charts["kv_pool"]["series"][0]["x"] == [0.0, 2.0, 3.0]


def test_records_that_could_not_be_used_are_told_on_top() -> None:
    page = render(compare([make_run(notes={"workload": "a.jsonl: 3 <records> could not be used"})]))

    assert page.index("3 &lt;records&gt; could not be used") < page.index('id="finding"')


def test_every_number_of_the_table_is_explained() -> None:
    assert set(MEANINGS) == {metric.key for metric in METRICS}


def test_the_page_is_under_10_mb(tmp_path: Path) -> None:
    assert len(page_of(tmp_path).encode()) < 10e6


def test_hostile_strings_stay_text() -> None:
    agent_id = f"{HOSTILE}/react"
    run = make_run(
        calls=[make_call(agent_id, task_id=HOSTILE)],
        tools=[make_tool(agent_id, task_id=HOSTILE, name=HOSTILE)],
        tasks=[make_task(HOSTILE)],
        run_id=HOSTILE,
        architecture=HOSTILE,
        workload=HOSTILE,
        profile=HOSTILE,
        invalid_reasons=(HOSTILE,),
        settings={"x": HOSTILE},
    )

    page = render(compare([run, run]))

    assert "<script>alert" not in page
    assert "<!--\u2028" not in page
    assert embedded(page)["runs"][0].startswith(HOSTILE)


def test_embedded_json_cannot_end_its_element() -> None:
    text = embedded_json({"a": HOSTILE})

    assert "<" not in text
    assert json.loads(text) == {"a": HOSTILE}


def test_runs_of_one_architecture_share_a_colour_and_differ_in_their_pattern() -> None:
    runs = [
        make_run(architecture=architecture, prefix_caching=cache)
        for architecture in ("react", "orchestrator")
        for cache in (False, True)
    ]

    style = styles(compare(runs).runs)

    assert style[0][0] == style[1][0] != style[2][0] == style[3][0]
    assert [number for _, number in style] == [1, 0, 1, 0]
