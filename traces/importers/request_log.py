"""Logs of OpenAI request bodies, one a line: ``{model, messages, tools?, metadata?: {session_id, request_index}}``.

What came back may stand beside the body (``response``, ``completion``, ``choices``), or only in the next request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from traces.domains import domain_of
from traces.importers.chat import Measured, schemas_of
from traces.importers.fields import get, get_count, get_list, get_object, get_text
from traces.importers.groups import read_groups
from traces.importers.log import ImportLog
from traces.importers.requests import Request, read_requests
from traces.importers.sources import Source
from traces.trajectory import Trajectory

NAME = "request-log"
_SESSION_KEYS = ("session_id", "instance_id", "conversation_id", "trace_id", "task_id")


def recognises(value: Any) -> bool:
    """Whether ``value`` is a request body with what it belongs to."""
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return False
    metadata = value.get("metadata")
    return isinstance(metadata, dict) and "request_index" in metadata


def read(source: Source, log: ImportLog) -> Iterator[Trajectory]:
    """The sessions of ``source``; what cannot be used goes to ``log``."""
    yield from read_groups(source, log, key=_session_of, read=_read_session)


def _session_of(body: Any) -> str:
    metadata = get_object(body, "metadata")
    return next((value for key in _SESSION_KEYS if isinstance(value := metadata.get(key), str)), "session")


def _read_session(session_id: str, bodies: list[Any], log: ImportLog) -> Trajectory:
    tools = schemas_of(get_list(bodies[0], "tools"), domain_of=domain_of)
    requests = [
        Request(
            messages=get_list(body, "messages"),
            reply=_reply(body),
            measured=Measured(num_output_tokens=get_count(get_object(body, "metadata"), "output_length")),
        )
        for body in bodies
    ]
    conversation = read_requests(requests, tools=tools, domain_of=domain_of, log=log)
    return Trajectory(
        task_id=session_id,
        system_prompt=conversation.system_prompt,
        user_prompt=conversation.user_prompt,
        tools=tools,
        turns=conversation.turns,
        source=NAME,
        model=get_text(bodies[0], "model"),
    )


def _reply(body: Any) -> Any:
    response = get(body, "response") or get(body, "completion") or body
    if isinstance(response, str):
        return {"role": "assistant", "content": response}
    choices = get_list(response, "choices")
    return get_object(choices[0], "message") or None if choices else None
