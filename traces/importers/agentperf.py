"""AgentPerf replay traces: one model turn a line, with its whole prompt, its token counts and its tools' times.

``{task_id, conversation_id, conversation_idx, messages, tools, target_output_tokens, recorded_completion_tokens,
recorded_model_duration_ms, simulated_tool_delay_ms_after, recorded_tool_calls_after: [{tool_call_id, duration_ms}]}``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from traces.domains import domain_of
from traces.importers.chat import Measured, schemas_of, text_of, to_json
from traces.importers.fields import get, get_count, get_list, get_number, get_object, get_text
from traces.importers.groups import read_groups
from traces.importers.log import ImportLog
from traces.importers.requests import Request, Result, read_requests
from traces.importers.sources import Source
from traces.trajectory import Trajectory

NAME = "agentperf"


def recognises(value: Any) -> bool:
    """Whether ``value`` is a turn of this format."""
    return isinstance(value, dict) and {"turn_id", "conversation_id", "messages"} <= value.keys()


def read(source: Source, log: ImportLog) -> Iterator[Trajectory]:
    """The conversations of ``source``; what cannot be used goes to ``log``."""
    yield from read_groups(source, log, key=lambda turn: get_text(turn, "conversation_id"), read=_read_conversation)


def _read_conversation(conversation_id: str, turns: list[Any], log: ImportLog) -> Trajectory:
    tools = schemas_of(get_list(turns[0], "tools"), domain_of=domain_of)
    conversation = read_requests(_requests(turns), tools=tools, domain_of=domain_of, log=log)
    return Trajectory(
        task_id=get_text(turns[0], "task_id") or conversation_id,
        system_prompt=conversation.system_prompt,
        user_prompt=conversation.user_prompt,
        tools=tools,
        turns=conversation.turns,
        source=NAME,
    )


def _requests(turns: list[Any]) -> list[Request]:
    requests = [_request(None, turns[0])] + [_request(before, turn) for before, turn in pairwise(turns)]
    requests[-1] = replace(requests[-1], reply=_last_reply(turns[-1]), results=_last_results(turns[-1]))
    return requests


def _last_results(turn: Any) -> list[Result]:
    results = []
    for call in get_list(turn, "recorded_tool_calls_after"):
        output = get(call, "output")
        duration_ms = get_number(call, "duration_ms")
        latency_s = None if duration_ms is None else max(duration_ms / 1000, 0.0)
        if output is not None:
            call_id = get_text(call, "tool_call_id")
            results.append(Result(call_id=call_id, text=text_of(output), latency_s=latency_s))
    return results


def _last_reply(turn: Any) -> Any:
    """No later prompt has the last answer's text; which tools it called is known."""
    calls = []
    for call in get_list(turn, "recorded_tool_calls_after"):
        action = {key: value for key, value in get_object(call, "action").items() if key != "tool_call_id"}
        function = {"name": get_text(call, "tool_name"), "arguments": to_json(action)}
        calls.append({"id": get(call, "tool_call_id"), "function": function})
    return {"role": "assistant", "tool_calls": calls} if calls else None


def _request(before: Any, turn: Any) -> Request:
    """One request; how long its new tool results took stands with the turn ``before``."""
    latencies = {}
    delay_ms = None
    if before is not None:
        delay_ms = get_number(before, "simulated_tool_delay_ms_after")
        for call in get_list(before, "recorded_tool_calls_after"):
            duration_ms = get_number(call, "duration_ms")
            if duration_ms is not None and isinstance(get(call, "tool_call_id"), str):
                latencies[call["tool_call_id"]] = max(duration_ms / 1000, 0.0)
    num_output_tokens = get_count(turn, "recorded_completion_tokens")
    duration_ms = get_number(turn, "recorded_model_duration_ms")
    return Request(
        messages=get_list(turn, "messages"),
        measured=Measured(
            num_output_tokens=get_count(turn, "target_output_tokens")
            if num_output_tokens is None
            else num_output_tokens,
            duration_s=None if duration_ms is None else max(duration_ms / 1000, 0.0),
            delay_s=None if delay_ms is None else max(delay_ms / 1000, 0.0),
        ),
        latency_by_call_id=latencies,
    )
