"""Texts made longer or shorter until a server counts as many tokens as it is to: pure search over a count.

A piece is something of a prompt (a tool, a message, what came between two calls) with texts in it that may change.
They are cut at their ends, all by the same share, and the longest is filled up with short words, which are one token
each wherever words are tokens at all. What the result counts is measured, never assumed.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from zlib import crc32

import orjson

from loadgen.context import Message

T = TypeVar("T")

_MOST_TRIES = 12
_PADDING = ["the", "of", "and", "to", "in", "is", "for", "on", "with", "that", "as", "by", "it", "from", "at", "be"]
_SHORTEST_ARGUMENT = 24
"""Arguments of tool calls that are shorter are names and numbers, which stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece(Generic[T]):
    """A part of a prompt and the texts in it that may change."""

    texts: tuple[str, ...]
    build: Callable[[Sequence[str]], T]
    """The part with other texts in place of these."""

    def shaped(self, num_chars: int, num_padding: int, seed: int) -> T:
        """The part with ``num_chars`` of the texts' characters left, and so many words added to the longest."""
        whole = sum(map(len, self.texts))
        texts = list(self.texts)
        if num_chars < whole:
            texts = [text[: len(text) * num_chars // whole].rstrip() for text in texts]
        if num_padding:
            longest = max(range(len(texts)), key=lambda number: len(self.texts[number]))
            draw = random.Random(f"{seed}/fit/{crc32(self.texts[longest].encode('utf-8', 'replace'))}")
            texts[longest] += "".join(f" {word}" for word in draw.choices(_PADDING, k=num_padding))
        return self.build(texts)


async def fit(
    piece: Piece[T], num_tokens: int, count: Callable[[T], Awaitable[int]], *, seed: int, share: float = 1.0
) -> tuple[T, int]:
    """The ``piece`` that ``count`` finds to have ``num_tokens``, or comes closest to it; and what it counts.

    The search begins with a ``share`` of the texts' characters, which saves counts where it is about right.
    """
    num_chars = int(sum(map(len, piece.texts)) * share)
    num_padding = 0
    part = piece.shaped(num_chars, num_padding, seed)
    counted = await count(part)
    best, best_count = part, counted
    tried = {(num_chars, num_padding)}
    slope: float | None = None
    """Tokens for each character cut, as last seen."""
    for _ in range(_MOST_TRIES):
        excess = counted - num_tokens
        if excess == 0 or not piece.texts or (excess > 0 and num_chars == num_padding == 0):
            break
        chars_before, padding_before, counted_before = num_chars, num_padding, counted
        if excess < 0:
            num_padding -= excess
        else:
            num_given = min(num_padding, excess)
            num_padding -= num_given
            if excess > num_given:
                per_char = slope or max(counted, 1) / max(num_chars, 1)
                num_chars = max(0, num_chars - max(1, int((excess - num_given) / per_char)))
        if (num_chars, num_padding) in tried:  # one word more is one token too many: other words must go, or stay
            num_chars = _untried(tried, num_chars, num_padding, sum(map(len, piece.texts)))
        tried.add((num_chars, num_padding))
        part = piece.shaped(num_chars, num_padding, seed)
        counted = await count(part)
        if num_chars < chars_before:
            slope = max(0.02, (counted_before - padding_before - counted + num_padding) / (chars_before - num_chars))
        if abs(counted - num_tokens) < abs(best_count - num_tokens):
            best, best_count = part, counted
    return best, best_count


def _untried(tried: Set[tuple[int, int]], num_chars: int, num_padding: int, whole: int) -> int:
    """The next number of characters to try: fewer, or where there are none, more."""
    for number in itertools.chain(range(num_chars - 1, -1, -1), range(num_chars + 1, whole + 1)):
        if (number, num_padding) not in tried:
            return number
    return num_chars


def piece_of_tool(text: str) -> Piece[str]:
    """A tool's JSON; its descriptions may change."""
    try:
        tool = orjson.loads(text)
    except orjson.JSONDecodeError:
        return Piece(texts=(), build=lambda _: text)
    places: list[tuple[dict[str, Any], str]] = []
    _find_descriptions(tool, places)
    function = tool.get("function") if isinstance(tool, dict) else None
    if not places and isinstance(function, dict):
        places.append((function, "description"))

    def build(texts: Sequence[str]) -> str:
        for (holder, name), one in zip(places, texts, strict=True):
            holder[name] = one
        return orjson.dumps(tool).decode()

    return Piece(texts=tuple(holder.get(name, "") for holder, name in places), build=build)


def _find_descriptions(value: Any, places: list[tuple[dict[str, Any], str]]) -> None:
    if isinstance(value, dict):
        if isinstance(value.get("description"), str):
            places.append((value, "description"))
        for one in value.values():
            _find_descriptions(one, places)
    elif isinstance(value, list):
        for one in value:
            _find_descriptions(one, places)


def piece_of_messages(messages: Sequence[Message]) -> Piece[list[Message]]:
    """Messages; what they say may change, and long strings in the arguments of tool calls."""
    texts: list[str] = []
    for message in messages:
        if message["content"] is not None:
            texts.append(str(message["content"]))
        for call in message.get("tool_calls") or ():
            texts += [value for _, value in _long_arguments(call)]

    def build(texts: Sequence[str]) -> list[Message]:
        given = iter(texts)
        built = []
        for message in messages:
            changed = dict(message)
            if message["content"] is not None:
                changed["content"] = next(given)
            if calls := message.get("tool_calls"):
                changed["tool_calls"] = [_with_arguments(call, given) for call in calls]
            built.append(changed)
        return built

    return Piece(texts=tuple(texts), build=build)


def _long_arguments(call: dict[str, Any]) -> list[tuple[str, str]]:
    """Names and values of those strings that may change; none where the arguments are not a JSON object."""
    try:
        arguments = orjson.loads(call["function"]["arguments"])
    except orjson.JSONDecodeError:
        return []
    if not isinstance(arguments, dict):
        return []
    return [(k, v) for k, v in arguments.items() if isinstance(v, str) and len(v) >= _SHORTEST_ARGUMENT]


def _with_arguments(call: dict[str, Any], given: Any) -> dict[str, Any]:
    changes = {name: next(given) for name, _ in _long_arguments(call)}
    if not changes:
        return call
    function = call["function"]
    arguments = orjson.loads(function["arguments"]) | changes
    return {**call, "function": {**function, "arguments": orjson.dumps(arguments).decode()}}
