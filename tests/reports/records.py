"""Records with plain defaults, so that a test states only what it is about."""

from __future__ import annotations

from typing import Any

from reports.measure import RunColumns, collect
from traces.record import CallRecord, RunHeader, ServerSample, TaskRecord, ToolRecord


def make_header(**changes: Any) -> RunHeader:
    """A run of one task against the in-process server, complete and on time."""
    values: dict[str, Any] = {
        "run_id": "run",
        "architecture": "react",
        "workload": "made by hand",
        "workload_digest": "0",
        "num_tasks": 1,
        "target": "in-process",
        "clock": "virtual",
        "time_scale": None,
        "profile": "kimi-k2-8xb200",
        "prefix_caching": True,
        "max_num_seqs": 4,
        "block_size": 16,
        "seed": 0,
        "settings": {},
        "version": "0.1.0",
        "complete": True,
    }
    return RunHeader(**(values | changes))


def make_call(agent_id: str = "t/react", index: int = 0, **changes: Any) -> CallRecord:
    """A call due and sent at 0, first token at 1, last of 11 tokens at 2: TTFT 1 s, TPOT 0.1 s, E2E 2 s."""
    values: dict[str, Any] = {
        "call_id": f"{agent_id}#{index}",
        "task_id": agent_id.partition("/")[0],
        "agent_id": agent_id,
        "index": index,
        "due_at": 0.0,
        "sent_at": changes.get("due_at", 0.0),
        "first_token_at": 1.0,
        "last_token_at": 2.0,
        "num_prompt_tokens": 100,
        "num_cached_tokens": 0,
        "num_output_tokens": 11,
        "expected_output_tokens": changes.get("num_output_tokens", 11),
        "finish_reason": "stop",
    }
    return CallRecord(**(values | changes))


def make_tool(agent_id: str = "t/react", index: int = 0, **changes: Any) -> ToolRecord:
    """A tool that call ``index`` of the agent asked for; it runs from 2 to 3."""
    values: dict[str, Any] = {
        "task_id": agent_id.partition("/")[0],
        "agent_id": agent_id,
        "call_id": f"{agent_id}#{index}",
        "name": "read_file",
        "domain": "filesystem",
        "started_at": 2.0,
        "ended_at": 3.0,
    }
    return ToolRecord(**(values | changes))


def make_task(task_id: str = "t", **changes: Any) -> TaskRecord:
    """A task of one call, from 0 to 2."""
    values: dict[str, Any] = {
        "task_id": task_id,
        "started_at": 0.0,
        "ended_at": 2.0,
        "num_calls": 1,
        "num_tool_calls": 0,
        "num_subagents": 0,
    }
    return TaskRecord(**(values | changes))


def make_sample(at: float, **changes: Any) -> ServerSample:
    """An idle server that has done nothing yet."""
    values: dict[str, Any] = {
        "at": at,
        "num_running": 0,
        "num_waiting": 0,
        "num_waiting_tokens": 0,
        "num_blocks": 100,
        "num_used_blocks": 0,
        "num_cached_blocks": 0,
        "num_steps": 0,
        "busy_s": 0.0,
        "occupancy_s": 0.0,
        "num_computed_prompt_tokens": 0,
        "num_cached_prompt_tokens": 0,
        "num_generated_tokens": 0,
        "num_evicted_blocks": 0,
        "num_preemptions": 0,
        "num_finished_requests": 0,
    }
    return ServerSample(**(values | changes))


def make_run(
    *,
    calls: list[CallRecord] | None = None,
    tools: list[ToolRecord] | None = None,
    tasks: list[TaskRecord] | None = None,
    samples: list[ServerSample] | None = None,
    **header: Any,
) -> RunColumns:
    """A run's columns; by default one call in one task."""
    tasks = [make_task()] if tasks is None else tasks
    return collect(
        header=make_header(**({"num_tasks": len(tasks)} | header)),
        calls=[make_call()] if calls is None else calls,
        tools=tools or [],
        tasks=tasks,
        samples=samples or [],
    )
