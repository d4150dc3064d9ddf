"""What a client sees of a reply: the JSON of each token's delta, and the message as a whole."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from mockserver.api.replies import Kind, Reply, Span, pieces, whole_piece
from mockserver.tokens import decode, unpack

_SILENT = (Kind.REASONING, Kind.THINK_END, Kind.END)


def json_text(text: str) -> bytes:
    """``text`` as a JSON string."""
    try:
        return orjson.dumps(text)
    except TypeError:  # lone surrogates, which a client's JSON may hold
        return orjson.dumps(text.encode("utf-8", "replace").decode())


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of a tool, as the client gets it."""

    id: str
    name: str
    arguments: str

    def as_json(self) -> dict[str, Any]:
        """The object in a message's ``tool_calls``."""
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatView:
    """A reply as ``/v1/chat/completions`` shows it."""

    content: str | None
    reasoning: str | None
    tool_calls: tuple[ToolCall, ...]
    num_reasoning_tokens: int


def chat_view(reply: Reply, call_ids: Sequence[str], *, parallel: bool = True) -> ChatView:
    """The whole message. A tool call that was cut short is shown as the text the model wrote."""
    reasoning = _text_of(reply, Kind.REASONING)
    num_reasoning_tokens = sum(len(unpack(span.token_ids)) for span in reply.spans if span.kind is Kind.REASONING)
    calls = _complete_calls(reply, call_ids)
    if calls is None:
        body = [span for span in reply.spans if span.kind not in _SILENT]
        content: str | None = decode(b"".join(span.token_ids for span in body))[: reply.num_shown_chars]
        calls = ()
    else:
        content = _text_of(reply, Kind.TEXT)[: reply.num_shown_chars]
        if not content and (calls or reasoning):
            content = None
    return ChatView(
        content=content,
        reasoning=reasoning or None,
        tool_calls=calls if parallel else calls[:1],
        num_reasoning_tokens=num_reasoning_tokens,
    )


def chat_deltas(
    reply: Reply, call_ids: Sequence[str], *, parallel: bool = True, with_reasoning: bool = True
) -> list[bytes | None]:
    """For each token the ``delta`` object it shows, as JSON; None where it shows nothing."""
    deltas: list[bytes | None] = []
    for span, texts in _shown_texts(reply):
        if span.kind is Kind.TEXT:
            deltas += [b'{"content":%b}' % json_text(text) if text else None for text in texts]
        elif span.kind is Kind.REASONING and with_reasoning:
            deltas += [b'{"reasoning":%b}' % json_text(text) if text else None for text in texts]
        elif span.kind is Kind.ARGUMENTS and (parallel or span.call == 0):
            deltas += [_arguments_delta(span.call, text) if text else None for text in texts]
        else:
            deltas += [None] * (len(texts) - 1)
            is_shown_name = span.kind is Kind.NAME and (parallel or span.call == 0)
            deltas.append(_name_delta(span.call, call_ids[span.call], "".join(texts)) if is_shown_name else None)
    return deltas


def plain_chat_deltas(reply: Reply) -> list[bytes | None] | None:
    """The same for a reply that is one run of text, which needs no look at each token; None if it is not."""
    if reply.num_held_chars or reply.num_shown_chars is not None or reply.spans[0].kind is not Kind.TEXT:
        return None
    if len(reply.spans) > 2 or (len(reply.spans) == 2 and reply.spans[1].kind is not Kind.END):
        return None
    deltas: list[bytes | None] = [_content_delta(token_id) for token_id in unpack(reply.spans[0].token_ids)]
    if None in deltas:
        return None
    return [*deltas, None] if len(reply.spans) == 2 else deltas


def texts_by_token(reply: Reply) -> list[str]:
    """For each token the text it shows, all kinds of text alike: what ``/v1/completions`` sends."""
    return [text for span, texts in _shown_texts(reply) for text in (texts if span.kind is not Kind.END else [""])]


@functools.cache
def _content_delta(token_id: int) -> bytes | None:
    text = whole_piece(token_id)
    return b'{"content":%b}' % json_text(text) if text else None


def _name_delta(call: int, call_id: str, name: str) -> bytes:
    return b'{"content":null,"tool_calls":[{"id":%b,"type":"function","index":%d,"function":{"name":%b}}]}' % (
        json_text(call_id),
        call,
        json_text(name),
    )


def _arguments_delta(call: int, text: str) -> bytes:
    return b'{"content":null,"tool_calls":[{"index":%d,"function":{"arguments":%b}}]}' % (call, json_text(text))


def _shown_texts(reply: Reply) -> list[tuple[Span, list[str]]]:
    """Every span with the text that each of its tokens shows, stop strings taken into account."""
    rows = [(span, pieces(span.token_ids)) for span in reply.spans]
    if not reply.num_held_chars and reply.num_shown_chars is None:
        return rows
    num_chars = sum(len(text) for span, texts in rows if span.kind is Kind.TEXT for text in texts)
    limit = num_chars if reply.num_shown_chars is None else min(num_chars, reply.num_shown_chars)
    text = "".join(text for span, texts in rows if span.kind is Kind.TEXT for text in texts)
    num_seen = num_sent = 0
    held_rows = []
    for span, texts in rows:
        if span.kind is not Kind.TEXT:
            held_rows.append((span, texts))
            continue
        shown = []
        for piece in texts:
            num_seen += len(piece)
            released = min(limit, num_seen - reply.num_held_chars if num_seen < num_chars else num_seen)
            shown.append(text[num_sent:released] if released > num_sent else "")
            num_sent = max(num_sent, released)
        held_rows.append((span, shown))
    return held_rows


def _text_of(reply: Reply, kind: Kind) -> str:
    return "".join("".join(pieces(span.token_ids)) for span in reply.spans if span.kind is kind)


def _complete_calls(reply: Reply, call_ids: Sequence[str]) -> tuple[ToolCall, ...] | None:
    """The tool calls; None if one of them was cut short."""
    calls = []
    in_call = False
    name, arguments = "", ""
    for span, following in zip(reply.spans, [*reply.spans[1:], None], strict=True):
        if span.kind is Kind.MARKUP and following is not None and following.kind is Kind.NAME:
            in_call = True
        elif span.kind is Kind.NAME:
            name = "".join(pieces(span.token_ids))
        elif span.kind is Kind.ARGUMENTS:
            arguments = "".join(pieces(span.token_ids))
            if following is not None and following.kind is Kind.MARKUP:
                calls.append(ToolCall(id=call_ids[span.call], name=name, arguments=arguments))
                in_call = False
    ends_in_opening_markup = reply.spans[-1].kind is Kind.MARKUP and (
        len(reply.spans) == 1 or reply.spans[-2].kind is not Kind.ARGUMENTS
    )
    return None if in_call or ends_in_opening_markup else tuple(calls)
