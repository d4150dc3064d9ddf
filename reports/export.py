"""Runs and figures for other tools: CSV, JSON, Parquet, a Perfetto trace, vLLM's benchmark result."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from reports import measure
from reports.columns import Floats
from reports.compare import Comparison, LabelledRun
from reports.critical_path import critical_paths
from reports.figures import figure_named
from reports.perfetto import perfetto_trace
from reports.series import Figure
from reports.summary import summary_of

Table = dict[str, Sequence[Any]]


def call_table(run: LabelledRun) -> Table:
    """One row a call: its instants, its tokens, and every per-call metric."""
    calls = run.columns.calls
    return {
        "call_id": calls.call_id,
        "task_id": calls.task_id,
        "agent_id": calls.agent_id,
        "index": _whole(calls.index),
        "succeeded": calls.succeeded.tolist(),
        "due_at": _known(calls.due_at),
        "sent_at": _known(calls.sent_at),
        "scheduled_at": _known(calls.scheduled_at),
        "first_token_at": _known(calls.first_token_at),
        "last_token_at": _known(calls.last_token_at),
        "num_prompt_tokens": _whole(calls.num_prompt_tokens),
        "num_cached_tokens": _whole(calls.num_cached_tokens),
        "num_output_tokens": _whole(calls.num_output_tokens),
        "num_preemptions": _whole(calls.num_preemptions),
        "ttft_s": _known(measure.ttft_s(calls)),
        "tpot_s": _known(measure.tpot_s(calls)),
        "e2e_s": _known(measure.e2e_s(calls)),
        "latency_from_schedule_s": _known(measure.latency_from_schedule_s(calls)),
        "queue_time_s": _known(measure.queue_time_s(calls)),
        "send_lateness_s": _known(measure.send_lateness_s(run.columns)),
        "lag_s": _known(calls.lag_s),
        "expected_prompt_tokens": _whole(calls.expected_prompt_tokens),
        "expected_output_tokens": _whole(calls.expected_output_tokens),
    }


def tool_table(run: LabelledRun) -> Table:
    """One row a tool execution."""
    tools = run.columns.tools
    return {
        "call_id": tools.call_id,
        "task_id": tools.task_id,
        "agent_id": tools.agent_id,
        "name": tools.name,
        "domain": tools.domain,
        "started_at": _known(tools.started_at),
        "ended_at": _known(tools.ended_at),
    }


def task_table(run: LabelledRun) -> Table:
    """One row a task, with what its time went to along its critical path."""
    tasks = run.columns.tasks
    shares = [path.shares for path in critical_paths(run.columns.calls, run.columns.tools, tasks)]
    return {
        "task_id": tasks.task_id,
        "succeeded": tasks.succeeded.tolist(),
        "started_at": _known(tasks.started_at),
        "ended_at": _known(tasks.ended_at),
        "task_time_s": _known(measure.task_time_s(tasks)),
        "num_calls": _whole(tasks.num_calls),
        "num_tool_calls": _whole(tasks.num_tool_calls),
        "num_subagents": _whole(tasks.num_subagents),
        **{
            f"path_{part}": [getattr(share, part) for share in shares]
            for part in ("queue_s", "prefill_s", "decode_s", "tool_s", "harness_s")
        },
    }


def sample_table(run: LabelledRun) -> Table:
    """One row a sample of the server."""
    seconds = ("at", "busy_s", "occupancy_s")
    return {name: _known(column) if name in seconds else _whole(column) for name, column in run.columns.samples.items()}


def eviction_table(run: LabelledRun) -> Table:
    """One row for each agent that lost cached blocks between two samples of the server."""
    evictions, calls = run.columns.evictions, run.columns.calls
    task_by_agent = dict(zip(calls.agent_id, calls.task_id, strict=True))
    return {
        "at": _known(evictions.at),
        "task_id": [task_by_agent.get(agent_id) for agent_id in evictions.agent_id],
        "agent_id": evictions.agent_id,
        "num_blocks": _whole(evictions.num_blocks),
    }


TABLES: dict[str, Callable[[LabelledRun], Table]] = {
    "calls": call_table,
    "tools": tool_table,
    "tasks": task_table,
    "server": sample_table,
    "evictions": eviction_table,
}


def figure_table(figure: Figure, comparison: Comparison) -> Table:
    """A figure's series as rows of run, series, x, y."""
    rows: list[tuple[str, str, Any, Any]] = []
    for series in figure.series:
        label = "" if series.run is None else comparison.runs[series.run].label
        rows += [(label, series.name, x, y) for x, y in zip(series.x, series.y, strict=True)]
    return {name: [row[place] for row in rows] for place, name in enumerate(("run", "series", "x", "y"))}


