"""``POST /v1/messages``: Anthropic's dialect, as vLLM serves it over its own chat endpoint."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

import orjson
from aiohttp import web
from pydantic import AfterValidator, Field, model_validator

from mockserver.api.bodies import Usage, dumped
from mockserver.api.chat import ChatCall, checked, run_to_end, started, usage_of, whole_choice
from mockserver.api.choices import Choice, bursts, count_finished, running
from mockserver.api.errors import ApiError, unknown_model
from mockserver.api.http import json_response, read_body
from mockserver.api.machine import Machine
from mockserver.api.prompts import plain_messages, tool_texts
from mockserver.api.schema import RequestModel
from mockserver.api.views import chat_deltas
from mockserver.prompt import text_of
from mockserver.tokens import num_tokens

_STOP_REASONS = {"length": "max_tokens", "stop": "end_turn", "tool_calls": "tool_use"}


class AnthropicContentBlock(RequestModel):
    type: Literal[
        "text",
        "image",
        "tool_use",
        "tool_result",
        "tool_reference",
        "thinking",
        "redacted_thinking",
        "tool_addition",
        "tool_removal",
    ]
    text: str | None = None
    source: dict[str, Any] | None = None
    id: str | None = None
    tool_use_id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    content: str | list[dict[str, Any]] | None = None
    is_error: bool | None = None
    thinking: str | None = None


class AnthropicMessage(RequestModel):
    role: Literal["user", "assistant", "system"]
    content: str | list[AnthropicContentBlock]


class AnthropicTool(RequestModel):
    name: str
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None


class AnthropicToolChoice(RequestModel):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


def _positive(max_tokens: int) -> int:
    if max_tokens <= 0:
        raise ValueError("max_tokens must be positive")
    return max_tokens


class MessagesRequest(RequestModel):
    """``POST /v1/messages``."""

    model: str
    messages: list[AnthropicMessage]
    max_tokens: Annotated[int, AfterValidator(_positive)]
    metadata: dict[str, Any] | None = None
    stop_sequences: Annotated[list[str], Field(max_length=4)] | None = None
    stream: bool | None = False
    system: str | list[AnthropicContentBlock] | None = None
    temperature: float | None = None
    tool_choice: AnthropicToolChoice | None = None
    tools: list[AnthropicTool] | None = None
    top_k: int | None = None
    top_p: float | None = None
    cache_salt: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    replayrig: dict[str, Any] | None = None

    thinking: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _check_thinking(self) -> Self:
        budget = (self.thinking or {}).get("budget_tokens")
        if isinstance(budget, int) and budget >= self.max_tokens:
            raise ValueError("thinking.budget_tokens must be less than max_tokens")
        return self


class CountTokensRequest(RequestModel):
    """``POST /v1/messages/count_tokens``."""

    model: str
    messages: list[AnthropicMessage]
    system: str | list[AnthropicContentBlock] | None = None
    tools: list[AnthropicTool] | None = None
    tool_choice: AnthropicToolChoice | None = None


async def messages(request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """Answer one Messages request."""
    body = await read_body(request, MessagesRequest.parse)
    try:
        call = checked(_as_chat(body), request.headers, machine)
    except ApiError as error:
        return _error(error)
    if not body.stream:
        choice = (await run_to_end(call, machine))[0]
        return json_response(dumped(_message(call, choice, machine)))
    with running(machine, lambda: started(call, machine, watch=True)) as choices:
        async with machine.event_stream(request) as stream:
            choice = choices[0]
            builder = _MessageStream(call, choice, machine)
            async for burst in bursts(choice, machine):
                await stream.send(*builder.take(burst.num_tokens))
            count_finished(choices, machine, max_tokens=call.sampling.limits.max_tokens)
            await stream.send(*builder.ending())
    return stream


async def count_tokens(request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """Count a prompt's tokens without generating."""
    body = await read_body(request, CountTokensRequest.parse)
    if body.model not in machine.model_names:
        return _error(unknown_model(body.model, machine.model_names))
    chat_messages = plain_messages(_chat_messages(body.system, body.messages), model=machine.model_names[0])
    ids = machine.encoder.chat(chat_messages, tool_texts(_chat_tools(body.tools)))
    count = num_tokens(ids)
    return json_response(orjson.dumps({"input_tokens": count, "context_management": {"original_input_tokens": count}}))


