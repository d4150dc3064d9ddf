"""What other tools get, and that every figure of a page comes back from one command."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from reports.__main__ import main
from reports.compare import Comparison, compare
from reports.export import export
from reports.figures import FIGURES, figures
from reports.html import render
from reports.load import load_run
from tests.reports.run_files import write_react_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    return [
        write_react_run(folder / "off", call_s=2.0, prefix_caching=False),
        write_react_run(folder / "on", call_s=1.0, num_cached_tokens=96, prefix_caching=True),
    ]


@pytest.fixture(scope="module")
def comparison(runs: list[Path]) -> Comparison:
    return compare([load_run(run) for run in runs])


@pytest.fixture(scope="module")
def page_series(comparison: Comparison) -> dict[str, list[dict[str, Any]]]:
    match = re.search(r'id="report">(.*?)</script>', render(comparison), re.S)
    assert match is not None
    return {name: chart["series"] for name, chart in json.loads(match[1])["charts"].items()}


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_of_the_page_is_recomputed_by_one_command(
    name: str,
    runs: list[Path],
    page_series: dict[str, list[dict[str, Any]]],
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    status = main(["export", *map(str, runs), "--figure", name, "--to", "json"])

    rows = json.loads(capsysbinary.readouterr().out)
    drawn = [
        {"run": one["run"] or "", "series": one["name"], "x": x, "y": y}
        for one in page_series[name]
        for x, y in zip(one["x"], one["y"], strict=True)
    ]
    assert status == 0
    assert rows == drawn
    assert len(rows) > 0


def test_the_page_leaves_no_figure_out(comparison: Comparison) -> None:
    assert [figure.name for figure in figures(comparison)] == list(FIGURES)


def test_makespan_of_the_figure_is_that_of_the_records(runs: list[Path]) -> None:
    """Recomputed from tasks.jsonl by hand, without any code of ours."""
    (row,) = json.loads(export(compare([load_run(runs[0])]), what="calls", to="json", figure="makespan"))

    tasks = [json.loads(line) for line in (runs[0] / "tasks.jsonl").read_text().splitlines()]
    assert row["x"] == max(t["ended_at"] for t in tasks) - min(t["started_at"] for t in tasks)


def test_calls_as_csv_have_their_metrics(comparison: Comparison) -> None:
    text = export(comparison, what="calls", to="csv", figure=None).decode()

    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 8
    assert rows[0]["run"] == "react, cache off"
    assert (rows[0]["ttft_s"], rows[0]["e2e_s"], rows[0]["lag_s"]) == ("1.0", "2.0", "")


@pytest.mark.parametrize(("what", "num_rows"), [("calls", 4), ("tools", 2), ("tasks", 2), ("server", 5)])
def test_every_record_is_exported(what: str, num_rows: int, runs: list[Path]) -> None:
    rows = json.loads(export(compare([load_run(runs[0])]), what=what, to="json", figure=None))

    assert len(rows) == num_rows


def test_parquet_is_the_same_table(comparison: Comparison) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

    table = parquet.read_table(io.BytesIO(export(comparison, what="calls", to="parquet", figure=None)))

    assert table.num_rows == 8
    assert table.column("ttft_s").to_pylist()[0] == 1.0


def test_vllm_json_has_the_keys_that_its_readers_use(runs: list[Path]) -> None:
    result = json.loads(export(compare([load_run(runs[0])]), what="calls", to="vllm", figure=None))

    assert result["completed"] == 4
    assert result["mean_ttft_ms"] == 1000
    assert len(result["ttfts"]) == len(result["input_lens"]) == len(result["output_lens"]) == 4
    assert {"p99_tpot_ms", "median_e2el_ms", "request_throughput", "output_throughput", "duration"} <= result.keys()


def test_perfetto_trace_shows_each_agent_as_a_thread(runs: list[Path]) -> None:
    trace = json.loads(export(compare([load_run(runs[0])]), what="calls", to="perfetto", figure=None))

    events = trace["traceEvents"]
    threads = {
        event["args"]["name"]: (event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"
    }
    tool = next(event for event in events if event["name"] == "read_file")
    assert (tool["pid"], tool["tid"]) == threads["a/react"]
    assert (tool["ts"], tool["dur"]) == (2e6, 1e6)
    assert sum(event["ph"] == "C" and event["name"] == "blocks in use" for event in events) == 5


def test_the_format_follows_the_files_name(runs: list[Path], tmp_path: Path) -> None:
    main(["export", str(runs[0]), "--what", "tasks", "-o", str(tmp_path / "tasks.json")])

    assert len(json.loads((tmp_path / "tasks.json").read_text())) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--figure", "none"], "no figure 'none'; there are makespan,"),
        (["--figure", "makespan", "--to", "perfetto"], "cannot be written as perfetto"),
        (["{other}", "--to", "vllm"], "takes one run, got 2"),
    ],
)
def test_what_cannot_be_exported_is_one_line(
    arguments: list[str], says: str, runs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["export", str(runs[0]), *(argument.format(other=runs[1]) for argument in arguments)])

    assert status == 2
    assert says in capsys.readouterr().err
