"""What the model says: a reply's tokens, where it ends, and what each token shows the client.

The whole reply is known before its first token appears; the engine only decides when each appears. It is laid out in
*spans*: text, reasoning, and tool calls with the markup around them. Spans are tokenised one by one, as the prompt's
template does, so a reply that comes back in the next prompt has the same tokens and hits its own KV blocks.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from mockserver.filler import filler
from mockserver.prompt import (
    TOOL_CALL_BEGIN,
    TOOL_CALL_END,
    TOOL_CALL_MIDDLE,
    PromptEncoder,
    end_of_turn,
    text_of,
)
from mockserver.tokens import SPECIAL_TOKENS, TOKEN_BYTES, encoding, num_tokens, unpack

THINK_END = "</think>"
_SPECIAL_IDS = frozenset(SPECIAL_TOKENS.values())


class Kind(Enum):
    """What a span of the reply is to the client."""

    TEXT = "text"
    REASONING = "reasoning"
    THINK_END = "think end"
    MARKUP = "markup"
    NAME = "name"
    ARGUMENTS = "arguments"
    END = "end"


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens of one kind; ``call`` numbers the tool call that a name or arguments belong to."""

    kind: Kind
    token_ids: bytes
    call: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What ends a reply, as the request asks for it."""

    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    stop_token_ids: frozenset[int] = frozenset()

    @property
    def num_held_chars(self) -> int:
        """Characters kept back while streaming, because a stop string may have begun in them."""
        return 0 if self.include_stop or not self.stop else max(map(len, self.stop)) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A reply as the model generates it."""

    spans: tuple[Span, ...]
    token_ids: bytes
    """All generated tokens, the end-of-turn token included."""
    finish_reason: str
    stop_reason: str | int | None = None
    num_shown_chars: int | None = None
    """Where a stop string cuts the text; None: nowhere."""
    num_held_chars: int = 0


def scripted(message: Mapping[str, Any], encoder: PromptEncoder) -> tuple[Span, ...]:
    """The spans of a given assistant message: exactly the tokens of ``encoder.reply(message)``."""
    spans = []
    content = text_of(message.get("content"))
    if content:
        spans.append(Span(Kind.TEXT, encoder.text(content)))
    for number, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        spans += [
            Span(Kind.MARKUP, encoder.text(TOOL_CALL_BEGIN)),
            Span(Kind.NAME, encoder.text(function["name"]), number),
            Span(Kind.MARKUP, encoder.text(TOOL_CALL_MIDDLE)),
            Span(Kind.ARGUMENTS, encoder.text(function["arguments"]), number),
            Span(Kind.MARKUP, encoder.text(TOOL_CALL_END)),
        ]
    spans.append(Span(Kind.END, end_of_turn()))
    return tuple(spans)


def prose(seed: str, num_words: int) -> tuple[Span, ...]:
    """Filler text of ``num_words`` tokens, then the end of the turn."""
    return (Span(Kind.TEXT, filler(seed, num_words).token_ids), Span(Kind.END, end_of_turn()))


def thinking(seed: str, num_words: int, spans: Iterable[Span], encoder: PromptEncoder) -> tuple[Span, ...]:
    """``spans`` after ``num_words`` tokens of reasoning."""
    reasoning = Span(Kind.REASONING, filler(f"{seed}/thinking", num_words).token_ids)
    return (reasoning, Span(Kind.THINK_END, encoder.text(THINK_END)), *spans)


def generate(spans: Sequence[Span], limits: Limits, *, seed: str) -> Reply:
    """``spans`` as far as ``limits`` let them go, or longer where the request forbids the end."""
    spans = _without_early_end(spans, limits, seed)
    finish_reason = "stop"
    stop_reason: str | int | None = None
    num_reply_tokens = sum(num_tokens(span.token_ids) for span in spans)
    if num_reply_tokens > limits.max_tokens:
        spans, finish_reason = _first(spans, limits.max_tokens), "length"
    if limits.stop_token_ids:
        ids = unpack(b"".join(span.token_ids for span in spans))
        for position, token_id in enumerate(ids[limits.min_tokens :], start=limits.min_tokens):
            if token_id in limits.stop_token_ids:
                spans, finish_reason, stop_reason = _stopped_at(spans, position), "stop", token_id
                break
    num_shown_chars = None
    if limits.stop and (found := _find_stop(spans, limits)) is not None:
        finish_reason, stop_reason = "stop", found.stop
        num_shown_chars = found.num_shown_chars
        spans = _first(spans, found.num_kept_tokens)
    return Reply(
        spans=tuple(spans),
        token_ids=b"".join(span.token_ids for span in spans),
        finish_reason=finish_reason,
        stop_reason=stop_reason,
        num_shown_chars=num_shown_chars,
        num_held_chars=limits.num_held_chars,
    )


