"""A chat answer as a stream of chunks.

The usual chunk is a constant start, the token's delta, and a constant end; everything that makes chunks differ in more
than the delta (logprobs, usage on every chunk, token ids, several tokens in a chunk) takes the slower way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from mockserver.api.bodies import Envelope, dumped, running_usage
from mockserver.api.choices import Choice
from mockserver.api.logprobs import chat_logprobs
from mockserver.api.replies import Kind
from mockserver.api.views import chat_deltas, json_text, plain_chat_deltas
from mockserver.tokens import num_tokens, unpack

KIND = "chat.completion.chunk"
_END = b',"logprobs":null,"finish_reason":null,"token_ids":null}]}\n\n\r\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """What the client wants to see in its chunks."""

    role: str = "assistant"
    num_prompt_tokens: int
    include_usage: bool = False
    continuous_usage: bool = False
    num_top_logprobs: int | None = None
    as_token_ids: bool = False
    with_token_ids: bool = False
    prompt_token_ids: Sequence[int] | None = None
    prompt_text: str | None = None
    interval: int = 1
    first_at_once: bool = False
    """What shows first comes when it is due, whatever the interval."""
    parallel_calls: bool = True
    is_named_call: bool = False
    counts_reasoning: bool = False
    with_reasoning: bool = True

    @property
    def is_plain(self) -> bool:
        """Chunks differ in their delta only."""
        return (
            self.num_top_logprobs is None
            and not self.with_token_ids
            and not self.continuous_usage
            and self.interval == 1
        )


@dataclass(eq=False, slots=True)
class ChatStream:
    """Builds the chunks of one answer, framed for HTTP."""

    envelope: Envelope
    options: StreamOptions
    _starts: dict[int, bytes] = field(default_factory=dict)
    _deltas: dict[int, list[bytes | None]] = field(default_factory=dict)

    def opening(self, indices: Sequence[int], echoed: str = "") -> list[bytes]:
        """The chunks that come with the first token: each choice's role."""
        options = self.options
        usage = self._usage(0, 0) if options.continuous_usage else b""
        tail = b',"prompt_token_ids":%b,"prompt_text":%b}\n\n' % (
            orjson.dumps(options.prompt_token_ids),
            b"null" if options.prompt_text is None else json_text(options.prompt_text),
        )
        start = self.envelope.chunk_start(KIND)
        chunks = [
            b'%b{"index":%d,"delta":{"role":%b,"content":""},"logprobs":null,"finish_reason":null}]%b%b'
            % (start, index, json_text(options.role), usage, tail)
            for index in indices
        ]
        if echoed:
            chunks += [
                b'%b{"index":%d,"delta":{"content":%b},"logprobs":null,"finish_reason":null}]%b}\n\n'
                % (start, index, json_text(echoed), usage)
                for index in indices
            ]
        return [part for chunk in chunks for part in _framed(chunk)]

    def take(self, choice: Choice, num_new: int, *, finished: bool) -> list[bytes]:
        """The chunks of the next ``num_new`` tokens of a choice, and its end if it has come."""
        deltas = self._deltas_of(choice)
        first = choice.num_sent_tokens
        last = choice.num_due_tokens = choice.num_due_tokens + num_new
        if not self.options.is_plain:
            return self._take_slowly(choice, deltas, last, finished=finished)
        choice.num_sent_tokens = last
        start = self._start_of(choice)
        base = len(start) + len(_END) - 2
        parts: list[bytes] = []
        for delta in deltas[first : last - 1 if finished else last]:
            if delta is not None:
                parts += (b"%x\r\n" % (base + len(delta)), start, delta, _END)
        if finished:
            final_delta = deltas[last - 1] if num_new and last <= len(deltas) else None
            parts += _framed(start + (final_delta or b"{}") + self._final_tail(choice, [], last))
        return parts

    def next_look(self, choice: Choice) -> int | None:
        """At how many tokens there is something to show before the interval is over; None where there is not."""
        first_shown = self._first_shown(choice)
        return first_shown + 1 if 0 < choice.num_sent_tokens <= first_shown else None

    def _first_shown(self, choice: Choice) -> int:
        """The place of the first token that shows, where that is to come at once."""
        if not self.options.first_at_once or self.options.interval == 1:
            return 0
        return next((place for place, delta in enumerate(self._deltas_of(choice)) if delta is not None), 0)

    def _take_slowly(self, choice: Choice, deltas: Sequence[bytes | None], last: int, *, finished: bool) -> list[bytes]:
        """Chunk by chunk, as many tokens in each as the client wants."""
        parts: list[bytes] = []
        position = choice.num_sent_tokens
        first_shown = self._first_shown(choice)
        while position < last:
            if position == 0:
                wanted = 1
            elif position <= first_shown:
                wanted = first_shown + 1
            else:
                wanted = position + self.options.interval
            end = min(last, wanted)
            if end < wanted and not finished:
                break
            is_final = finished and end == last
            delta = merged([one for one in deltas[position:end] if one is not None])
            ids = unpack(choice.reply.token_ids[position * 4 : end * 4])
            position = end
            if is_final:
                parts += _framed(self._start_of(choice) + (delta or b"{}") + self._final_tail(choice, ids, end))
            elif delta or self.options.with_token_ids or self.options.num_top_logprobs is not None:
                parts += _framed(self._start_of(choice) + (delta or b"{}") + self._tail(choice, ids, end))
        if finished and choice.num_sent_tokens == last:
            parts += _framed(self._start_of(choice) + b"{}" + self._final_tail(choice, [], last))
        choice.num_sent_tokens = position
        return parts

    def _tail(self, choice: Choice, ids: Sequence[int], num_sent: int) -> bytes:
        usage = self._usage(num_sent, self._num_reasoning(choice, num_sent)) if self.options.continuous_usage else b""
        return b',"logprobs":%b,"finish_reason":null,"token_ids":%b}]%b}\n\n' % (
            self._logprobs(ids),
            self._shown_ids(ids),
            usage,
        )

    def _final_tail(self, choice: Choice, ids: Sequence[int], num_sent: int) -> bytes:
        options = self.options
        usage = self._usage(num_sent, self._num_reasoning(choice, num_sent)) if options.continuous_usage else b""
        finish_reason = choice.finish_reason
        has_called = any(span.kind is Kind.NAME for span in choice.reply.spans)
        if finish_reason == "stop" and has_called and not options.is_named_call:
            finish_reason = "tool_calls"
        return b',"logprobs":%b,"finish_reason":"%b","stop_reason":%b,"token_ids":%b}]%b%b}\n\n' % (
            self._logprobs(ids),
            finish_reason.encode(),
            dumped(choice.reply.stop_reason),
            self._shown_ids(ids),
            usage,
            b"" if options.include_usage else self.envelope.fingerprint_field(),
        )

    def _usage(self, num_output_tokens: int, num_reasoning_tokens: int) -> bytes:
        return running_usage(
            self.options.num_prompt_tokens,
            num_output_tokens,
            num_reasoning_tokens if self.options.counts_reasoning else None,
        )

    def _num_reasoning(self, choice: Choice, num_sent: int) -> int:
        total = sum(num_tokens(span.token_ids) for span in choice.reply.spans if span.kind is Kind.REASONING)
        return min(num_sent, total)

    def _logprobs(self, ids: Sequence[int]) -> bytes:
        if self.options.num_top_logprobs is None or not ids:
            return b"null"
        return orjson.dumps(chat_logprobs(ids, self.options.num_top_logprobs, as_ids=self.options.as_token_ids))

    def _shown_ids(self, ids: Sequence[int]) -> bytes:
        return orjson.dumps(list(ids)) if self.options.with_token_ids else b"null"

    def _start_of(self, choice: Choice) -> bytes:
        start = self._starts.get(choice.index)
        if start is None:
            start = self._starts[choice.index] = b'%b{"index":%d,"delta":' % (
                self.envelope.chunk_start(KIND),
                choice.index,
            )
        return start

    def _deltas_of(self, choice: Choice) -> list[bytes | None]:
        deltas = self._deltas.get(choice.index)
        if deltas is None:
            deltas = plain_chat_deltas(choice.reply)
            if deltas is None:
                deltas = chat_deltas(
                    choice.reply,
                    choice.call_ids,
                    parallel=self.options.parallel_calls,
                    with_reasoning=self.options.with_reasoning,
                )
            self._deltas[choice.index] = deltas
        return deltas


def merged(deltas: Sequence[bytes]) -> bytes:
    """Several tokens' deltas as one."""
    if len(deltas) <= 1:
        return deltas[0] if deltas else b""
    whole: dict[str, Any] = {}
    for delta in map(orjson.loads, deltas):
        for key, value in delta.items():
            if key == "tool_calls":
                _merge_calls(whole.setdefault(key, []), value)
            elif value is not None:
                whole[key] = (whole.get(key) or "") + value
            else:
                whole.setdefault(key, None)
    return orjson.dumps(whole)


def _merge_calls(calls: list[dict[str, Any]], more: list[dict[str, Any]]) -> None:
    for call in more:
        mine = next((one for one in calls if one["index"] == call["index"]), None)
        if mine is None:
            calls.append(call)
        else:
            function = mine["function"]
            function["arguments"] = function.get("arguments", "") + call["function"].get("arguments", "")


def _framed(chunk: bytes) -> tuple[bytes, bytes, bytes]:
    return b"%x\r\n" % len(chunk), chunk, b"\r\n"
