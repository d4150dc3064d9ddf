"""Chat messages in OpenAI's form to turns: what several formats have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from traces.importers.fields import get, get_list, get_object, get_text, kind_of
from traces.importers.log import BadRecord, ImportLog
from traces.trajectory import ToolCall, ToolSchema, Turn

_SYSTEM_ROLES = {"system", "developer"}
_TOOL_ROLES = {"tool", "function"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What a list of messages holds."""

    system_prompt: str
    user_prompt: str
    turns: tuple[Turn, ...]


def read_conversation(messages: list[Any], *, domain_of: Callable[[str], str], log: ImportLog) -> Conversation:
    """A conversation from its messages. Raises BadRecord where they are none."""
    reader = _Reader(domain_of, log)
    for message in messages:
        reader.add(message)
    return reader.conversation()


def text_of(content: Any) -> str:
    """The text of a message's content: a string, a list of parts, nothing, or anything else as JSON."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_part_text(part) for part in content)
    return orjson.dumps(content).decode()


def schemas_of(tools: list[Any], *, domain_of: Callable[[str], str]) -> tuple[ToolSchema, ...]:
    """Offered tools, from OpenAI's list of them; Anthropic's ``input_schema`` is put in OpenAI's form."""
    schemas = []
    for tool in tools:
        function = get(tool, "function")
        if not isinstance(function, dict):
            parameters = get(tool, "input_schema") or get(tool, "parameters") or {}
            function = {
                "name": get(tool, "name"),
                "description": get(tool, "description"),
                "parameters": parameters,
            }
        name = get_text(function, "name")
        text = orjson.dumps({"type": "function", "function": function}).decode()
        schemas.append(ToolSchema(name=name, domain=domain_of(name), text=text))
    return tuple(schemas)


@dataclass(eq=False, slots=True)
class _OpenCall:
    """A tool call that waits for its result."""

    call_id: str
    name: str
    arguments: str
    result: str | None = None


class _Reader:
    """Puts messages together: a turn is whole when something follows that is not a result of its tools."""

    def __init__(self, domain_of: Callable[[str], str], log: ImportLog) -> None:
        self._domain_of = domain_of
        self._log = log
        self._system: list[str] = []
        self._said: list[str] = []  # by the user, since the last assistant message
        self._user_prompt = ""
        self._turns: list[Turn] = []
        self._open: tuple[str, str | None, list[_OpenCall]] | None = None  # content, user_message, calls

    def add(self, message: Any) -> None:
        role = get_text(message, "role")
        if role in _TOOL_ROLES:
            self._add_result(message)
        elif role == "assistant":
            self._close()
            self._open_turn(message)
        elif role in _SYSTEM_ROLES and self._open is None and not self._turns:
            self._system.append(text_of(get(message, "content")))
        elif role == "user" or role in _SYSTEM_ROLES:
            self._said.append(text_of(get(message, "content")))
        else:
            raise BadRecord("a message has no known role")

    def conversation(self) -> Conversation:
        self._close()
        self._log.note("a user's last words that no model answered: left out", len(self._said))
        if not self._turns:
            raise BadRecord("no assistant message in it")
        return Conversation(
            system_prompt="\n\n".join(self._system), user_prompt=self._user_prompt, turns=tuple(self._turns)
        )

    def _open_turn(self, message: Any) -> None:
        calls = []
        for index, call in enumerate(get_list(message, "tool_calls")):
            function = get_object(call, "function") or call
            arguments = get(function, "arguments")
            calls.append(
                _OpenCall(
                    call_id=get_text(call, "id") or f"call-{len(self._turns)}-{index}",
                    name=get_text(function, "name"),
                    arguments=arguments if isinstance(arguments, str) else orjson.dumps(arguments or {}).decode(),
                )
            )
        said = "\n\n".join(self._said) if self._said else None
        self._said.clear()
        if not self._turns:
            self._user_prompt, said = said or "", None
        self._open = (text_of(get(message, "content")), said, calls)

    def _add_result(self, message: Any) -> None:
        text = text_of(get(message, "content"))
        calls = self._open[2] if self._open is not None else []
        call_id = get(message, "tool_call_id")
        unanswered = [call for call in calls if call.result is None]
        # Results without an id that fits come in the order of the calls.
        call = next((one for one in unanswered if one.call_id == call_id), next(iter(unanswered), None))
        if call is None:
            self._log.note("tool results that answer no call: left out")
        else:
            call.result = text

    def _close(self) -> None:
        if self._open is None:
            return
        content, user_message, calls = self._open
        self._open = None
        self._log.note("tool calls without a result: taken as empty", sum(call.result is None for call in calls))
        self._turns.append(
            Turn(
                content=content,
                user_message=user_message,
                tool_calls=tuple(
                    ToolCall(
                        call_id=call.call_id,
                        name=call.name,
                        domain=self._domain_of(call.name),
                        arguments=call.arguments,
                        result=call.result or "",
                    )
                    for call in calls
                ),
            )
        )


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise BadRecord(f"a part of a message must be an object, got {kind_of(part)}")
    text = part.get("text") or part.get("content") or part.get("refusal")
    if isinstance(text, str):
        return text
    return f"[{part['type']}]" if isinstance(part.get("type"), str) else ""
