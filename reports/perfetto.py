"""A run as a trace that ui.perfetto.dev (or chrome://tracing) opens: a process a task, a thread an agent."""

from __future__ import annotations

import json
import math
from typing import Any

from reports.compare import LabelledRun

_SERVER = 1
"""The process that holds the server's counters; tasks come after it."""
_COUNTERS = {
    "running requests": "num_running",
    "waiting requests": "num_waiting",
    "prompt tokens to compute": "num_waiting_tokens",
    "blocks in use": "num_used_blocks",
    "blocks cached": "num_cached_blocks",
    "evicted blocks": "num_evicted_blocks",
}
Event = dict[str, Any]


def perfetto_trace(run: LabelledRun) -> bytes:
    """The trace as JSON in Chrome's trace event format; times are microseconds of the run's own clock."""
    events = [*_calls(run), *_tools(run), *_counters(run)]
    trace = {"traceEvents": [*_names(run), *events], "displayTimeUnit": "ms", "otherData": {"run": run.label}}
    return json.dumps(trace, separators=(",", ":")).encode()


def _places(run: LabelledRun) -> tuple[dict[str, int], dict[str, int]]:
    calls, tools = run.columns.calls, run.columns.tools
    tasks = dict.fromkeys((*run.columns.tasks.task_id, *calls.task_id, *tools.task_id))
    agents = dict.fromkeys((*calls.agent_id, *tools.agent_id))
    return (
        {task_id: _SERVER + 1 + place for place, task_id in enumerate(tasks)},
        {agent_id: 1 + place for place, agent_id in enumerate(agents)},
    )


def _names(run: LabelledRun) -> list[Event]:
    process, thread = _places(run)
    names = [_name("process_name", _SERVER, 0, "server")]
    names += [_name("process_name", pid, 0, task_id) for task_id, pid in process.items()]
    task_by_agent = dict(zip(run.columns.calls.agent_id, run.columns.calls.task_id, strict=True))
    task_by_agent |= dict(zip(run.columns.tools.agent_id, run.columns.tools.task_id, strict=True))
    names += [_name("thread_name", process[task_by_agent[a]], tid, a) for a, tid in thread.items()]
    return names


def _name(kind: str, pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def _calls(run: LabelledRun) -> list[Event]:
    process, thread = _places(run)
    calls = run.columns.calls
    columns = (calls.due_at, calls.sent_at, calls.started_at, calls.first_token_at, calls.last_token_at)
    events = []
    for place, (due, sent, started, first, last) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        if math.isnan(last):
            continue
        where = {"pid": process[calls.task_id[place]], "tid": thread[calls.agent_id[place]]}
        tokens = {
            "prompt tokens": _plain(calls.num_prompt_tokens[place]),
            "cached tokens": _plain(calls.num_cached_tokens[place]),
            "output tokens": _plain(calls.num_output_tokens[place]),
        }
        events.append(_slice(f"call {int(calls.index[place])}", due, last, where, tokens))
        first = last if math.isnan(first) else first  # noqa: PLW2901  # an answer without a token
        for name, begin, end in (("queue", sent, started), ("prefill", started, first), ("decode", first, last)):
            if end > begin:
                events.append(_slice(name, begin, end, where, {}))
    return events


def _tools(run: LabelledRun) -> list[Event]:
    process, thread = _places(run)
    tools = run.columns.tools
    return [
        _slice(
            tools.name[place],
            started,
            ended,
            {"pid": process[tools.task_id[place]], "tid": thread[tools.agent_id[place]]},
            {"domain": tools.domain[place]},
        )
        for place, (started, ended) in enumerate(zip(tools.started_at.tolist(), tools.ended_at.tolist(), strict=True))
    ]


def _counters(run: LabelledRun) -> list[Event]:
    samples = run.columns.samples
    return [
        {"ph": "C", "name": name, "pid": _SERVER, "tid": 0, "ts": at * 1e6, "args": {"value": int(value)}}
        for name, field in _COUNTERS.items()
        for at, value in zip(samples["at"].tolist(), samples[field].tolist(), strict=True)
        if not math.isnan(value)  # the server does not say
    ]


def _slice(name: str, begin: float, end: float, where: Event, args: Event) -> Event:
    return {"ph": "X", "name": name, "ts": begin * 1e6, "dur": (end - begin) * 1e6, **where, "args": args}


def _plain(value: float) -> int | None:
    return None if math.isnan(value) else int(value)
