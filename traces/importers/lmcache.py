"""LMCache agent traces: one call a line, ``{timestamp (us), input (flat text), output, session_id}``.

Lines of a session are not in the order of time. Roles stand in the text, if anywhere, so prompts are taken whole:
what two of them share is what their texts share.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from traces.domains import domain_of
from traces.importers.chat import Measured
from traces.importers.fields import get, get_text, get_time
from traces.importers.groups import read_groups
from traces.importers.log import BadRecord, ImportLog
from traces.importers.requests import Request, read_requests
from traces.importers.sources import Source
from traces.trajectory import Trajectory

NAME = "lmcache"


def recognises(value: Any) -> bool:
    """Whether ``value`` is a call of this format."""
    return isinstance(value, dict) and {"timestamp", "input", "output", "session_id"} <= value.keys()


def read(source: Source, log: ImportLog) -> Iterator[Trajectory]:
    """The sessions of ``source``; what cannot be used goes to ``log``."""
    yield from read_groups(source, log, key=lambda call: get_text(call, "session_id"), read=_read_session)


def _read_session(session_id: str, calls: list[Any], log: ImportLog) -> Trajectory:
    times = [get_time(call, "timestamp") or 0.0 for call in calls]
    order = sorted(range(len(calls)), key=lambda index: times[index])
    begin = times[order[0]]
    requests = []
    if any(get(call, "input") is None for call in calls):
        raise BadRecord("a call without 'input'")
    for index in order:
        text = get_text(calls[index], "output")
        requests.append(
            Request(
                messages=[{"role": "user", "content": get_text(calls[index], "input")}],
                reply={"role": "assistant", "content": text},
                measured=Measured(started_at=round(times[index] - begin, 6)),
            )
        )
    conversation = read_requests(requests, tools=(), domain_of=domain_of, log=log)
    return Trajectory(task_id=session_id, user_prompt=conversation.user_prompt, turns=conversation.turns, source=NAME)
