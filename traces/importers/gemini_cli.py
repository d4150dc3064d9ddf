"""Gemini CLI sessions: ``{sessionId, messages: [{type: "user"|"gemini", content, toolCalls?, tokens?}]}``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from traces.domains import domain_of
from traces.importers.chat import ConversationBuilder, Measured, text_of, to_json
from traces.importers.fields import get, get_count, get_list, get_object, get_text, get_time
from traces.importers.groups import read_each
from traces.importers.log import ImportLog
from traces.importers.sources import Source
from traces.trajectory import Trajectory

NAME = "gemini-cli"


def recognises(value: Any) -> bool:
    """Whether ``value`` is a session of this format."""
    return isinstance(value, dict) and {"sessionId", "projectHash", "messages"} <= value.keys()


def read(source: Source, log: ImportLog) -> Iterator[Trajectory]:
    """The session in ``source``; what cannot be used goes to ``log``."""
    yield from read_each(source, log, _read_session)


def _read_session(session: Any, log: ImportLog) -> Trajectory:
    builder = ConversationBuilder(domain_of=domain_of, log=log)
    begin = get_time(session, "startTime")
    before = begin
    model = ""
    for message in get_list(session, "messages"):
        at = get_time(message, "timestamp")
        if get(message, "type") == "user":
            builder.add_user(text_of(get(message, "content")))
        elif get(message, "type") == "gemini":
            model = get_text(message, "model") or model
            duration_s = None if at is None or before is None else max(at - before, 0.0)
            started_at = None if at is None or begin is None else max(at - (duration_s or 0.0) - begin, 0.0)
            tokens = get_object(message, "tokens")
            outputs = [get_count(tokens, key) for key in ("output", "thoughts")]
            num_output_tokens = sum(one for one in outputs if one is not None) if any(outputs) else None
            calls = get_list(message, "toolCalls")
            builder.add_reply(
                {
                    "content": get(message, "content"),
                    "tool_calls": [
                        {"id": get(call, "id"), "name": get(call, "name"), "arguments": to_json(get(call, "args"))}
                        for call in calls
                    ],
                },
                Measured(num_output_tokens=num_output_tokens, started_at=started_at, duration_s=duration_s),
            )
            for call in calls:
                builder.add_result(text_of(get(call, "result")), call_id=get_text(call, "id"))
        else:
            log.note("messages that are neither the user's nor the model's: left out")
        before = at if at is not None else before
    conversation = builder.conversation()
    return Trajectory(
        task_id=get_text(session, "sessionId") or "session",
        user_prompt=conversation.user_prompt,
        turns=conversation.turns,
        source=NAME,
        model=model,
    )
