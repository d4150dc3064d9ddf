"""``POST /v1/responses``: OpenAI's newer dialect, whole and streamed, over the same replies as chat."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import orjson
from aiohttp import web
from pydantic import Field

from mockserver.api.bodies import Usage, dumped
from mockserver.api.chat import ChatCall, checked, run_to_end, started, usage_of, whole_choice
from mockserver.api.choices import Choice, bursts, count_finished, running
from mockserver.api.errors import ApiError, BadParameter, InvalidBody, unknown_model
from mockserver.api.http import json_response, read_body
from mockserver.api.machine import Machine
from mockserver.api.schema import RequestModel
from mockserver.api.views import chat_deltas


class ResponsesRequest(RequestModel):
    """The fields of ``POST /v1/responses`` that change an answer."""

    background: bool | None = False
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, str] | None = None
    model: str | None = None
    parallel_tool_calls: bool | None = True
    previous_response_id: str | None = None
    reasoning: dict[str, Any] | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority"] = "auto"
    store: bool | None = True
    stream: bool | None = False
    temperature: float | None = None
    text: dict[str, Any] | None = None
    tool_choice: str | dict[str, Any] = "auto"
    tools: list[dict[str, Any]] = Field(default_factory=list)
    top_p: float | None = None
    top_logprobs: int | None = None
    include: list[str] | None = None
    truncation: Literal["auto", "disabled"] | None = "disabled"
    user: str | None = None
    presence_penalty: Annotated[float, Field(ge=-2.0, le=2.0)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2.0, le=2.0)] | None = None
    request_id: str | None = None
    priority: int = 0
    session_id: str | None = None
    cache_salt: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    ignore_eos: bool = False
    replayrig: dict[str, Any] | None = None


_ROLES = ("user", "assistant", "system", "developer")


async def responses(request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """Answer one Responses request."""
    body = await read_body(request, _parsed)
    if body.model and body.model not in machine.model_names:
        raise unknown_model(body.model, machine.model_names)
    if body.previous_response_id is not None:
        raise _not_found(body.previous_response_id)
    call = checked(_as_chat(body), request.headers, machine)
    response_id = body.request_id or f"resp_{secrets.token_hex(8)}"
    if not body.stream:
        choice = (await run_to_end(call, machine))[0]
        items = _output_items(whole_choice(call, choice, machine))
        usage = usage_of(call, [choice], machine)
        return json_response(dumped(_response(body, call, choice, response_id=response_id, items=items, usage=usage)))
    with running(machine, lambda: started(call, machine, watch=True)) as choices:
        async with machine.event_stream(request) as stream:
            builder = _ResponseStream(body, call, response_id, choices[0], machine)
            async for burst in bursts(choices[0], machine):
                await stream.send(*builder.take(burst.num_tokens))
            count_finished(choices, machine, max_tokens=call.sampling.limits.max_tokens)
            await stream.send(*builder.ending())
    return stream


async def stored_response(request: web.BaseRequest, _machine: Machine) -> web.StreamResponse:
    """``GET /v1/responses/ID``: nothing is stored, as vLLM stores nothing by default."""
    raise _not_found(request.path.removeprefix("/v1/responses/").removesuffix("/cancel"))


def _not_found(response_id: str) -> ApiError:
    return ApiError(
        f"Response with id '{response_id}' not found.",
        status=404,
        type="invalid_request_error",
        param="response_id",
    )


def _parsed(data: Any) -> ResponsesRequest:
    if isinstance(data, dict):
        _check(data)
    return ResponsesRequest.parse(data)


def _check(data: dict[str, Any]) -> None:
    tools = data.get("tools")
    choice = data.get("tool_choice", "auto")
    if not tools:
        if choice in ("auto", "none"):
            data["tool_choice"] = "none"
        elif choice == "required":
            raise BadParameter(
                "Tool choice 'required' must be specified with 'tools' parameter.", parameter="tool_choice"
            )
        elif isinstance(choice, dict):
            raise BadParameter("Tool choice 'function' not found in 'tools' parameter.", parameter="tool_choice")
    if data.get("input") == {}:
        data["input"] = []
    for item in data["input"] if isinstance(data.get("input"), list) else ():
        role = item.get("role") if isinstance(item, dict) else None
        if isinstance(role, str) and role not in _ROLES:
            complaint = f"Input should be {', '.join(map(repr, _ROLES[:-1]))} or {_ROLES[-1]!r}"
            raise InvalidBody([{"type": "literal_error", "loc": ("body", "input"), "msg": complaint, "input": role}])
    if data.get("prompt") is not None:
        raise BadParameter("prompt template is not supported", parameter="prompt")
    if data.get("background") and not data.get("store", True):
        raise BadParameter("background can only be used when `store` is true", parameter="background")
    if data.get("background"):
        raise ApiError(
            "This vLLM engine does not support `store=True` and therefore does not support the background mode. To "
            "enable these features, set the environment variable `VLLM_ENABLE_RESPONSES_API_STORE=1` when launching "
            "the vLLM server.",
            type="invalid_request_error",
            param="background",
        )


def _as_chat(body: ResponsesRequest) -> dict[str, Any]:
    """The same request in the chat endpoint's words."""
    data: dict[str, Any] = {
        "model": body.model,
        "messages": _chat_messages(body),
        "temperature": body.temperature,
        "top_p": body.top_p,
        "seed": body.seed,
        "stop": body.stop,
        "ignore_eos": body.ignore_eos,
        "presence_penalty": body.presence_penalty,
        "frequency_penalty": body.frequency_penalty,
        "parallel_tool_calls": body.parallel_tool_calls,
        "cache_salt": body.cache_salt,
        "priority": body.priority,
        "session_id": body.session_id,
        "replayrig": body.replayrig,
    }
    if "message.output_text.logprobs" in (body.include or ()):
        data |= {"logprobs": True, "top_logprobs": body.top_logprobs}
    if body.max_output_tokens is not None:
        data["max_tokens"] = body.max_output_tokens
    tools = [_chat_tool(tool) for tool in body.tools if tool.get("type") == "function"]
    if tools:
        data["tools"] = tools
        choice = body.tool_choice
        data["tool_choice"] = (
            {"type": "function", "function": {"name": choice.get("name")}} if isinstance(choice, dict) else choice
        )
    if response_format := _response_format(body.text):
        data["response_format"] = response_format
    return data


