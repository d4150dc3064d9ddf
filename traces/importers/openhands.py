"""OpenHands event logs: a list of events, or a line a run with the events in ``history``.

Events of one model answer share ``tool_call_metadata.model_response.id``; the answer stands there as the API gave it,
usage included. An observation answers the action with the same ``tool_call_id``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from traces.domains import domain_of
from traces.importers.chat import ConversationBuilder, schemas_of, text_of
from traces.importers.clock_times import AgentTimes, between
from traces.importers.fields import get, get_count, get_list, get_object, get_text, get_time
from traces.importers.log import BadRecord, ImportLog
from traces.importers.sources import Source
from traces.trajectory import Trajectory

NAME = "openhands"
_RECALLED = "knowledge that was added to a prompt by recall: left out"


def recognises(value: Any) -> bool:
    """Whether ``value`` is a list of events, or a run with such a list."""
    if isinstance(value, dict):
        return _is_events(value.get("history")) or _is_event(value)
    return _is_events(value)


def read(source: Source, log: ImportLog) -> Iterator[Trajectory]:
    """The runs of ``source``; what cannot be used goes to ``log``."""
    numbered = _numbered_files(source)
    if numbered and numbered[0] != source.path and numbered[0] in log.paths:
        log.note("files with one event that were read with the first of their folder")
        return
    events: list[Any] = []
    if numbered and numbered[0] == source.path:
        files = [source, *(Source(name=str(path), path=path) for path in numbered[1:])]
        events = [value for file in files for _, value in file.values(log.skip) if _is_event(value)]
    for where, value in () if events else source.values(log.skip):
        try:
            if isinstance(value, dict) and "history" in value:
                yield _read_run(value, get_list(value, "history"), log)
            elif isinstance(value, list):
                yield _read_run({}, value, log)
            else:
                events.append(value)  # a log of one event a line
        except BadRecord as error:
            log.skip(where, str(error))
    if events:
        try:
            yield _read_run({}, events, log)
        except BadRecord as error:
            log.skip(source.name, str(error))


def _numbered_files(source: Source) -> list[Path]:
    """The files of a folder of events, ``0.json``, ``1.json`` and so on, in order; none where it is no such folder."""
    if not _is_event(source.first_value) or (source.layout == "lines" and not source.path.stem.isdecimal()):
        return []
    paths = [path for path in source.path.parent.glob("*.json") if path.stem.isdecimal() and len(path.stem) < 10]
    return sorted(paths, key=lambda path: int(path.stem)) if source.path in paths else []


def _read_run(run: Any, events: list[Any], log: ImportLog) -> Trajectory:
    reader = _Events(events, log)
    for event in events:
        reader.add(event)
    conversation = reader.builder.conversation()
    llm_config = get_object(get_object(run, "metadata"), "llm_config")
    return Trajectory(
        task_id=get_text(run, "instance_id") or "session",
        system_prompt=conversation.system_prompt,
        user_prompt=conversation.user_prompt,
        tools=schemas_of(reader.tools, domain_of=domain_of),
        turns=conversation.turns,
        source=NAME,
        model=get_text(llm_config, "model") or reader.model,
    )


class _Events:
    """Puts events into a conversation."""

    def __init__(self, events: list[Any], log: ImportLog) -> None:
        self.builder = ConversationBuilder(domain_of=domain_of, log=log)
        self.tools: list[Any] = []
        self.model = ""
        self._log = log
        self._times = AgentTimes(next((at for one in events if (at := get_time(one, "timestamp")) is not None), None))
        self._seen_responses: set[str] = set()
        self._before: float | None = None  # when the event before happened
        self._acted_at: dict[str, float | None] = {}  # by tool call id

    def add(self, event: Any) -> None:
        at = get_time(event, "timestamp")
        source = get(event, "source")
        action = get(event, "action")
        if action == "system":
            arguments = get_object(event, "args")
            self.builder.add_system(get_text(arguments, "content"))
            self.tools = self.tools or get_list(arguments, "tools")
        elif action == "message" and source == "user":
            self.builder.add_user(text_of(get(get_object(event, "args"), "content")))
        elif action == "recall" or get(event, "observation") == "recall":
            self._log.note(_RECALLED, int(action != "recall"))
        elif action is not None and source == "agent":
            self._add_action(event, at)
        elif get(event, "observation") is not None and get(event, "tool_call_metadata") is not None:
            self._add_observation(event, at)
        self._before = at if at is not None else self._before

    def _add_action(self, event: Any, at: float | None) -> None:
        metadata = get_object(event, "tool_call_metadata")
        call_id = get_text(metadata, "tool_call_id")
        self._acted_at[call_id] = at
        response = get_object(metadata, "model_response")
        response_id = get_text(response, "id")
        if response_id and response_id in self._seen_responses:
            return  # another tool call of an answer that is there already
        self._seen_responses.add(response_id)
        self.model = self.model or get_text(response, "model")
        usage = get_object(response, "usage")
        choices = get_list(response, "choices")
        message = get_object(choices[0], "message") if choices else {}
        if not message:
            arguments = get_object(event, "args")
            message = {"content": get(arguments, "content") or get(arguments, "thought") or get(event, "message")}
        measured = self._times.call(self._before, at, num_output_tokens=get_count(usage, "completion_tokens"))
        self.builder.add_reply(message, measured)

    def _add_observation(self, event: Any, at: float | None) -> None:
        call_id = get_text(get_object(event, "tool_call_metadata"), "tool_call_id")
        latency_s = between(self._acted_at.get(call_id), at)
        is_error = get(event, "observation") == "error"
        self.builder.add_result(text_of(get(event, "content")), call_id=call_id, latency_s=latency_s, is_error=is_error)


def _is_events(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and _is_event(value[0])


def _is_event(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and {"id", "timestamp", "source"} <= value.keys()
        and ("action" in value or "observation" in value)
    )
