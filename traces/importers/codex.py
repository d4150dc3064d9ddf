"""Codex sessions (``rollout-*.jsonl``): ``{timestamp, type, payload}`` records, also pretty-printed.

``response_item`` payloads are the history: messages, reasoning, function calls and their outputs. What lies between
two outputs or user messages is one answer. ``token_count`` events have the usage of the call that just ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from traces.domains import domain_of
from traces.importers.chat import ConversationBuilder, text_of, to_json
from traces.importers.clock_times import AgentTimes, between
from traces.importers.fields import get, get_count, get_object, get_text, get_time
from traces.importers.log import BadRecord, ImportLog
from traces.importers.sources import Source
from traces.trajectory import Trajectory

NAME = "codex"
_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


def recognises(value: Any) -> bool:
    """Whether ``value`` is a record of a session."""
    if _is_bare(value):
        return True
    return (
        isinstance(value, dict)
        and "payload" in value
        and value.get("type") in ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
    )


def read(source: Source, log: ImportLog) -> Iterator[Trajectory]:
    """The session in ``source``; what cannot be used goes to ``log``."""
    reader = _Session(log)
    try:
        for where, record in source.values(log.skip):
            try:
                reader.add(record)
            except BadRecord as error:
                log.skip(where, str(error))
        yield reader.trajectory()
    except BadRecord as error:
        log.skip(source.name, str(error))


class _Session:
    """Puts a session's records into a conversation."""

    def __init__(self, log: ImportLog) -> None:
        self._log = log
        self._builder = ConversationBuilder(domain_of=domain_of, log=log)
        self._times = AgentTimes(None)
        self._session_id = ""
        self._model = ""
        self._texts: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._started: float | None = None  # what the answer in the making waited for
        self._ended: float | None = None
        self._num_output_tokens: int | None = None
        self._called_at: dict[str, float | None] = {}

    def add(self, record: Any) -> None:
        """The next record."""
        at = get_time(record, "timestamp")
        kind = get(record, "type")
        payload = get_object(record, "payload")
        if "payload" not in record:  # older versions: the items themselves, after a line about the session
            kind, payload = ("session_meta" if "instructions" in record else "response_item"), record
        if kind == "session_meta":
            self._times = AgentTimes(at)
            self._session_id = get_text(payload, "id")
            instructions = get(payload, "base_instructions") or get(payload, "instructions")
            text = instructions.get("text") if isinstance(instructions, dict) else instructions
            if isinstance(text, str):
                self._builder.add_system(text)
        elif kind == "turn_context":
            self._model = self._model or get_text(payload, "model")
        elif kind == "event_msg" and get(payload, "type") == "token_count":
            usage = get_object(get_object(payload, "info"), "last_token_usage")
            self._num_output_tokens = get_count(usage, "output_tokens")
            self._flush()
        elif kind == "compacted":
            self._log.note("histories that were compacted: replayed whole")
        elif kind == "response_item":
            self._add_item(payload, at)

    def trajectory(self) -> Trajectory:
        """The whole session."""
        self._flush()
        conversation = self._builder.conversation()
        self._log.note("sessions without tool schemas: their prompts are shorter than the run's were")
        return Trajectory(
            task_id=self._session_id or "session",
            system_prompt=conversation.system_prompt,
            user_prompt=conversation.user_prompt,
            turns=conversation.turns,
            source=NAME,
            model=self._model,
        )

    def _add_item(self, item: Any, at: float | None) -> None:
        kind = get(item, "type")
        role = get(item, "role")
        if kind == "message" and role == "assistant":
            self._texts.append(text_of(get(item, "content")))
            self._ended = at
        elif kind == "message":
            self._flush()
            self._builder.add({"role": role, "content": get(item, "content")})
            self._started = at
        elif kind in _CALLS:
            call_id = get_text(item, "call_id") or get_text(item, "id")
            name = get_text(item, "name") or "local_shell"
            arguments = get(item, "arguments") or get(item, "input") or get(item, "action")
            text = arguments if isinstance(arguments, str) else to_json(arguments or {})
            self._calls.append({"id": call_id, "function": {"name": name, "arguments": text}})
            self._called_at[call_id] = self._ended = at
        elif kind in _OUTPUTS:
            self._flush()
            call_id = get_text(item, "call_id")
            latency_s = between(self._called_at.get(call_id), at)
            self._builder.add_result(_output_of(item), call_id=call_id, latency_s=latency_s)
            self._started = at

    def _flush(self) -> None:
        if not self._texts and not self._calls:
            return
        measured = self._times.call(self._started, self._ended, num_output_tokens=self._num_output_tokens)
        self._builder.add_reply({"content": "\n".join(self._texts), "tool_calls": self._calls}, measured)
        self._texts, self._calls, self._num_output_tokens = [], [], None


def _is_bare(value: Any) -> bool:
    """Whether ``value`` is a record of an older version."""
    if not isinstance(value, dict) or "payload" in value:
        return False
    return {"id", "timestamp", "instructions"} <= value.keys() or (
        value.get("type") in ("message", *_CALLS) and ("call_id" in value or isinstance(value.get("content"), list))
    )


def _output_of(item: Any) -> str:
    output = get(item, "output")
    if isinstance(output, dict) and isinstance(output.get("content"), str):
        return str(output["content"])
    return text_of(output)
