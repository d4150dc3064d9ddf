"""Serving traces with block hashes: Mooncake, Bailian, and what AIPerf calls ``mooncake_trace``; one request a line.

``{timestamp, input_length, output_length, hash_ids}``. Bailian has ``chat_id`` and ``parent_chat_id`` (-1: none),
AIPerf ``session_id`` and ``delay``: such requests are the calls of one conversation. Mooncake's timestamps are
milliseconds and its blocks 512 tokens; Bailian's are seconds and 16.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from traces.importers.fields import get, get_count, get_list, get_number
from traces.importers.hashes import KeptBlocks, block_hashes
from traces.importers.log import BadRecord, ImportLog
from traces.importers.sources import Source
from traces.trajectory import Trajectory, Turn

NAME = "mooncake"
_BLOCK_SIZES = (512, 16, 64, 128, 256, 1024, 32)


def recognises(value: Any) -> bool:
    """Whether ``value`` is a request of this format."""
    return isinstance(value, dict) and "hash_ids" in value and "input_length" in value


@dataclass(eq=False, slots=True)
class _Conversation:
    """The calls of one conversation."""

    task_id: str
    started_at: float | None
    kept: KeptBlocks
    turns: list[Turn] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)


def read(source: Source, log: ImportLog) -> Iterator[Trajectory]:
    """The conversations of ``source``; what cannot be used goes to ``log``."""
    first = [row for _, row in islice(source.values(lambda where, reason: None), 200)]
    block_size = _block_size(first)
    is_seconds = any(isinstance(row, dict) and "chat_id" in row for row in first)
    log.note(f"prompts known by the hashes of their blocks of {block_size} tokens only, replayed as filler")
    conversations: dict[str, _Conversation] = {}  # by the id of its last call: only those that have ids
    for number, (where, row) in enumerate(source.values(log.skip)):
        try:
            key = _key(row)
            conversation = conversations.pop(key, None) if key is not None else None
            if conversation is None:
                conversation = _Conversation(
                    task_id=_session_of(row) or f"request-{number:05d}",
                    started_at=_seconds(row, is_seconds),
                    kept=KeptBlocks(block_size=block_size, scope=""),
                )
            conversation.turns.append(_turn(row, conversation, is_seconds))
        except BadRecord as error:
            log.skip(where, str(error))
            continue
        next_key = _next_key(row)
        if next_key is None:
            yield _trajectory(conversation)
        else:
            # Two requests may name the same parent: the later one goes on with what is left of the first.
            if next_key in conversations:
                yield _trajectory(conversations.pop(next_key))
            conversations[next_key] = conversation
    for conversation in conversations.values():
        yield _trajectory(conversation)


def _turn(row: Any, conversation: _Conversation, is_seconds: bool) -> Turn:
    num_prompt_tokens = get_count(row, "input_length")
    if num_prompt_tokens is None:
        raise BadRecord("a request without 'input_length'")
    at = _seconds(row, is_seconds)
    begin = conversation.started_at
    delay_ms = get_number(row, "delay")
    return Turn(
        num_output_tokens=get_count(row, "output_length") or 0,
        prompt=conversation.kept.prompt(num_prompt_tokens, block_hashes(get_list(row, "hash_ids"))),
        started_at=None if at is None or begin is None else max(at - begin, 0.0),
        delay_s=None if delay_ms is None else max(delay_ms / 1000, 0.0),
    )


def _trajectory(conversation: _Conversation) -> Trajectory:
    return Trajectory(
        task_id=conversation.task_id,
        turns=tuple(conversation.turns),
        source=NAME,
        started_at=conversation.started_at,
    )


def _session_of(row: Any) -> str:
    session_id = get(row, "session_id")
    return session_id if isinstance(session_id, str) else ""


def _key(row: Any) -> str | None:
    """What the conversation's earlier call was filed under; None where there is none."""
    if (session_id := get(row, "session_id")) is not None:
        return f"session {session_id}"
    parent = get(row, "parent_chat_id")
    return None if parent is None or parent == -1 else f"chat {parent}"


def _next_key(row: Any) -> str | None:
    """What a later call of the conversation will look for."""
    if (session_id := get(row, "session_id")) is not None:
        return f"session {session_id}"
    chat_id = get(row, "chat_id")
    return None if chat_id is None else f"chat {chat_id}"


def _seconds(row: Any, is_seconds: bool) -> float | None:
    timestamp = get_number(row, "timestamp")
    return None if timestamp is None else max(timestamp if is_seconds else timestamp / 1000, 0.0)


def _block_size(rows: list[Any]) -> int:
    """The block size that fits most of ``rows``: no row says it."""

    def fits(row: Any, size: int) -> bool:
        try:
            num_tokens, num_blocks = get_count(row, "input_length"), len(get_list(row, "hash_ids"))
        except BadRecord:
            return False
        return num_tokens is not None and num_blocks in (num_tokens // size, -(-num_tokens // size))

    return max(_BLOCK_SIZES, key=lambda size: sum(fits(row, size) for row in rows))