def _chat_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    names = ("name", "description", "parameters", "strict")
    return {"type": "function", "function": {name: tool[name] for name in names if tool.get(name) is not None}}


def _shown_tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    if tool.get("type") != "function":
        return tool
    return {
        "name": tool.get("name"),
        "parameters": tool.get("parameters"),
        "strict": tool.get("strict"),
        "type": "function",
        "allowed_callers": None,
        "async": None,
        "defer_loading": None,
        "description": tool.get("description"),
        "output_schema": None,
    }


def _response_format(text: Mapping[str, Any] | None) -> dict[str, Any] | None:
    wanted = (text or {}).get("format")
    if not isinstance(wanted, dict) or wanted.get("type") in (None, "text"):
        return None
    if wanted["type"] == "json_schema":
        return {
            "type": "json_schema",
            "json_schema": {"name": wanted.get("name", "schema"), "schema": wanted.get("schema")},
        }
    return {"type": wanted["type"]}


def _chat_messages(body: ResponsesRequest) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if body.instructions:
        messages.append({"role": "system", "content": body.instructions})
    if isinstance(body.input, str):
        return [*messages, {"role": "user", "content": body.input}]
    for item in body.input:
        kind = item.get("type", "message")
        if kind == "function_call":
            call = {
                "id": str(item.get("call_id", "")),
                "type": "function",
                "function": {"name": str(item.get("name", "")), "arguments": str(item.get("arguments", ""))},
            }
            if messages and messages[-1].get("tool_calls"):
                messages[-1]["tool_calls"].append(call)
            else:
                messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif kind == "function_call_output":
            output = item.get("output", "")
            content = output if isinstance(output, str) else orjson.dumps(output).decode()
            messages.append({"role": "tool", "tool_call_id": str(item.get("call_id", "")), "content": content})
        elif kind == "message":
            messages.append({"role": str(item.get("role", "user")), "content": _chat_content(item.get("content", ""))})
    return messages


def _chat_content(content: Any) -> Any:
    """A message's content in the chat endpoint's words."""
    if not isinstance(content, list):
        return content
    parts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("input_text", "output_text"):
            parts.append({"type": "text", "text": part.get("text", "")})
        elif kind == "input_image":
            parts.append({"type": "image_url", "image_url": {"url": str(part.get("image_url", ""))}})
        else:
            parts.append(part)
    return parts


