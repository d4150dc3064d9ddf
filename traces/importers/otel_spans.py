"""OpenTelemetry spans as they come from exporters: OTLP JSON (both spellings) and flat lists, put in one form.

Also what they say about a model call: the GenAI conventions (``gen_ai.input.messages`` and the older numbered
attributes and events), and OpenInference's ``llm.*``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from traces.importers.chat import text_of, to_json
from traces.importers.fields import get, get_label, get_list, get_object, get_text, get_time
from traces.importers.sources import parse_json

CALL_OPERATIONS = ("chat", "text_completion", "generate_content", "completion")
_NUMBERED = re.compile(r"^(gen_ai\.prompt|gen_ai\.completion|llm\.input_messages|llm\.output_messages)\.(\d+)\.(.+)$")
_SPAN_KINDS = ("openinference.span.kind", "traceloop.span.kind", "span_kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One span, whatever exporter wrote it."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    started: float | None
    ended: float | None
    attributes: dict[str, Any]
    service: str
    events: list[Any] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """``call``, ``tool``, ``agent``, or nothing we know."""
        operation = self.attributes.get("gen_ai.operation.name")
        stated = next((get_label(self.attributes, key).lower() for key in _SPAN_KINDS if key in self.attributes), "")
        if operation in CALL_OPERATIONS or stated == "llm" or any(key in self.attributes for key in _PROMPT_KEYS):
            return "call"
        if operation == "execute_tool" or stated == "tool":
            return "tool"
        return "agent" if operation == "invoke_agent" or stated in ("agent", "workflow") else stated

    def number(self, *keys: str) -> int | None:
        """The first of these attributes that is a count."""
        for key in keys:
            value = self.attributes.get(key)
            if isinstance(value, str) and value.isdecimal() and len(value) < 12:
                value = int(value)
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**40:
                return value
        return None

    def text(self, *keys: str) -> str:
        """The first of these attributes that is a text."""
        return next((value for key in keys if isinstance(value := self.attributes.get(key), str)), "")


_PROMPT_KEYS = ("gen_ai.input.messages", "gen_ai.prompt.0.role", "llm.input_messages.0.message.role")


def spans_in(value: Any) -> Iterator[Span]:
    """All spans of one JSON value: an OTLP export, a flat trace, or one span."""
    if isinstance(value, list):
        for one in value:
            yield from spans_in(one)
        return
    resources = get(value, "resourceSpans") or get(value, "resource_spans")
    if isinstance(resources, list):
        for resource in resources:
            service = get_label(_attributes(get_object(resource, "resource")), "service.name")
            scopes = get(resource, "scopeSpans") or get(resource, "scope_spans")
            for scope in scopes if isinstance(scopes, list) else []:
                for span in get_list(scope, "spans"):
                    yield _span(span, service, "")
        return
    trace_id = get_text(value, "trace_id")
    for span in get_list(value, "spans") if "spans" in value else [value]:
        yield _span(span, "", trace_id)


def input_messages(span: Span) -> list[Any]:
    """The prompt of a call as OpenAI messages."""
    messages = [one for raw in _messages(span, "gen_ai.input.messages") for one in _as_openai(raw)]
    if not messages:
        messages = _numbered(span, "gen_ai.prompt", "llm.input_messages") or _from_events(span)
    if not messages and (text := span.text("input_text", "input.value", "gen_ai.prompt")):
        messages = [{"role": "user", "content": text}]
    instructions = span.attributes.get("gen_ai.system_instructions")
    if isinstance(instructions, str):
        instructions = _parsed(instructions)
    if instructions and not (messages and messages[0].get("role") == "system"):
        messages.insert(0, {"role": "system", "content": _parts_text(instructions)})
    return messages


def output_message(span: Span) -> dict[str, Any] | None:
    """The answer of a call as an OpenAI message; None where it was not recorded."""
    for raw in _messages(span, "gen_ai.output.messages"):
        for message in _as_openai(raw):
            return {**message, "role": "assistant"}
    for message in _numbered(span, "gen_ai.completion", "llm.output_messages"):
        return {**message, "role": "assistant"}
    for event in span.events:
        if get(event, "name") == "gen_ai.choice":
            content = _parsed(_attributes(event).get("message"))
            return {
                "role": "assistant",
                "content": _parts_text(get(content, "content") if isinstance(content, dict) else content),
            }
    text = span.text("gen_ai.output.text", "output_text", "output.value", "gen_ai.completion")
    return {"role": "assistant", "content": text} if text else None


def _span(span: Any, service: str, trace_id: str) -> Span:
    attributes = _attributes(span)
    for key in ("span_kind", "agent_or_node_id", "input_text", "output_text", "model"):
        if isinstance(span.get(key), str):
            attributes.setdefault(key, span[key])
    resource = span.get("resource_attributes")
    if isinstance(resource, dict):
        service = get_label(resource, "service.name") or service
    started = _time(span, "startTimeUnixNano", "start_time_unix_nano", "start_time")
    return Span(
        trace_id=get_text(span, "traceId") or get_text(span, "trace_id") or trace_id,
        span_id=get_text(span, "spanId") or get_text(span, "span_id"),
        parent_id=get_text(span, "parentSpanId") or get_text(span, "parent_span_id"),
        name=get_text(span, "name"),
        started=started,
        ended=_time(span, "endTimeUnixNano", "end_time_unix_nano", "end_time"),
        attributes=attributes,
        service=service,
        events=get_list(span, "events"),
    )


def _time(span: Any, *keys: str) -> float | None:
    return next((at for key in keys if (at := get_time(span, key)) is not None), None)


def _attributes(holder: Any) -> dict[str, Any]:
    """Attributes as a dict; OTLP writes them as a list of keys and typed values."""
    attributes = get(holder, "attributes")
    if isinstance(attributes, dict):
        return dict(attributes)
    if not isinstance(attributes, list):
        return {}
    return {
        one["key"]: _value(one.get("value"))
        for one in attributes
        if isinstance(one, dict) and isinstance(one.get("key"), str)
    }


def _value(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    array = value.get("arrayValue") or value.get("array_value")
    if isinstance(array, dict):
        return [_value(one) for one in get_list(array, "values")]
    for key in ("stringValue", "string_value", "boolValue", "bool_value", "doubleValue", "double_value"):
        if key in value:
            return value[key]
    integer = value.get("intValue", value.get("int_value"))
    if isinstance(integer, str) and integer.lstrip("-").isdecimal() and len(integer) < 19:
        return int(integer)
    return integer


def _messages(span: Span, key: str) -> list[Any]:
    value = span.attributes.get(key)
    value = _parsed(value) if isinstance(value, str) else value
    if isinstance(value, dict):
        value = value.get("messages", [value])
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _parsed(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return parse_json(text)
    except ValueError:
        return text


def _as_openai(message: dict[str, Any]) -> list[dict[str, Any]]:
    """A message with ``parts`` in OpenAI's form: each tool response is a message of its own."""
    parts = message.get("parts")
    if not isinstance(parts, list):
        return [message]
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    reasoning: list[str] = []
    for part in parts:
        kind = get(part, "type")
        if kind == "tool_call":
            arguments = part.get("arguments")
            text = arguments if isinstance(arguments, str) else to_json(arguments or {})
            calls.append({"id": part.get("id"), "function": {"name": part.get("name"), "arguments": text}})
        elif kind == "tool_call_response":
            content = next((part[key] for key in ("response", "result", "content") if key in part), "")
            results.append({"role": "tool", "tool_call_id": part.get("id"), "content": content})
        elif kind == "reasoning":
            reasoning.append(text_of(part.get("content")))
        else:
            texts.append(text_of(part.get("content") or part.get("text")))
    whole: dict[str, Any] = {"role": message.get("role"), "content": "\n".join(texts)}
    if calls:
        whole["tool_calls"] = calls
    if reasoning:
        whole["reasoning_content"] = "\n".join(reasoning)
    return results + ([whole] if texts or calls or not results else [])