def _error(error: ApiError) -> web.Response:
    body = {"type": "error", "error": {"type": error.type, "message": str(error)}}
    return json_response(dumped(body), status=error.status)


def _as_chat(body: MessagesRequest) -> dict[str, Any]:
    """The same request in the chat endpoint's words."""
    data: dict[str, Any] = {
        "model": body.model,
        "messages": _chat_messages(body.system, body.messages),
        "max_tokens": body.max_tokens,
        "stop": body.stop_sequences,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": body.top_k,
        "cache_salt": body.cache_salt,
        "replayrig": body.replayrig,
    }
    if body.tools:
        data["tools"] = _chat_tools(body.tools)
        choice = body.tool_choice
        if choice is None or choice.type == "auto":
            data["tool_choice"] = "auto"
        elif choice.type == "tool":
            data["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
        else:
            data["tool_choice"] = {"any": "required", "none": "none"}[choice.type]
        if choice is not None and choice.disable_parallel_tool_use:
            data["parallel_tool_calls"] = False
    return data


def _chat_tools(tools: Sequence[AnthropicTool] | None) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": {"type": "object", **tool.input_schema},
            },
        }
        for tool in tools or ()
    ]


def _chat_messages(
    system: str | list[AnthropicContentBlock] | None, anthropic_messages: Sequence[AnthropicMessage]
) -> list[dict[str, Any]]:
    converted: list[dict[str, Any]] = []
    if system:
        converted.append({"role": "system", "content": _block_text(system)})
    for message in anthropic_messages:
        converted += _converted(message)
    return converted


def _converted(message: AnthropicMessage) -> Iterator[dict[str, Any]]:
    """One Anthropic message as chat messages: tool results are messages of their own there."""
    if isinstance(message.content, str):
        yield {"role": message.role, "content": message.content}
        return
    texts, calls = [], []
    for block in message.content:
        if block.type == "tool_result":
            yield {"role": "tool", "tool_call_id": block.tool_use_id or "", "content": text_of(block.content)}
        elif block.type == "tool_use":
            arguments = orjson.dumps(block.input or {}).decode()
            calls.append(
                {
                    "id": block.id or "",
                    "type": "function",
                    "function": {"name": block.name or "", "arguments": arguments},
                }
            )
        elif block.type == "image":
            yield {"role": message.role, "content": [{"type": "image_url", "image_url": {"url": ""}}]}
        elif block.type == "text":
            texts.append(block.text or "")
    if texts or calls:
        plain: dict[str, Any] = {"role": message.role, "content": "\n".join(texts) if texts else None}
        if calls:
            plain["tool_calls"] = calls
        yield plain


def _block_text(content: str | Sequence[AnthropicContentBlock]) -> str:
    return content if isinstance(content, str) else "\n".join(block.text or "" for block in content)


def _message(call: ChatCall, choice: Choice, machine: Machine) -> dict[str, Any]:
    row = whole_choice(call, choice, machine)
    message = row["message"]
    content: list[dict[str, Any]] = []
    if message["reasoning"]:
        block = {"type": "thinking", "thinking": message["reasoning"], "signature": secrets.token_hex(16)}
        content.append(block)
    calls = message.get("tool_calls") or ()
    if message["content"] or not (calls or content):
        content.append({"type": "text", "text": message["content"] or ""})
    for one in calls:
        function = one["function"]
        tool_input = orjson.loads(function["arguments"] or "{}")
        content.append({"type": "tool_use", "id": one["id"], "name": function["name"], "input": tool_input})
    stop_reason, stop_sequence = _stop_reason(row["finish_reason"], row["stop_reason"], has_called=bool(calls))
    body: dict[str, Any] = {
        "id": call.envelope.id,
        "type": "message",
        "role": "assistant",
        "content": content,
        "model": call.envelope.model,
        "stop_reason": stop_reason,
    }
    if stop_sequence is not None:
        body["stop_sequence"] = stop_sequence
    body["usage"] = _usage(usage_of(call, [choice], machine))
    return body