def with_run(comparison: Comparison, of: Callable[[LabelledRun], Table]) -> Table:
    """The tables of all runs below each other; with several runs, a first column says whose row it is."""
    tables = [of(run) for run in comparison.runs]
    if len(tables) == 1:
        return tables[0]
    joined: dict[str, list[Any]] = {"run": []}
    for run, table in zip(comparison.runs, tables, strict=True):
        joined["run"] += [run.label] * len(next(iter(table.values())))
        for name, column in table.items():
            joined.setdefault(name, []).extend(column)
    return dict(joined)


def as_csv(table: Table) -> bytes:
    """Comma-separated with a head row; what is not known is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    return text.getvalue().encode()


def as_json(table: Table) -> bytes:
    """A list of objects, a row each."""
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    return (json.dumps(rows, indent=1) + "\n").encode()


def as_parquet(table: Table) -> bytes:
    """Parquet, where pyarrow is installed."""
    try:
        import pyarrow  # noqa: PLC0415  # optional: 40 MB that few need
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        raise ValueError("Parquet needs pyarrow: pip install pyarrow, or use --to csv") from None
    sink = io.BytesIO()
    parquet.write_table(pyarrow.table({name: list(column) for name, column in table.items()}), sink)
    return sink.getvalue()


FORMATS: dict[str, Callable[[Table], bytes]] = {"csv": as_csv, "json": as_json, "parquet": as_parquet}


def vllm_result(run: LabelledRun) -> bytes:
    """What ``vllm bench serve --save-result --save-detailed`` writes, with our definitions and our keys beside its
    own.
    """
    calls, header = run.columns.calls, run.header
    result = {
        "date": header.started_on,
        "backend": header.target,
        "label": run.label,
        "num_prompts": len(calls),
        "max_concurrency": header.settings.get("max_concurrency"),
        **summary_of(run.numbers),
        "input_lens": _whole(calls.num_prompt_tokens),
        "output_lens": _whole(calls.num_output_tokens),
        "ttfts": _known(measure.ttft_s(calls)),
        "start_times": _known(calls.sent_at),
        "errors": ["" if ok else "failed" for ok in calls.succeeded.tolist()],
    }
    return (json.dumps(result, indent=1) + "\n").encode()


def export(comparison: Comparison, *, what: str, to: str, figure: str | None) -> bytes:
    """The bytes of one export; ``ValueError`` says what there is to choose from."""
    if figure is not None:
        return _formatted(figure_table(figure_named(comparison, figure), comparison), to)
    if to in ("perfetto", "vllm"):
        if len(comparison.runs) != 1:
            raise ValueError(f"--to {to} takes one run, got {len(comparison.runs)}")
        return perfetto_trace(comparison.runs[0]) if to == "perfetto" else vllm_result(comparison.runs[0])
    if what not in TABLES:
        raise ValueError(f"no table {what!r}; there are {', '.join(TABLES)}")
    return _formatted(with_run(comparison, TABLES[what]), to)


def _formatted(table: Table, to: str) -> bytes:
    if to not in FORMATS:
        raise ValueError(f"a table cannot be written as {to}; there are {', '.join(FORMATS)}")
    return FORMATS[to](table)


def _known(values: Floats) -> list[float | None]:
    return [None if np.isnan(value) else value for value in values.tolist()]


def _whole(values: Floats) -> list[int | None]:
    return [None if np.isnan(value) else int(value) for value in values.tolist()]
