"""Run directories on disk, small enough to check by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.reports.records import make_call, make_header, make_sample, make_task, make_tool
from traces.jsonl import RunWriter
from traces.record import CallRecord, ServerSample, TaskRecord, ToolRecord


def write_run(
    directory: Path,
    *,
    calls: list[CallRecord] | None = None,
    tools: list[ToolRecord] | None = None,
    tasks: list[TaskRecord] | None = None,
    samples: list[ServerSample] | None = None,
    **header: Any,
) -> Path:
    """Write a run of the given records, as the load generator would."""
    tasks = [make_task()] if tasks is None else tasks
    made = make_header(**({"run_id": directory.name, "num_tasks": len(tasks)} | header))
    with RunWriter(directory, made) as writer:
        for call in [make_call()] if calls is None else calls:
            writer.call(call)
        for tool in tools or []:
            writer.tool(tool)
        for task in tasks:
            writer.task(task)
        for sample in samples or []:
            writer.sample(sample)
        writer.finish(made, {})
    return directory


def write_react_run(directory: Path, *, call_s: float, num_cached_tokens: int = 0, **header: Any) -> Path:
    """Two tasks, each of two calls that take ``call_s`` with a tool of 1 s between them, and server samples."""
    calls, tools, tasks = [], [], []
    for number, task_id in enumerate(("a", "b")):
        start = float(number)
        calls.append(_call(task_id, 0, start, call_s, 0))
        tool_at = start + call_s
        tools.append(make_tool(f"{task_id}/react", 0, started_at=tool_at, ended_at=tool_at + 1))
        calls.append(_call(task_id, 1, tool_at + 1, call_s, num_cached_tokens))
        end = tool_at + 1 + call_s
        tasks.append(make_task(task_id, started_at=start, ended_at=end, num_calls=2, num_tool_calls=1))
    last = max(task.ended_at for task in tasks)
    samples = [
        make_sample(
            last * k / 4,
            busy_s=last * k / 4,
            occupancy_s=last * k / 2,
            num_used_blocks=10 * (k % 4),
            num_generated_tokens=round(10 * last * k / 4),
            num_waiting_tokens=100 * (k == 1),
            num_running=k % 2,
            num_computed_prompt_tokens=100 * k,
            num_cached_prompt_tokens=20 * k,
            num_evicted_blocks=3 * k,
            evicted_by_agent={"a/react": 3} if k else {},
        )
        for k in range(5)
    ]
    return write_run(directory, calls=calls, tools=tools, tasks=tasks, samples=samples, **header)


def _call(task_id: str, index: int, due_at: float, call_s: float, num_cached_tokens: int) -> CallRecord:
    return make_call(
        f"{task_id}/react",
        index,
        due_at=due_at,
        scheduled_at=due_at,
        first_token_at=due_at + call_s / 2,
        last_token_at=due_at + call_s,
        num_cached_tokens=num_cached_tokens,
    )