def _stop_reason(finish_reason: str, stop_reason: Any, *, has_called: bool) -> tuple[str | None, str | None]:
    if finish_reason == "stop" and has_called:
        return "tool_use", None
    if finish_reason == "stop" and isinstance(stop_reason, str):
        return "stop_sequence", stop_reason
    return _STOP_REASONS.get(finish_reason), None


def _usage(usage: Usage) -> dict[str, int]:
    """Anthropic's input tokens are those that the cache neither had nor got."""
    num_created = usage.num_created_cache_tokens or 0
    num_cached = usage.num_cached_tokens or 0
    shown = {
        "input_tokens": usage.num_prompt_tokens - num_cached - num_created,
        "output_tokens": usage.num_output_tokens,
    }
    if usage.num_cached_tokens is not None:
        shown |= {"cache_creation_input_tokens": num_created, "cache_read_input_tokens": num_cached}
    return shown


class _MessageStream:
    """Turns a choice's tokens into Anthropic's events: a block for each run of text, thought or call."""

    def __init__(self, call: ChatCall, choice: Choice, machine: Machine) -> None:
        self._call = call
        self._choice = choice
        self._machine = machine
        self._deltas = chat_deltas(choice.reply, choice.call_ids)
        self._block: str | None = None
        self._index = -1
        self._has_called = False

    def take(self, num_new: int) -> list[bytes]:
        """The events of the next tokens."""
        first = self._choice.num_sent_tokens
        self._choice.num_sent_tokens = first + num_new
        events = [self._opening()] if first == 0 and num_new else []
        for delta in self._deltas[first : first + num_new]:
            if delta is not None:
                events += self._events(orjson.loads(delta))
        return events

    def ending(self) -> list[bytes]:
        """The events after the last token."""
        choice = self._choice
        stop_reason, stop_sequence = _stop_reason(
            choice.finish_reason, choice.reply.stop_reason, has_called=self._has_called
        )
        usage = _usage(usage_of(self._call, [choice], self._machine))
        return [
            *self._closed(),
            _event(
                "message_delta",
                delta={"stop_reason": stop_reason, "stop_sequence": stop_sequence},
                usage=usage,
            ),
            _event("message_stop"),
        ]

    def _opening(self) -> bytes:
        message: dict[str, Any] = {
            "id": self._call.envelope.id,
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": self._call.envelope.model,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": num_tokens(self._call.prompt), "output_tokens": 0},
        }
        return _event("message_start", message=message)

    def _events(self, delta: Mapping[str, Any]) -> list[bytes]:
        for key, kind in (("reasoning", "thinking"), ("content", "text")):
            if text := delta.get(key):
                opened = [] if self._block == kind else self._opened(kind, {"type": kind, kind: ""})
                return [*opened, self._delta({"type": f"{kind}_delta", kind: text})]
        events: list[bytes] = []
        for call in delta.get("tool_calls") or ():
            if "id" in call:
                self._has_called = True
                block: dict[str, Any] = {
                    "type": "tool_use",
                    "id": call["id"],
                    "name": call["function"]["name"],
                    "input": {},
                }
                events += self._opened("tool_use", block)
            if arguments := call["function"].get("arguments"):
                events.append(self._delta({"type": "input_json_delta", "partial_json": arguments}))
        return events

    def _opened(self, kind: str, block: Mapping[str, Any]) -> list[bytes]:
        closed = self._closed()
        self._index += 1
        self._block = kind
        return [*closed, _event("content_block_start", content_block=block, index=self._index)]

    def _closed(self) -> list[bytes]:
        if self._block is None:
            return []
        signature = []
        if self._block == "thinking":
            signature = [self._delta({"type": "signature_delta", "signature": secrets.token_hex(16)})]
        self._block = None
        return [*signature, _event("content_block_stop", index=self._index)]

    def _delta(self, delta: Mapping[str, Any]) -> bytes:
        return _event("content_block_delta", delta=delta, index=self._index)


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), dumped({"type": kind, **fields}))
