"""AIPerf's ``dag_jsonl``: one session a line, ``{session_id, turns: [{messages, tools?, max_tokens, delay, spawns,
forks}]}``. A turn's messages are what is new; the answers come from the server and are not in the file.

``spawns`` start sessions afresh, and the next turn waits for them (``{children, join_at}``: a later one); ``forks``
go on from the parent's history. Our own exports carry the answers in ``extra_body``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from traces.domains import domain_of
from traces.importers.chat import ConversationBuilder, Measured, schemas_of, text_of
from traces.importers.fields import get, get_count, get_list, get_number, get_object, get_text
from traces.importers.log import BadRecord, ImportLog
from traces.importers.sources import Source
from traces.trajectory import Subagent, Trajectory

NAME = "aiperf-dag"
_MAX_DEPTH = 16


def recognises(value: Any) -> bool:
    """Whether ``value`` is a session of this format."""
    if not isinstance(value, dict) or not isinstance(value.get("session_id"), str):
        return False
    turns = value.get("turns")
    return isinstance(turns, list) and any(
        isinstance(turn, dict) and isinstance(turn.get("messages"), list) for turn in turns
    )


def read(source: Source, log: ImportLog) -> Iterator[Trajectory]:
    """The sessions of ``source`` that no other one starts; what cannot be used goes to ``log``."""
    session_by_id: dict[str, Any] = {}
    where_by_id: dict[str, str] = {}
    children: set[str] = set()
    for where, session in source.values(log.skip):
        try:
            session_id = get_text(session, "session_id")
            if session_id in session_by_id:
                raise BadRecord("a session id that was there before")
            for turn in get_list(session, "turns"):
                children.update(child for child, _ in _children(turn))
            session_by_id[session_id] = session
            where_by_id[session_id] = where
        except BadRecord as error:
            log.skip(where, str(error))
    sessions = _Sessions(session_by_id, log)
    for session_id in session_by_id:
        if session_id not in children:
            try:
                yield sessions.trajectory(session_id)
            except BadRecord as error:
                log.skip(where_by_id[session_id], str(error))


class _Sessions:
    """All sessions of a file."""

    def __init__(self, session_by_id: dict[str, Any], log: ImportLog) -> None:
        self._session_by_id = session_by_id
        self._log = log

    def trajectory(self, session_id: str) -> Trajectory:
        """A root session as a task."""
        agent = self._agent(session_id, [], 0.0, depth=0)
        first = get_list(self._session_by_id[session_id], "turns")[0]
        return Trajectory(
            task_id=session_id,
            system_prompt=agent.system_prompt,
            user_prompt=agent.user_prompt,
            tools=agent.tools,
            turns=agent.turns,
            source=NAME,
            model=get_text(first, "model"),
        )

    def _agent(self, session_id: str, history: list[Any], delay_s: float, *, depth: int) -> Subagent:
        """A session as an agent that begins with ``history``."""
        if depth > _MAX_DEPTH:
            raise BadRecord("sessions that start each other too deep")
        turns = get_list(self._session_by_id[session_id], "turns")
        if not turns:
            raise BadRecord("a session without turns")
        builder = ConversationBuilder(domain_of=domain_of, log=self._log)
        for message in history:
            _add(builder, message)
        seen = list(history)
        for turn in turns:
            for message in get_list(turn, "messages"):
                _add(builder, message)
                seen.append(message)
            ours = get_object(get_object(turn, "extra_body"), "replayrig")
            reply = get(ours, "reply")
            num_output_tokens = get_count(ours, "num_output_tokens")
            if reply is None and num_output_tokens is None:
                num_output_tokens = get_count(turn, "max_tokens")
                self._log.note(
                    "answers that are not in the file: taken to be max_tokens long", int(bool(num_output_tokens))
                )
            delay_ms = get_number(turn, "delay") or 0.0
            builder.add_reply(
                reply,
                Measured(
                    num_output_tokens=num_output_tokens,
                    delay_s=max(delay_ms / 1000, 0.0) if turn is not turns[0] else None,
                ),
            )
            spawns = [one for child, mode in _children(turn) for one in self._child(child, mode, seen, depth)]
            if spawns:
                builder.add_spawns(spawns)
        conversation = builder.conversation()
        return Subagent(
            agent_id=session_id,
            user_prompt=conversation.user_prompt,
            system_prompt=conversation.system_prompt,
            tools=schemas_of(get_list(turns[0], "tools"), domain_of=domain_of),
            turns=conversation.turns,
            delay_s=delay_s,
        )

    def _child(self, session_id: str, mode: str, seen: list[Any], depth: int) -> list[Subagent]:
        session = self._session_by_id.get(session_id)
        if session is None:
            self._log.note("sessions that are started but not in the file: left out")
            return []
        if mode == "fork":
            self._log.note("forks: what they inherit is said to them anew")
        if mode == "late":
            self._log.note("sessions that are joined later than at the next turn: joined there")
        turns = get_list(session, "turns")
        delay_s = (get_number(turns[0], "delay") or 0.0) / 1000 if turns else 0.0
        return [self._agent(session_id, seen if mode == "fork" else [], max(delay_s, 0.0), depth=depth + 1)]


def _children(turn: Any) -> list[tuple[str, str]]:
    """(session id, ``spawn`` | ``late`` | ``fork``) of what a turn starts."""
    children = [(child, "fork") for child in get_list(turn, "forks") if isinstance(child, str)]
    for spawn in get_list(turn, "spawns"):
        if isinstance(spawn, str):
            children.append((spawn, "spawn"))
        else:
            mode = "spawn" if get(spawn, "join_at") is None else "late"
            children += [(child, mode) for child in get_list(spawn, "children") if isinstance(child, str)]
    return children


def _add(builder: ConversationBuilder, message: Any) -> None:
    """A message that a turn adds; an answer that was written into the file is context, not a call."""
    if get(message, "role") == "assistant":
        builder.add_user(text_of(get(message, "content")))
    else:
        builder.add(message)
