"""AIPerf's ``dag_jsonl``: a session a line, what is new in each turn, and the sessions that a turn spawns.

Holds: all text, tool schemas, output lengths, delays, fan-outs joined by the next turn. The answers, for which the
format has no place, travel in ``extra_body.replayrig``: our server gives them back, others ignore them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import orjson

from traces.exporters.chat import Agent, opening_messages, reply_message, require_text, result_message, schemas
from traces.importers.log import ImportLog
from traces.prompt_size import num_output_tokens
from traces.trajectory import Trajectory

NAME = "aiperf-dag"


def exporter(log: ImportLog) -> Callable[[Trajectory], Iterator[bytes]]:
    """A function from a trajectory to its lines."""

    def export(trajectory: Trajectory) -> Iterator[bytes]:
        require_text(trajectory, NAME)
        yield from _sessions(trajectory, trajectory.task_id, trajectory, 0.0, log)

    return export


def _sessions(agent: Agent, session_id: str, task: Trajectory, delay_s: float, log: ImportLog) -> Iterator[bytes]:
    turns = []
    new = opening_messages(agent)
    for index, turn in enumerate(agent.turns):
        if turn.user_message is not None:
            new.append({"role": "user", "content": turn.user_message})
        body: dict[str, Any] = {"messages": new, "max_tokens": max(num_output_tokens(turn), 1)}
        if index == 0 and agent.tools:
            body["tools"] = schemas(agent.tools)
        if task.model:
            body["model"] = task.model
        delay = delay_s if index == 0 else turn.delay_s
        if delay:
            body["delay"] = round(delay * 1000, 3)
        spawns = [f"{task.task_id}/{spawn.agent_id}" for spawn in turn.spawns]
        if spawns:
            body["spawns"] = spawns
        ours: dict[str, Any] = {"reply": reply_message(turn)}
        if turn.num_output_tokens is not None:
            ours["num_output_tokens"] = turn.num_output_tokens
        body["extra_body"] = {"ignore_eos": True, "replayrig": ours}
        turns.append(body)
        new = [result_message(call) for call in turn.tool_calls]
        log.note("subagents in the background: the next turn waits for them", sum(s.is_background for s in turn.spawns))
        log.note("tool latencies: the format has delays only", sum(c.latency_s is not None for c in turn.tool_calls))
    yield orjson.dumps({"session_id": session_id, "turns": turns})
    for turn in agent.turns:
        for spawn in turn.spawns:
            yield from _sessions(spawn, f"{task.task_id}/{spawn.agent_id}", task, spawn.delay_s, log)
