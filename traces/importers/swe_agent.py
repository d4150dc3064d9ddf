"""SWE-agent trajectories (``.traj``): ``{trajectory: [{action, observation, execution_time, query?}], history, info}``.

``query``, where a step has it, is the exact prompt. Else the history is replayed whole: history processors, which cut
old observations out of real prompts, are not. Also the form ``{instance_id, trajectory: [{role, text}]}`` of the
published datasets, whose assistant is called ``ai``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from traces.domains import domain_of
from traces.importers.chat import Conversation, ConversationBuilder, Measured, text_of
from traces.importers.fields import get, get_list, get_number, get_object, get_text
from traces.importers.groups import read_each
from traces.importers.log import BadRecord, ImportLog
from traces.importers.requests import Request, read_requests
from traces.importers.sources import Source
from traces.trajectory import Trajectory

NAME = "swe-agent"
_ROLES = {"ai": "assistant", "human": "user"}


def recognises(value: Any) -> bool:
    """Whether ``value`` is a trajectory of this format."""
    if not isinstance(value, dict):
        return False
    history = value.get("history")
    is_run = isinstance(history, list) and bool(history) and isinstance(history[0], dict) and "agent" in history[0]
    steps = value.get("trajectory")
    is_row = (
        isinstance(steps, list) and bool(steps) and isinstance(steps[0], dict) and {"role", "text"} <= steps[0].keys()
    )
    return is_run or is_row or ("trajectory" in value and "environment" in value)


def read(source: Source, log: ImportLog) -> Iterator[Trajectory]:
    """The trajectories of ``source``; what cannot be used goes to ``log``."""
    yield from read_each(source, log, _read_trajectory)


def _read_trajectory(record: Any, log: ImportLog) -> Trajectory:
    steps = get_list(record, "trajectory")
    history = get_list(record, "history")
    if not history and steps and get(steps[0], "role") is not None:
        history, steps = [_message_of_row(row) for row in steps], []
    config = get_object(record, "replay_config")
    if steps and all(get_list(step, "query") for step in steps):
        conversation = read_requests(_requests(steps), tools=(), domain_of=domain_of, log=log)
    else:
        conversation = _read_history(history, steps, log)
        if get_list(get_object(config, "agent"), "history_processors"):
            log.note("runs with history processors: their prompts are longer here than in the run")
    info = get_object(record, "info")
    return Trajectory(
        task_id=get_text(record, "instance_id") or get_text(get_object(config, "problem_statement"), "id") or "task",
        system_prompt=conversation.system_prompt,
        user_prompt=conversation.user_prompt,
        turns=conversation.turns,
        source=NAME,
        model=get_text(record, "model_name") or get_text(get_object(get_object(config, "agent"), "model"), "name"),
        metadata={"exit_status": get_text(info, "exit_status") or get_text(record, "exit_status")},
    )


def _read_history(history: list[Any], steps: list[Any], log: ImportLog) -> Conversation:
    """A conversation from the history; the n-th step has the time of the n-th answer's action."""
    latencies = [get_number(step, "execution_time") for step in steps]
    builder = ConversationBuilder(domain_of=domain_of, log=log)
    for message in history:
        role = get_text(message, "role")
        index = builder.num_turns - 1
        latency_s = latencies[index] if 0 <= index < len(latencies) else None
        if role == "assistant":
            builder.add_reply(message, Measured(delay_s=None if latency_s is None else max(latency_s, 0.0)))
        elif role == "tool":
            ids = get_list(message, "tool_call_ids") or [get(message, "tool_call_id")]
            call_id = ids[0] if isinstance(ids[0], str) else None
            builder.add_result(text_of(get(message, "content")), call_id=call_id, latency_s=latency_s)
        else:
            builder.add(message)
    for step in steps[builder.num_turns :]:  # the step that submits is not in the history
        builder.add_reply({"content": get_text(step, "response") or get_text(step, "thought")})
    return builder.conversation()


def _requests(steps: list[Any]) -> list[Request]:
    return [
        Request(
            messages=get_list(step, "query"),
            reply={
                "role": "assistant",
                "content": get_text(step, "response"),
                "tool_calls": get_list(step, "tool_calls"),
            },
        )
        for step in steps
    ]


def _message_of_row(row: Any) -> dict[str, Any]:
    role = get_text(row, "role")
    text = get_text(row, "text") or get_text(row, "system_prompt")
    if not role:
        raise BadRecord("a message has no known role")
    return {"role": _ROLES.get(role, role), "content": text}