def _without_early_end(spans: Sequence[Span], limits: Limits, seed: str) -> Sequence[Span]:
    """Go on with filler where the end of the turn may not come yet."""
    num_wanted = limits.max_tokens if limits.ignore_eos else min(limits.min_tokens, limits.max_tokens)
    body = [span for span in spans if span.kind is not Kind.END]
    num_missing = num_wanted - sum(num_tokens(span.token_ids) for span in body)
    if num_missing <= 0:
        return body if limits.ignore_eos and body else spans
    more = Span(Kind.TEXT, filler(f"{seed}/more", num_missing).token_ids)
    if limits.ignore_eos or num_wanted == limits.max_tokens:
        # One token past the limit: the reply is cut by it, not ended by the model.
        return (*body, more, Span(Kind.TEXT, filler(f"{seed}/cut", 1).token_ids))
    return (*body, more, Span(Kind.END, end_of_turn()))


def _first(spans: Iterable[Span], num_kept_tokens: int) -> tuple[Span, ...]:
    kept = []
    for span in spans:
        ids = span.token_ids[: num_kept_tokens * TOKEN_BYTES]
        if ids:
            kept.append(Span(span.kind, ids, span.call))
        num_kept_tokens -= num_tokens(ids)
        if num_kept_tokens == 0:
            break
    return tuple(kept)


def _stopped_at(spans: Iterable[Span], position: int) -> tuple[Span, ...]:
    """The spans up to a stop token, which is counted but not shown."""
    kept = _first(spans, position + 1)
    last = kept[-1]
    head = Span(last.kind, last.token_ids[:-TOKEN_BYTES], last.call)
    end = Span(Kind.END, last.token_ids[-TOKEN_BYTES:])
    return (*kept[:-1], head, end) if head.token_ids else (*kept[:-1], end)


class _FoundStop(NamedTuple):
    stop: str
    num_kept_tokens: int
    num_shown_chars: int


def _find_stop(spans: Sequence[Span], limits: Limits) -> _FoundStop | None:
    """The first stop string that the text completes."""
    text = ""
    longest = max(map(len, limits.stop))
    count = 0
    for span in spans:
        for piece in pieces(span.token_ids) if span.kind is not Kind.END else ():
            count += 1
            searched_from = max(0, len(text) - longest + 1)
            text += piece
            if count <= limits.min_tokens:
                continue
            hits = [(at, stop) for stop in limits.stop if (at := text.find(stop, searched_from)) >= 0]
            if hits:
                at, stop = min(hits)
                return _FoundStop(stop, count, at + len(stop) if limits.include_stop else at)
    return None


def pieces(token_ids: bytes) -> list[str]:
    """The text that each token adds; bytes of a character that is not complete yet are held back."""
    texts = [whole_piece(token_id) for token_id in unpack(token_ids)]
    if None in texts:
        return _joined_pieces(token_ids)
    return texts  # type: ignore[return-value]  # no None is left


@functools.cache
def whole_piece(token_id: int) -> str | None:
    """The token's text, if its bytes are whole characters; special tokens show none."""
    if token_id in _SPECIAL_IDS:
        return ""
    try:
        return encoding().decode_single_token_bytes(token_id).decode()
    except (UnicodeDecodeError, KeyError):
        return None


def _joined_pieces(token_ids: bytes) -> list[str]:
    texts: list[str] = []
    pending = b""
    for token_id in unpack(token_ids):
        if token_id in _SPECIAL_IDS:
            texts.append("")
            continue
        try:
            pending += encoding().decode_single_token_bytes(token_id)
        except KeyError:  # an id that no token has, from a client's own prompt
            pending += "\N{REPLACEMENT CHARACTER}".encode()
        text, pending = _complete(pending)
        texts.append(text)
    if pending:  # the reply ends within a character
        texts[-1] += pending.decode(errors="replace")
    return texts


def _complete(data: bytes) -> tuple[str, bytes]:
    """The characters that are complete in ``data``, and the bytes that wait for more."""
    for num_waiting in range(min(4, len(data) + 1)):
        head, tail = data[: len(data) - num_waiting], data[len(data) - num_waiting :]
        try:
            return head.decode(), tail
        except UnicodeDecodeError:
            continue
    return data.decode(errors="replace"), b""
