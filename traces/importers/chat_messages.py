"""Chat messages: OpenAI's ``{"messages": [...], "tools": [...]}`` a line, lists of messages, or a message a line.

ShareGPT's form: ``{"conversations": [{"from": "human"|"gpt", "value"} | {"role", "content"}]}``. A record with an
``episode`` (Harbor's exports) is one call of a run, so the records of a run are its calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from traces.domains import domain_of
from traces.importers.chat import read_conversation, schemas_of
from traces.importers.fields import get, get_label, get_list, get_text
from traces.importers.groups import read_each, read_groups
from traces.importers.log import BadRecord, ImportLog
from traces.importers.requests import Request, read_requests
from traces.importers.sources import Source
from traces.trajectory import ToolSchema, Trajectory

NAME = "messages"
_ID_KEYS = ("task_id", "instance_id", "id", "conversation_id", "session_id", "custom_id", "task_name", "task")
_ROLES = {"human": "user", "gpt": "assistant", "bot": "assistant", "chatgpt": "assistant", "observation": "tool"}


def recognises(value: Any) -> bool:
    """Whether ``value`` holds chat messages."""
    if isinstance(value, list):
        return bool(value) and (_is_message(value[0]) or recognises(value[0]))
    if not isinstance(value, dict):
        return False
    if _is_message(value):
        return "content" in value or "value" in value or "tool_calls" in value
    for key in ("messages", "conversations"):
        messages = value.get(key)
        if isinstance(messages, list) and messages and _is_message(messages[0]):
            return True
    return False


def read(source: Source, log: ImportLog) -> Iterator[Trajectory]:
    """The conversations of ``source``; what cannot be used goes to ``log``."""
    first = source.first_value
    if isinstance(first, list) and first and isinstance(first[0], dict) and _is_message(first[0]):
        for where, messages in source.values(log.skip):
            try:
                yield _read_record({"messages": messages}, log)
            except BadRecord as error:
                log.skip(where, str(error))
        return
    if isinstance(first, dict) and _is_message(first):  # one message a line: the file is one conversation
        messages = [message for _, message in source.values(log.skip)]
        try:
            yield _read_record({"messages": messages}, log)
        except BadRecord as error:
            log.skip(source.name, str(error))
        return
    record = first[0] if isinstance(first, list) and first else first
    if isinstance(record, dict) and "episode" in record:
        yield from read_groups(source, log, key=_run_of, read=_read_run)
    else:
        yield from read_each(source, log, _read_record)


def _read_record(record: Any, log: ImportLog) -> Trajectory:
    messages = _messages_of(record)
    tools = _tools_of(record)
    conversation = read_conversation(messages, domain_of=domain_of, log=log)
    return Trajectory(
        task_id=_id_of(record),
        system_prompt=conversation.system_prompt,
        user_prompt=conversation.user_prompt,
        tools=tools,
        turns=conversation.turns,
        source=NAME,
        model=get_text(record, "model") if isinstance(get(record, "model"), str) else "",
    )


def _read_run(run: str, records: list[Any], log: ImportLog) -> Trajectory:
    tools = _tools_of(records[0])
    requests = [Request(messages=_messages_of(record)) for record in records]
    conversation = read_requests(requests, tools=tools, domain_of=domain_of, log=log)
    return Trajectory(
        task_id=_id_of(records[0]),
        system_prompt=conversation.system_prompt,
        user_prompt=conversation.user_prompt,
        tools=tools,
        turns=conversation.turns,
        source=NAME,
        model=get_text(records[0], "model"),
    )


def _run_of(record: Any) -> str:
    return f"{get_label(record, 'run_id')}/{get_label(record, 'trial_name')}"


def _id_of(record: Any) -> str:
    return next((str(value) for key in _ID_KEYS if isinstance(value := get(record, key), str | int)), "conversation")


def _tools_of(record: Any) -> tuple[ToolSchema, ...]:
    return schemas_of(get_list(record, "tools") or get_list(record, "tool_definitions"), domain_of=domain_of)


def _messages_of(record: Any) -> list[Any]:
    return [_as_openai(message) for message in get_list(record, "messages") or get_list(record, "conversations")]


def _as_openai(message: Any) -> Any:
    if not isinstance(message, dict) or "from" not in message:
        return message
    role = get_text(message, "from")
    return {"role": _ROLES.get(role, role), "content": message.get("value")}


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and (
        isinstance(value.get("role"), str) or (isinstance(value.get("from"), str) and "value" in value)
    )
