"""Chat messages in OpenAI's form to turns: what most formats have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from mockserver import tokens
from traces.importers.fields import get, get_list, get_object, get_text, kind_of
from traces.importers.log import BadRecord, ImportLog
from traces.prompt_size import reply_tokens
from traces.trajectory import RecordedPrompt, Subagent, ToolCall, ToolSchema, Turn

SYSTEM_ROLES = {"system", "developer"}
TOOL_ROLES = {"tool", "function"}
_NO_ANSWER = "calls whose answer is not in the recording: taken as ending at once"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What a list of messages holds."""

    system_prompt: str
    user_prompt: str
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a recording says about one call beside its text; None where it says nothing."""

    num_output_tokens: int | None = None
    started_at: float | None = None
    duration_s: float | None = None
    delay_s: float | None = None


UNMEASURED = Measured()


def read_conversation(messages: list[Any], *, domain_of: Callable[[str], str], log: ImportLog) -> Conversation:
    """A conversation from its messages. Raises BadRecord where they are none."""
    builder = ConversationBuilder(domain_of=domain_of, log=log)
    for message in messages:
        builder.add(message)
    return builder.conversation()


def text_of(content: Any) -> str:
    """The text of a message's content: a string, a list of parts, nothing, or anything else as JSON."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_part_text(part) for part in content)
    return to_json(content)


