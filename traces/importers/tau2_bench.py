"""tau2-bench results: ``{info, tasks, simulations: [{id, task_id, trial, messages}]}``, or one simulation by itself.

Arguments of a tool call are an object. Messages have timestamps, and those of models ``usage`` and
``generation_time_seconds``. The agent's greeting comes before any model call; tools that the simulated user calls are
not the agent's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from traces.importers.chat import ConversationBuilder, Measured, text_of
from traces.importers.fields import get, get_count, get_label, get_list, get_number, get_object, get_text, get_time
from traces.importers.log import BadRecord, ImportLog
from traces.importers.sources import Source
from traces.trajectory import Trajectory

NAME = "tau2-bench"
_GREETING = "greetings that no model wrote: left out"


def recognises(value: Any) -> bool:
    """Whether ``value`` is a file of results, or one simulation."""
    if not isinstance(value, dict):
        return False
    return {"simulations", "tasks", "info"} <= value.keys() or {"termination_reason", "task_id", "mode"} <= value.keys()


def read(source: Source, log: ImportLog) -> Iterator[Trajectory]:
    """The simulations of ``source``; what cannot be used goes to ``log``."""
    for where, value in source.values(log.skip):
        try:
            results = value if isinstance(value, dict) and "simulations" in value else {"simulations": [value]}
            for simulation in get_list(results, "simulations"):
                try:
                    yield _read_simulation(simulation, get_object(results, "info"), log)
                except BadRecord as error:
                    log.skip(where, str(error))
        except BadRecord as error:
            log.skip(where, str(error))


def _read_simulation(simulation: Any, info: Any, log: ImportLog) -> Trajectory:
    if get(simulation, "mode") == "full_duplex" and not get(simulation, "messages"):
        raise BadRecord("a full-duplex voice simulation: audio ticks, no model calls in it")
    environment = get_object(info, "environment_info")
    domain = get_text(environment, "domain_name") or "environment"
    builder = ConversationBuilder(domain_of=lambda name: domain, log=log)
    builder.add_system(get_text(simulation, "policy") or get_text(environment, "policy"))
    reader = _Reader(builder, log)
    for message in get_list(simulation, "messages"):
        reader.add(message)
    conversation = builder.conversation()
    log.note("simulations without tool schemas: their prompts are shorter than the run's were")
    return Trajectory(
        task_id=f"{domain}-{get_label(simulation, 'task_id')}-{get_label(simulation, 'trial') or 0}",
        system_prompt=conversation.system_prompt,
        user_prompt=conversation.user_prompt,
        turns=conversation.turns,
        source=NAME,
        model=get_text(get_object(info, "agent_info"), "llm"),
        metadata={"ended": get_text(simulation, "termination_reason")},
    )


class _Reader:
    """Puts a simulation's messages into a conversation, with the times between them."""

    def __init__(self, builder: ConversationBuilder, log: ImportLog) -> None:
        self._builder = builder
        self._log = log
        self._first_at: float | None = None
        self._last_at: float | None = None  # of the message before
        self._answered_at: float | None = None  # of the agent's last answer
        self._has_user = False

    def add(self, message: Any) -> None:
        at = get_time(message, "timestamp")
        role = get_text(message, "role")
        if self._first_at is None:
            self._first_at = at
        if role == "assistant":
            self._add_answer(message, at)
        elif role == "tool":
            self._add_results(message, at)
        elif role == "user" and not get_list(message, "tool_calls"):
            self._has_user = True
            self._builder.add_user(text_of(get(message, "content")))
        elif role != "user":
            raise BadRecord("a message has no known role")
        self._last_at = at

    def _add_answer(self, message: Any, at: float | None) -> None:
        usage = get_object(message, "usage")
        if not self._has_user and not usage:
            self._log.note(_GREETING)
            return
        duration_s = get_number(message, "generation_time_seconds")
        if duration_s is None and at is not None and self._last_at is not None:
            duration_s = max(at - self._last_at, 0.0)
        started_at = None if at is None else at - (duration_s or 0.0)
        measured = Measured(
            num_output_tokens=get_count(usage, "completion_tokens"),
            started_at=_difference(started_at, self._first_at),
            duration_s=duration_s,
            delay_s=_difference(started_at, self._answered_at),
        )
        self._builder.add_reply(message, measured)
        self._answered_at = at

    def _add_results(self, message: Any, at: float | None) -> None:
        for result in get_list(message, "tool_messages") or [message]:
            if get(result, "requestor") == "user":
                continue
            call_id = get(result, "id")
            self._builder.add_result(
                text_of(get(result, "content")),
                call_id=call_id if isinstance(call_id, str) else None,
                latency_s=_difference(at, self._last_at),
                is_error=bool(get(result, "error")),
            )


def _difference(later: float | None, earlier: float | None) -> float | None:
    return None if later is None or earlier is None else round(max(later - earlier, 0.0), 6)
