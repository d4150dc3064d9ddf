"""A run's records as the compact stream that the page replays: columns of whole milliseconds.

Calls are sorted by when they were due, and each later instant is stored as the time since the one before it, so that
most numbers have a few digits. ``page/events.js`` undoes this.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from reports.columns import Floats
from reports.compare import Comparison, LabelledRun
from reports.critical_path import CriticalPath, critical_paths
from reports.evictions import EvictionColumns
from reports.measure import num_reusable_tokens

MAX_CALLS = 120_000
"""More calls than this, over all runs of a page, are not replayed: the page would be over 10 MB."""
MAX_SAMPLES = 1500
Json = dict[str, Any]


def events(comparison: Comparison) -> list[Json]:
    """One stream for each run; empty where they are too long for a page."""
    if sum(len(run.columns.calls) for run in comparison.runs) > MAX_CALLS:
        return []
    return [run_events(run) for run in comparison.runs]


def run_events(run: LabelledRun) -> Json:
    """The calls, tools, tasks and samples of one run."""
    columns = run.columns
    tasks = columns.tasks
    place_by_task = {task_id: place for place, task_id in enumerate(tasks.task_id)}
    task_ids = list(tasks.task_id)
    for task_id in (*columns.calls.task_id, *columns.tools.task_id):
        if task_id not in place_by_task:  # a task that did not end has no record of its own
            place_by_task[task_id] = len(task_ids)
            task_ids.append(task_id)
    agents = list(dict.fromkeys((*columns.calls.agent_id, *columns.tools.agent_id, *columns.evictions.agent_id)))
    place_by_agent = {agent_id: place for place, agent_id in enumerate(agents)}
    paths = critical_paths(columns.calls, columns.tools, tasks)
    return {
        "label": run.label,
        "max_num_seqs": run.header.max_num_seqs,
        "block_size": run.header.block_size,
        "tasks": {
            "id": task_ids,
            "started_at": _ms(tasks.started_at),
            "ended_at": _ms(tasks.ended_at),
            "shares": [_shares_ms(path) for path in paths],
        },
        "agents": agents,
        "calls": _calls(run, place_by_task, place_by_agent, _on_path(paths, "call")),
        "tools": _tools(run, place_by_task, place_by_agent, _on_path(paths, "tool")),
        "samples": _samples(columns.samples),
        "evictions": _evictions(columns.evictions, place_by_agent),
    }


def _calls(run: LabelledRun, task: dict[str, int], agent: dict[str, int], on_path: set[int]) -> Json:
    calls = run.columns.calls
    order = np.argsort(calls.due_at, kind="stable")
    due_ms = np.rint(calls.due_at[order] * 1000)
    first_at = np.where(np.isnan(calls.first_token_at), calls.last_token_at, calls.first_token_at)
    instants = [
        due_ms,
        *(np.rint(at[order] * 1000) for at in (calls.sent_at, calls.started_at, first_at, calls.last_token_at)),
    ]
    sent, queue, prefill, decode = (_whole(b - a) for a, b in itertools.pairwise(instants))
    block_size = run.header.block_size or 1
    lost = num_reusable_tokens(calls, block_size=block_size) - calls.num_cached_tokens
    return {
        "task": [task[calls.task_id[i]] for i in order],
        "agent": [agent[calls.agent_id[i]] for i in order],
        "index": _whole(calls.index[order]),
        "due": _whole(np.diff(due_ms, prepend=0)),
        "sent": sent,
        "queue": queue,
        "prefill": prefill,
        "decode": decode,
        "prompt": _whole(calls.num_prompt_tokens[order]),
        "cached": _whole(calls.num_cached_tokens[order]),
        "output": _whole(calls.num_output_tokens[order]),
        "lost": _whole(lost[order]) if run.header.prefix_caching else [],
        "on_path": [int(i in on_path) for i in order.tolist()],
    }


def _tools(run: LabelledRun, task: dict[str, int], agent: dict[str, int], on_path: set[int]) -> Json:
    tools = run.columns.tools
    order = np.argsort(tools.started_at, kind="stable")
    names = list(dict.fromkeys(tools.name))
    place_by_name = {name: place for place, name in enumerate(names)}
    started_ms = np.rint(tools.started_at[order] * 1000)
    return {
        "names": names,
        "task": [task[tools.task_id[i]] for i in order],
        "agent": [agent[tools.agent_id[i]] for i in order],
        "name": [place_by_name[tools.name[i]] for i in order],
        "started": _whole(np.diff(started_ms, prepend=0)),
        "took": _whole(np.rint(tools.ended_at[order] * 1000) - started_ms),
        "on_path": [int(i in on_path) for i in order.tolist()],
    }


def _samples(samples: dict[str, Floats]) -> Json:
    size = samples["at"].size
    keep = (
        np.unique(np.linspace(0, size - 1, min(size, MAX_SAMPLES)).astype(np.int64)) if size else np.empty(0, np.int64)
    )
    names: tuple[str, ...] = ("num_blocks", "num_used_blocks", "num_cached_blocks", "num_evicted_blocks")
    names += ("num_computed_prompt_tokens", "num_generated_tokens")
    return {"at": _ms(samples["at"][keep]), **{name: _whole(samples[name][keep]) for name in names}}


def _evictions(evictions: EvictionColumns, agent: dict[str, int]) -> Json | None:
    """Rows by time; None where the server does not say whose blocks they were."""
    if not evictions.is_known:
        return None
    return {
        "at": _whole(np.diff(np.rint(evictions.at * 1000), prepend=0)),
        "agent": [agent[agent_id] for agent_id in evictions.agent_id],
        "blocks": _whole(evictions.num_blocks),
    }


def _on_path(paths: list[CriticalPath], kind: str) -> set[int]:
    return {step.position for path in paths for step in path.steps if step.kind == kind}


def _shares_ms(path: CriticalPath) -> list[int]:
    shares = path.shares
    parts = (shares.queue_s, shares.prefill_s, shares.decode_s, shares.tool_s, shares.harness_s)
    return [round(part * 1000) for part in parts]


def _ms(seconds: Floats) -> list[int | None]:
    return _whole(np.rint(seconds * 1000))


def _whole(values: Floats) -> list[int | None]:
    return [None if np.isnan(value) else int(value) for value in values.tolist()]