def to_json(value: Any) -> str:
    """``value`` as compact JSON."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # nested too deep for orjson, or a number too long for it
        raise BadRecord("a value that cannot be written as JSON") from None


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
        text = to_json({"type": "function", "function": function})
        schemas.append(ToolSchema(name=name, domain=domain_of(name), text=text))
    return tuple(schemas)


@dataclass(eq=False, slots=True)
class _OpenCall:
    """A tool call that waits for its result."""

    call_id: str
    name: str
    arguments: str
    result: str | None = None
    latency_s: float | None = None
    is_error: bool = False


@dataclass(eq=False, slots=True)
class _OpenTurn:
    """A turn that waits for the results of its tools."""

    content: str
    reasoning: str
    user_message: str | None
    prompt: RecordedPrompt | None
    measured: Measured
    calls: list[_OpenCall]
    spawns: list[Subagent] = field(default_factory=list)


class ConversationBuilder:
    """Puts messages together: a turn is whole when something follows that is not a result of its tools."""

    def __init__(self, *, domain_of: Callable[[str], str], log: ImportLog) -> None:
        self._domain_of = domain_of
        self._log = log
        self._system: list[str] = []
        self._said: list[str] = []  # by the user, since the last answer
        self._user_prompt = ""
        self._prompt: RecordedPrompt | None = None
        self._turns: list[Turn] = []
        self._open: _OpenTurn | None = None

    @property
    def num_turns(self) -> int:
        """How many answers came so far."""
        return len(self._turns) + (self._open is not None)

    def add(self, message: Any) -> None:
        """The next message, whatever its role."""
        role = get_text(message, "role")
        if role in TOOL_ROLES:
            call_id = get(message, "tool_call_id")
            self.add_result(text_of(get(message, "content")), call_id=call_id if isinstance(call_id, str) else None)
        elif role == "assistant":
            self.add_reply(message)
        elif role in SYSTEM_ROLES and self.num_turns == 0:
            self.add_system(text_of(get(message, "content")))
        elif role == "user" or role in SYSTEM_ROLES:
            self.add_user(text_of(get(message, "content")))
        else:
            raise BadRecord("a message has no known role")

    def add_system(self, text: str) -> None:
        """A part of the system prompt."""
        self._system.append(text)

    def add_user(self, text: str) -> None:
        """The user says something."""
        self._said.append(text)

    def replace_history(self, prompt: RecordedPrompt) -> None:
        """The next call has a prompt that did not grow from what was before."""
        self._prompt = prompt

    def add_reply(self, message: Any, measured: Measured = UNMEASURED) -> None:
        """The model answers; ``message`` is None where nobody recorded what."""
        self._close()
        if message is None and measured.num_output_tokens is None:
            self._log.note(_NO_ANSWER)
        calls = [] if message is None else [self._call(one, at) for at, one in enumerate(_calls_of(message))]
        said = "\n\n".join(self._said) if self._said else None
        self._said.clear()
        if not self._turns:
            self._user_prompt, said = said or "", None
        self._open = _OpenTurn(
            content="" if message is None else text_of(get(message, "content")),
            reasoning="" if message is None else _reasoning_of(message),
            user_message=said,
            prompt=self._prompt,
            measured=measured,
            calls=calls,
        )
        self._prompt = None

    def add_result(
        self, text: str, *, call_id: str | None, latency_s: float | None = None, is_error: bool = False
    ) -> None:
        """A tool answers; without an id that fits, the first call that has no answer yet."""
        calls = self._open.calls if self._open is not None else []
        unanswered = [call for call in calls if call.result is None]
        call = next((one for one in unanswered if one.call_id == call_id), next(iter(unanswered), None))
        if call is None:
            self._log.note("tool results that answer no call: left out")
            return
        call.result, call.latency_s, call.is_error = text, latency_s, is_error

    def add_spawns(self, subagents: list[Subagent]) -> None:
        """The last answer started ``subagents``."""
        if self._open is None:
            self._log.note("subagents that no call started: left out", len(subagents))
        else:
            self._open.spawns += subagents

    def conversation(self) -> Conversation:
        """All of it. Raises BadRecord where the model never answered."""
        self._close()
        self._log.note("a user's last words that no model answered: left out", len(self._said))
        if not self._turns:
            raise BadRecord("no answer of a model in it")
        return Conversation(
            system_prompt="\n\n".join(self._system), user_prompt=self._user_prompt, turns=tuple(self._turns)
        )

    def _call(self, call: Any, index: int) -> _OpenCall:
        function = get_object(call, "function") or call
        arguments = get(function, "arguments")
        return _OpenCall(
            call_id=get_text(call, "id") or f"call-{self.num_turns}-{index}",
            name=get_text(function, "name"),
            arguments=arguments if isinstance(arguments, str) else to_json(arguments or {}),
        )

    def _close(self) -> None:
        open_turn = self._open
        if open_turn is None:
            return
        self._open = None
        num_unanswered = sum(call.result is None for call in open_turn.calls)
        self._log.note("tool calls without a result: taken as empty", num_unanswered)
        measured = open_turn.measured
        turn = Turn(
            content=open_turn.content,
            user_message=open_turn.user_message,
            prompt=open_turn.prompt,
            tool_calls=tuple(self._tool_call(call) for call in open_turn.calls),
            num_output_tokens=measured.num_output_tokens,
            started_at=measured.started_at,
            duration_s=measured.duration_s,
            delay_s=measured.delay_s,
            spawns=tuple(open_turn.spawns),
        )
        if open_turn.reasoning and turn.num_output_tokens is None:
            num_tokens = reply_tokens(turn) + tokens.count(open_turn.reasoning)
            turn = replace(turn, num_output_tokens=num_tokens)
            self._log.note("answers with reasoning: its tokens are generated, but not kept in the history")
        self._turns.append(turn)

    def _tool_call(self, call: _OpenCall) -> ToolCall:
        return ToolCall(
            call_id=call.call_id,
            name=call.name,
            domain=self._domain_of(call.name),
            arguments=call.arguments,
            result=call.result or "",
            latency_s=call.latency_s,
            is_error=call.is_error,
        )


def _calls_of(message: Any) -> list[Any]:
    calls = get_list(message, "tool_calls")
    function_call = get(message, "function_call")  # OpenAI's older form
    return [{"function": function_call}] if not calls and isinstance(function_call, dict) else calls


def _reasoning_of(message: Any) -> str:
    reasoning = get(message, "reasoning_content") or get(message, "reasoning")
    return reasoning if isinstance(reasoning, str) else ""


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise BadRecord(f"a part of a message must be an object, got {kind_of(part)}")
    text = part.get("text") or part.get("content") or part.get("refusal")
    if isinstance(text, str):
        return text
    return f"[{part['type']}]" if isinstance(part.get("type"), str) else ""
