"""Agent Trajectory Interchange Format 1.7: a trajectory a line, subagents embedded.

Holds: all text, tool schemas, tool calls and results, output lengths, fan-outs (their order and times only where the
run was recorded with them). Does not hold: tool latencies, delays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import orjson

from traces.exporters.chat import Agent, require_text, schemas
from traces.importers.log import ImportLog
from traces.prompt_size import num_output_tokens
from traces.trajectory import Trajectory, Turn

NAME = "atif"
VERSION = "ATIF-v1.7"
_EPOCH = 1_767_225_600.0  # 2026-01-01: recordings have times from their start only


def exporter(log: ImportLog) -> Callable[[Trajectory], Iterator[bytes]]:
    """A function from a trajectory to its line."""

    def export(trajectory: Trajectory) -> Iterator[bytes]:
        require_text(trajectory, NAME)
        yield orjson.dumps(_trajectory(trajectory, trajectory.task_id, trajectory, log))

    return export


def _trajectory(agent: Agent, agent_id: str, task: Trajectory, log: ImportLog) -> dict[str, Any]:
    steps: list[dict[str, Any]] = []
    if agent.system_prompt:
        steps.append({"source": "system", "message": agent.system_prompt})
    if agent.user_prompt:
        steps.append({"source": "user", "message": agent.user_prompt})
    for turn in agent.turns:
        if turn.user_message is not None:
            steps.append({"source": "user", "message": turn.user_message})
        steps.append(_step(turn, task, log))
    embedded = [_trajectory(spawn, spawn.agent_id, task, log) for turn in agent.turns for spawn in turn.spawns]
    outputs = sum(num_output_tokens(turn) for turn in agent.turns)
    record = {
        "schema_version": VERSION,
        "session_id": task.task_id,
        "trajectory_id": agent_id,
        "agent": {
            "name": task.source or "replayrig",
            "version": "1",
            **({"model_name": task.model} if task.model else {}),
            **({"tool_definitions": schemas(agent.tools)} if agent.tools else {}),
        },
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, start=1)],
        "final_metrics": {"total_completion_tokens": outputs, "total_steps": len(steps)},
    }
    return record | ({"subagent_trajectories": embedded} if embedded else {})


def _step(turn: Turn, task: Trajectory, log: ImportLog) -> dict[str, Any]:
    step: dict[str, Any] = {"source": "agent", "message": turn.content}
    if task.model:
        step["model_name"] = task.model
    if turn.started_at is not None:
        ended = _EPOCH + turn.started_at + (turn.duration_s or 0.0)
        step["timestamp"] = datetime.fromtimestamp(ended, UTC).isoformat().replace("+00:00", "Z")
    if turn.num_output_tokens is not None:
        step["metrics"] = {"completion_tokens": turn.num_output_tokens}
    if turn.tool_calls:
        step["tool_calls"] = [
            {"tool_call_id": call.call_id, "function_name": call.name, "arguments": _arguments(call.arguments, log)}
            for call in turn.tool_calls
        ]
    results: list[dict[str, Any]] = [
        {"source_call_id": call.call_id, "content": call.result} for call in turn.tool_calls
    ]
    if turn.spawns:
        results.append({"subagent_trajectory_ref": [{"trajectory_id": spawn.agent_id} for spawn in turn.spawns]})
    if results:
        step["observation"] = {"results": results}
    log.note("tool latencies: the format has none", sum(call.latency_s is not None for call in turn.tool_calls))
    return step


def _arguments(text: str, log: ImportLog) -> Any:
    """Arguments have to be an object here; what is none goes into one."""
    try:
        value = orjson.loads(str(text))
    except orjson.JSONDecodeError:
        value = None
    if isinstance(value, dict):
        return value
    log.note("arguments that are no JSON object: put into one")
    return {"arguments": text}