def _parts_text(parts: Any) -> str:
    if isinstance(parts, list):
        return "\n".join(
            text_of(get(part, "content") or get(part, "text")) if isinstance(part, dict) else text_of(part)
            for part in parts
        )
    return text_of(parts)


def _numbered(span: Span, *prefixes: str) -> list[dict[str, Any]]:
    """Messages from attributes like ``gen_ai.prompt.0.role`` and ``llm.input_messages.0.message.role``."""
    messages: dict[int, dict[str, Any]] = {}
    for key, value in span.attributes.items():
        match = _NUMBERED.match(key)
        if match is None or match[1] not in prefixes or len(match[2]) > 6:
            continue
        name = match[3].removeprefix("message.")
        if name in ("role", "content", "tool_call_id", "name") and isinstance(value, str):
            messages.setdefault(int(match[2]), {})[name] = value
    for number, message in messages.items():
        message.setdefault("role", "user")
        calls = _numbered_calls(span, prefixes, number)
        if calls:
            message["tool_calls"] = calls
    return [messages[number] for number in sorted(messages)]


def _numbered_calls(span: Span, prefixes: tuple[str, ...], number: int) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    for prefix in prefixes:
        for index in range(64):
            for middle in (
                f"{prefix}.{number}.tool_calls.{index}.",
                f"{prefix}.{number}.message.tool_calls.{index}.tool_call.",
            ):
                name = span.text(f"{middle}name", f"{middle}function.name")
                if name:
                    arguments = span.text(f"{middle}arguments", f"{middle}function.arguments")
                    calls.append({"id": span.text(f"{middle}id"), "function": {"name": name, "arguments": arguments}})
            if len(calls) <= index:
                break
    return calls


def _from_events(span: Span) -> list[dict[str, Any]]:
    """Messages from events like ``gen_ai.user.message``."""
    messages = []
    for event in span.events:
        match = re.fullmatch(r"gen_ai\.(system|user|assistant|tool)\.message", get_text(event, "name"))
        if match:
            attributes = _attributes(event)
            content = attributes.get("content")
            messages.append({"role": match[1], "content": content, "tool_call_id": attributes.get("id")})
    return messages
