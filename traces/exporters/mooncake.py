"""Mooncake traces with AIPerf's ``session_id`` and ``delay``: lengths and block ids, no text.

Holds: prompt and output lengths, what prompts share (in whole blocks), the order of a task's calls, delays and
arrivals. Does not hold: text, tools, fan-outs (a subagent's calls follow the call that spawned it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import orjson

from traces.exporters.blocks import BlockIds, recorded_block_size
from traces.importers.log import ImportLog
from traces.prompt_size import num_output_tokens
from traces.trajectory import Subagent, Trajectory

NAME = "mooncake"
BLOCK_SIZE = 512


def exporter(log: ImportLog) -> Callable[[Trajectory], Iterator[bytes]]:
    """A function from a trajectory to its lines."""
    ids: BlockIds | None = None

    def export(trajectory: Trajectory) -> Iterator[bytes]:
        nonlocal ids
        if ids is None:  # a recording's own blocks are kept
            ids = BlockIds(recorded_block_size(trajectory) or BLOCK_SIZE)
        for number, row in enumerate(_rows(trajectory, ids, log)):
            first = {"timestamp": round((trajectory.started_at or 0.0) * 1000)} if number == 0 else {}
            yield orjson.dumps({"session_id": trajectory.task_id, **first, **row})

    return export


def _rows(agent: Trajectory | Subagent, ids: BlockIds, log: ImportLog) -> Iterator[dict[str, Any]]:
    for turn, num_prompt_tokens, hash_ids in ids.agent(agent):
        row = {
            "input_length": num_prompt_tokens,
            "output_length": num_output_tokens(turn),
            "hash_ids": hash_ids,
        }
        if turn.delay_s is not None:
            row["delay"] = round(turn.delay_s * 1000, 3)
        yield row
        log.note("subagents: their calls follow the call that spawned them", len(turn.spawns))
        for spawn in turn.spawns:
            yield from _rows(spawn, ids, log)
