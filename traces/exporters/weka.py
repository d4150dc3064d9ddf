"""weka traces: sessions of requests with block ids, subagents nested; no text.

Holds: lengths, what prompts share (in whole blocks), times, think times, fan-outs and joins. Does not hold: text and
tools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import orjson

from traces.exporters.blocks import BlockIds, recorded_block_size
from traces.exporters.timeline import Timed, timeline
from traces.importers.log import ImportLog
from traces.prompt_size import num_output_tokens
from traces.trajectory import Trajectory

NAME = "weka"
BLOCK_SIZE = 64


def exporter(log: ImportLog) -> Callable[[Trajectory], Iterator[bytes]]:
    """A function from a trajectory to its line."""

    def export(trajectory: Trajectory) -> Iterator[bytes]:
        block_size = recorded_block_size(trajectory) or BLOCK_SIZE
        requests, totals = _requests(timeline(trajectory, log), BlockIds(block_size))
        session = {
            "id": trajectory.task_id,
            "models": [trajectory.model] if trajectory.model else [],
            "block_size": block_size,
            "hash_id_scope": "local",
            "tool_tokens": _number(trajectory.metadata.get("tool_tokens")),
            "system_tokens": _number(trajectory.metadata.get("system_tokens")),
            "requests": requests,
            "totals": {"combined_tokens": totals},
        }
        yield orjson.dumps(session)

    return export


def _requests(agent: Timed, ids: BlockIds) -> tuple[list[Any], dict[str, int]]:
    """The requests of an agent with its subagents among them, and its tokens."""
    requests: list[Any] = []
    totals = {"input": 0, "output": 0}
    for call, (turn, num_prompt_tokens, hash_ids) in zip(agent.calls, ids.agent(agent.agent), strict=True):
        requests.append(
            {
                "t": round(call.started - agent.started, 6),
                "type": "n",
                "in": num_prompt_tokens,
                "out": num_output_tokens(turn),
                "hash_ids": hash_ids,
                "api_time": round(call.ended - call.started, 6),
                "think_time": round(call.delay_s, 6),
            }
        )
        totals["input"] += num_prompt_tokens
        totals["output"] += num_output_tokens(turn)
        for child in call.spawns:
            inner, inner_totals = _requests(child, ids)
            duration_s = child.ended - child.started
            subagent = {
                "t": round((child.started if child.is_background else child.ended) - agent.started, 6),
                "type": "subagent",
                "agent_id": child.agent_id,
                "duration_ms": None if child.is_background else round(duration_s * 1000, 3),
                "status": "async_launched" if child.is_background else "completed",
                "requests": inner,
            }
            requests.append(subagent)
            totals = {key: totals[key] + inner_totals[key] for key in totals}
    return requests, totals


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0
