"""TraceLab rounds: one model call a line, ``{provider, session_id, round_index, input_tokens_total, prefix_tokens,
newly_append_tokens, output_tokens, timing_events, tools: [{tool_wall_latency_ms}]}``, no text.

A prompt is known by its length and by how much of it the provider found cached, so it is replayed as filler that
shares that much with the prompt before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from traces.domains import domain_of
from traces.importers.clock_times import AgentTimes, between
from traces.importers.fields import get, get_count, get_list, get_number, get_text, get_time
from traces.importers.groups import read_groups
from traces.importers.hashes import KeptBlocks, hash_of
from traces.importers.log import BadRecord, ImportLog
from traces.importers.prompt_blocks import BLOCK_SIZE
from traces.importers.sources import Source
from traces.trajectory import ToolCall, Trajectory, Turn

NAME = "tracelab"


def recognises(value: Any) -> bool:
    """Whether ``value`` is a round of this format."""
    return isinstance(value, dict) and {"round_index", "session_id", "input_tokens_total"} <= value.keys()


def read(source: Source, log: ImportLog) -> Iterator[Trajectory]:
    """The sessions of ``source``; what cannot be used goes to ``log``."""
    yield from read_groups(source, log, key=lambda one: get_text(one, "session_id"), read=_read_session)


def _read_session(session_id: str, rounds: list[Any], log: ImportLog) -> Trajectory:
    log.note("prompts known by their lengths and what was found cached: replayed as filler that shares that much")
    kept = KeptBlocks(block_size=BLOCK_SIZE, scope=session_id)
    begin = next((at for one in rounds if (at := _span_of(one)[0]) is not None), None)
    times = AgentTimes(begin)
    turns: list[Turn] = []
    hashes: list[int] = []
    for one in rounds:
        num_tokens = get_count(one, "input_tokens_total")
        if num_tokens is None:
            raise BadRecord("a round without 'input_tokens_total'")
        num_shared = min((get_count(one, "prefix_tokens") or 0) // BLOCK_SIZE, len(hashes), num_tokens // BLOCK_SIZE)
        new = range(num_shared, num_tokens // BLOCK_SIZE)
        hashes = hashes[:num_shared] + [hash_of(f"{len(turns)}/{number}".encode()) for number in new]
        started, ended = _span_of(one)
        measured = times.call(started, ended, num_output_tokens=get_count(one, "output_tokens") or 0)
        turns.append(
            Turn(
                prompt=kept.prompt(num_tokens, hashes),
                num_output_tokens=measured.num_output_tokens,
                started_at=measured.started_at,
                duration_s=measured.duration_s,
                delay_s=measured.delay_s,
                tool_calls=tuple(_tool_call(tool) for tool in get_list(one, "tools")),
            )
        )
    return Trajectory(task_id=session_id, turns=tuple(turns), source=NAME, model=get_text(rounds[0], "model"))


def _span_of(one: Any) -> tuple[float | None, float | None]:
    """When a round's last input was there, and when the last of its answer was."""
    started = ended = None
    for event in get_list(one, "timing_events"):
        at = get_time(event, "timestamp")
        if get(event, "event_type") in ("user_message", "tool_result"):
            started = at if started is None else max(started, at or started)
        elif at is not None:
            ended = at
    return started, ended


def _tool_call(tool: Any) -> ToolCall:
    latency_ms = get_number(tool, "tool_wall_latency_ms")
    latency_s = None if latency_ms is None else max(latency_ms / 1000, 0.0)
    if latency_s is None:
        latency_s = between(get_time(tool, "emitted_at"), get_time(tool, "result_at"))
    name = get_text(tool, "tool_name")
    return ToolCall(
        call_id=get_text(tool, "tool_call_id"),
        name=name,
        domain=domain_of(name),
        arguments="",
        result="",
        latency_s=latency_s,
        is_error=get(tool, "is_error") is True,
    )
