"""Exgentic recordings: events, one a line, ``{event: "action"|"observation", step, session_id, action|observation}``.

``session.json`` beside the file has the task, its context and the schemas of the actions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from traces.domains import LOCAL, domain_of
from traces.importers.chat import ConversationBuilder, schemas_of, text_of, to_json
from traces.importers.fields import get, get_list, get_object, get_text
from traces.importers.groups import read_groups
from traces.importers.log import ImportLog
from traces.importers.sources import Source
from traces.trajectory import Trajectory

NAME = "exgentic"
_LOCAL_ACTIONS = {"message", "finish", "submit"}


def recognises(value: Any) -> bool:
    """Whether ``value`` is an event of this format."""
    return isinstance(value, dict) and value.get("event") in ("action", "observation") and "session_id" in value


def read(source: Source, log: ImportLog) -> Iterator[Trajectory]:
    """The sessions of ``source``; what cannot be used goes to ``log``."""
    session = source.companion("session.json")
    if session is None:
        log.note("recordings without session.json beside them: no task, no tool schemas")

    def read_session(session_id: str, events: list[Any], log: ImportLog) -> Trajectory:
        return _read_session(session_id, events, session, log)

    yield from read_groups(source, log, key=lambda event: get_text(event, "session_id"), read=read_session)


def _read_session(session_id: str, events: list[Any], session: Any, log: ImportLog) -> Trajectory:
    def domain(name: str) -> str:
        # The actions of a benchmark's environment are one server, unless their names say more.
        known = domain_of(name)
        return known if known != LOCAL or name in _LOCAL_ACTIONS else "environment"

    builder = ConversationBuilder(domain_of=domain, log=log)
    tools = schemas_of([], domain_of=domain)
    if isinstance(session, dict):
        context = get_object(session, "context")
        builder.add_system("\n\n".join(text for text in context.values() if isinstance(text, str)))
        builder.add_user(get_text(session, "task"))
        actions = [
            {
                "name": get(action, "name"),
                "description": get(action, "description"),
                "parameters": get(action, "arguments_schema"),
            }
            for action in get_list(session, "actions")
        ]
        tools = schemas_of(actions, domain_of=domain)
    _Events(builder).add_all(events)
    conversation = builder.conversation()
    return Trajectory(
        task_id=get_text(events[0], "task_key") or session_id,
        system_prompt=conversation.system_prompt,
        user_prompt=conversation.user_prompt,
        tools=tools,
        turns=conversation.turns,
        source=NAME,
    )


class _Events:
    """Actions of one step are one answer; an observation answers the actions that invoked it."""

    def __init__(self, builder: ConversationBuilder) -> None:
        self._builder = builder
        self._step: Any = None
        self._calls: list[dict[str, Any]] = []

    def add_all(self, events: list[Any]) -> None:
        for event in events:
            if get(event, "event") == "action":
                self._add_action(get_object(event, "action"), get(event, "step"))
            else:
                self._flush()
                self._add_observation(get_object(event, "observation"))
        self._flush()

    def _add_action(self, action: Any, step: Any) -> None:
        if step != self._step:
            self._flush()
        self._step = step
        arguments = to_json(get_object(action, "arguments"))
        function = {"name": get_text(action, "name"), "arguments": arguments}
        self._calls.append({"id": get(action, "id"), "function": function})

    def _flush(self) -> None:
        if self._calls:
            self._builder.add_reply({"role": "assistant", "tool_calls": self._calls})
        self._calls = []

    def _add_observation(self, observation: Any) -> None:
        result = get(observation, "result")
        if result is None:
            return
        is_said = isinstance(result, dict) and isinstance(result.get("message"), str)
        text = result["message"] if is_said else text_of(result)
        invoking = get_list(observation, "invoking_actions")
        if not invoking:
            self._builder.add_user(text)
            return
        for action in invoking:
            call_id = get(action, "id")
            self._builder.add_result(text, call_id=call_id if isinstance(call_id, str) else None)