def _output_items(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    message = row["message"]
    items: list[dict[str, Any]] = []
    if message["reasoning"]:
        items.append(_reasoning_item(f"rs_{secrets.token_hex(8)}", message["reasoning"], status=None))
    if message["content"] or not (message.get("tool_calls") or items):
        item = _message_item(f"msg_{secrets.token_hex(8)}", message["content"] or "", status="completed")
        if row["logprobs"]:
            item["content"][0]["logprobs"] = [_logprob(entry) for entry in row["logprobs"]["content"]]
        items.append(item)
    for call in message.get("tool_calls") or ():
        items.append(_call_item(f"fc_{secrets.token_hex(8)}", call["id"], call["function"], status="completed"))
    return items


def _logprob(entry: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {key: entry[key] for key in ("token", "bytes", "logprob")}
    if "top_logprobs" in entry:
        shown["top_logprobs"] = [_logprob(one) for one in entry["top_logprobs"]]
    return shown


def _message_item(item_id: str, text: str | None, *, status: str) -> dict[str, Any]:
    content: list[Any] = (
        [] if text is None else [{"annotations": [], "text": text, "type": "output_text", "logprobs": None}]
    )
    return {
        "id": item_id,
        "content": content,
        "role": "assistant",
        "status": status,
        "type": "message",
        "phase": None,
    }


def _reasoning_item(item_id: str, text: str | None, *, status: str | None) -> dict[str, Any]:
    return {
        "id": item_id,
        "summary": [],
        "type": "reasoning",
        "content": None if text is None else [{"text": text, "type": "reasoning_text"}],
        "encrypted_content": None,
        "status": status,
    }


def _call_item(item_id: str, call_id: str, function: Mapping[str, str], *, status: str) -> dict[str, Any]:
    return {
        "arguments": function["arguments"],
        "call_id": call_id,
        "name": function["name"],
        "type": "function_call",
        "id": item_id,
        "async": None,
        "caller": None,
        "namespace": None,
        "status": status,
    }


def _response(
    body: ResponsesRequest,
    call: ChatCall,
    choice: Choice,
    *,
    response_id: str,
    items: Sequence[Mapping[str, Any]],
    usage: Usage | None,
) -> dict[str, Any]:
    """The response object; ``usage`` is None while it is in progress."""
    is_cut = usage is not None and choice.finish_reason == "length"
    status = "in_progress" if usage is None else "incomplete" if is_cut else "completed"
    return {
        "id": response_id,
        "created_at": call.envelope.created,
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "instructions": body.instructions,
        "metadata": body.metadata,
        "model": call.envelope.model,
        "object": "response",
        "output": items,
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "tool_choice": body.tool_choice,
        "tools": [_shown_tool(tool) for tool in body.tools],
        "top_p": 1.0 if body.top_p is None else body.top_p,
        "background": bool(body.background),
        "max_output_tokens": call.sampling.limits.max_tokens,
        "max_tool_calls": body.max_tool_calls,
        "previous_response_id": None,
        "prompt": None,
        "reasoning": body.reasoning,
        "service_tier": body.service_tier,
        "status": status,
        "text": None if body.text is None else {**body.text, "verbosity": body.text.get("verbosity")},
        "top_logprobs": body.top_logprobs,
        "truncation": body.truncation,
        "usage": None if usage is None else _usage(usage),
        "user": body.user,
        "presence_penalty": body.presence_penalty or 0.0,
        "frequency_penalty": body.frequency_penalty or 0.0,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "input_messages": None,
        "output_messages": None,
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.num_prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.num_cached_tokens or 0,
            "cache_write_tokens": usage.num_created_cache_tokens or 0,
            "input_tokens_per_turn": [],
            "cached_tokens_per_turn": [],
        },
        "output_tokens": usage.num_output_tokens,
        "output_tokens_details": {
            "reasoning_tokens": usage.num_reasoning_tokens or 0,
            "tool_output_tokens": 0,
            "output_tokens_per_turn": [],
            "tool_output_tokens_per_turn": [],
        },
        "total_tokens": usage.num_prompt_tokens + usage.num_output_tokens,
    }


class _ResponseStream:
    """Turns a choice's tokens into the events of a response."""

    def __init__(
        self, body: ResponsesRequest, call: ChatCall, response_id: str, choice: Choice, machine: Machine
    ) -> None:
        self._body = body
        self._call = call
        self._id = response_id
        self._choice = choice
        self._machine = machine
        self._deltas = chat_deltas(choice.reply, choice.call_ids)
        self._items: list[dict[str, Any]] = []
        self._kind: str | None = None
        self._item_id = ""
        self._call_id = ""
        self._name = ""
        self._text = ""
        self._number = -1

    def take(self, num_new: int) -> list[bytes]:
        """The events of the next tokens."""
        first = self._choice.num_sent_tokens
        self._choice.num_sent_tokens = first + num_new
        events: list[bytes] = []
        if first == 0 and num_new:
            response = self._response([], None)
            events += [self._event(f"response.{name}", response=response) for name in ("created", "in_progress")]
        for delta in self._deltas[first : first + num_new]:
            if delta is not None:
                events += self._events(orjson.loads(delta))
        return events

    def ending(self) -> list[bytes]:
        """The events after the last token."""
        closed = self._closed()
        usage = usage_of(self._call, [self._choice], self._machine)
        response = self._response(self._items, usage)
        return [*closed, self._event("response.completed", response=response)]

    def _response(self, items: Sequence[Mapping[str, Any]], usage: Usage | None) -> dict[str, Any]:
        return _response(self._body, self._call, self._choice, response_id=self._id, items=items, usage=usage)

    def _events(self, delta: Mapping[str, Any]) -> list[bytes]:
        if text := delta.get("reasoning"):
            opened = [] if self._kind == "reasoning" else self._opened("reasoning", "rs")
            return [*opened, self._part("response.reasoning_text.delta", text)]
        if text := delta.get("content"):
            opened = [] if self._kind == "message" else self._opened("message", "msg")
            return [*opened, self._part("response.output_text.delta", text, logprobs=[])]
        events: list[bytes] = []
        for call in delta.get("tool_calls") or ():
            if "id" in call:
                events += self._closed()
                self._call_id, self._name = call["id"], call["function"]["name"]
                events += self._opened("function_call", "fc")
            if arguments := call["function"].get("arguments"):
                self._text += arguments
                events.append(
                    self._event(
                        "response.function_call_arguments.delta",
                        item_id=self._item_id,
                        output_index=len(self._items),
                        delta=arguments,
                    )
                )
        return events

    def _part(self, kind: str, text: str, **more: Any) -> bytes:
        self._text += text
        place = {"item_id": self._item_id, "output_index": len(self._items), "content_index": 0}
        return self._event(kind, **place, delta=text, **more)

    def _opened(self, kind: str, prefix: str) -> list[bytes]:
        closed = self._closed()
        self._kind, self._text, self._item_id = kind, "", f"{prefix}_{secrets.token_hex(8)}"
        item: dict[str, Any]
        part: dict[str, Any] | None = None
        if kind == "message":
            item = _message_item(self._item_id, None, status="in_progress")
            part = {"annotations": [], "text": "", "type": "output_text", "logprobs": []}
        elif kind == "reasoning":
            item = _reasoning_item(self._item_id, None, status="in_progress")
            part = {"text": "", "type": "reasoning_text"}
        else:
            function = {"name": self._name, "arguments": ""}
            item = _call_item(self._item_id, self._call_id, function, status="in_progress")
        index = len(self._items)
        events = [*closed, self._event("response.output_item.added", output_index=index, item=item)]
        if part is not None:
            place = {"item_id": self._item_id, "output_index": index, "content_index": 0}
            events.append(self._event("response.content_part.added", **place, part=part))
        return events

    def _closed(self) -> list[bytes]:
        kind, self._kind = self._kind, None
        if kind is None:
            return []
        index = len(self._items)
        place = {"item_id": self._item_id, "output_index": index}
        events: list[bytes] = []
        if kind == "function_call":
            function = {"name": self._name, "arguments": self._text}
            item = _call_item(self._item_id, self._call_id, function, status="completed")
            done = {**place, "arguments": self._text, "name": self._name}
            events.append(self._event("response.function_call_arguments.done", **done))
        else:
            is_text = kind == "message"
            part: dict[str, Any] = {"text": self._text, "type": "output_text" if is_text else "reasoning_text"}
            more: dict[str, Any] = {"logprobs": []} if is_text else {}
            if is_text:
                part = {"annotations": [], **part, "logprobs": None}
            item = (
                _message_item(self._item_id, self._text, status="completed")
                if is_text
                else _reasoning_item(self._item_id, self._text, status="completed")
            )
            name = "output_text" if is_text else "reasoning_text"
            events += [
                self._event(f"response.{name}.done", **place, content_index=0, text=self._text, **more),
                self._event("response.content_part.done", **place, content_index=0, part=part),
            ]
        self._items.append(item)
        return [*events, self._event("response.output_item.done", output_index=index, item=item)]

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        data = {"type": kind, "sequence_number": self._number, **fields}
        data = dict(sorted(data.items(), key=lambda item: (item[0] == "name", item[0])))  # vLLM's order
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), dumped(data))
