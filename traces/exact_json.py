"""JSON of an exact token count: tool schemas and tool-call arguments around filler, their ids known beforehand."""

from __future__ import annotations

import functools
import random

from mockserver import tokens
from mockserver.filler import filler
from mockserver.tokens import TokenText

# Filler stands between these pieces, so that each starts and ends where the tokeniser cuts anyway: a letter, then
# punctuation; punctuation, then a blank. The tokens of the whole are therefore those of the pieces, joined.
_SCHEMA_HEAD = '{"type":"function","function":{"name":"%s","description":"'
_SCHEMA_TAILS = (
    '","parameters":{"type":"object","properties":{},"required":[]}}}',
    '","parameters":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}}}',
    '","parameters":{"type":"object","properties":{"query":{"type":"string","description":"Words to find"},'
    '"limit":{"type":"integer","default":10,"minimum":1}},"required":["query"]}}}',
    '","parameters":{"type":"object","properties":{"id":{"type":"string"},"fields":{"type":"array",'
    '"items":{"type":"string"}},"format":{"type":"string","enum":["text","json"]}},"required":["id"]}}}',
)
ROOMY_CALL_TOKENS = 28
"""What a tool call with short arguments takes of an output."""
_VERBS = (
    "list",
    "get",
    "create",
    "update",
    "delete",
    "search",
    "read",
    "write",
    "move",
    "copy",
    "check",
    "export",
)
_NOUNS = ("items", "file", "record", "page", "table")
TOOL_NAMES = tuple(f"{verb}_{noun}" for noun in _NOUNS for verb in _VERBS)
MIN_SCHEMA_TOKENS = 80
"""No schema of ours is shorter: the longest tail, the longest name and a word of description."""
_ARGUMENT_KEYS = ("path", "query", "text", "id")
MIN_ARGUMENT_TOKENS = 1
"""``{}`` is one token."""


@functools.cache
def _piece(text: str) -> TokenText:
    return TokenText(text, tokens.encode(text))


def _join(*pieces: TokenText) -> TokenText:
    return TokenText("".join(pieces), b"".join(piece.token_ids for piece in pieces))


def schema_text(name: str, num_tokens: int, *, seed: str | random.Random) -> TokenText:
    """A tool's schema of exactly ``num_tokens`` tokens, as the compact JSON that orjson writes."""
    head = _piece(_SCHEMA_HEAD % name)
    tail = _piece(_SCHEMA_TAILS[len(name) % len(_SCHEMA_TAILS)])
    return _join(head, filler(seed, num_tokens - tokens.count(head) - tokens.count(tail)), tail)


def brief_schema_text(name: str, num_tokens: int, *, seed: str | random.Random) -> TokenText:
    """A schema without parameters, for tools that may be short; a word longer than ``num_tokens`` at the shortest."""
    head, tail = _piece(_SCHEMA_HEAD % name), _piece('"}}')
    num_words = max(num_tokens - tokens.count(head) - tokens.count(tail), 1)
    return _join(head, filler(seed, num_words), tail)


def arguments_text(num_tokens: int, *, seed: str | random.Random) -> TokenText:
    """Arguments of ``num_tokens`` tokens, as an object with one filler string; ``{}`` where 5 are too many."""
    head = _piece(f'{{"{_ARGUMENT_KEYS[num_tokens % len(_ARGUMENT_KEYS)]}":"')
    tail = _piece('"}')
    num_words = num_tokens - tokens.count(head) - tokens.count(tail)
    return _join(head, filler(seed, num_words), tail) if num_words > 0 else _piece("{}")
