"""OpenTelemetry GenAI spans as OTLP JSON, a task (one trace) a line, as the collector's file exporter writes them.

Holds everything but the recording's own gaps: what has no time gets a plausible one (see ``timeline``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from traces.exporters.chat import Agent, Message, opening_messages, reply_message, require_text, result_message
from traces.exporters.timeline import Timed, TimedCall, timeline
from traces.importers.log import ImportLog
from traces.prompt_size import num_output_tokens
from traces.trajectory import ToolCall, Trajectory

NAME = "otel"
_EPOCH_NS = 1_767_225_600_000_000_000  # 2026-01-01: recordings have times from their start only


def exporter(log: ImportLog) -> Callable[[Trajectory], Iterator[bytes]]:
    """A function from a trajectory to its line."""

    def export(trajectory: Trajectory) -> Iterator[bytes]:
        require_text(trajectory, NAME)
        spans = list(_Spans(trajectory).agent(timeline(trajectory, log), trajectory.task_id, None))
        resource = {"attributes": _attributes({"service.name": trajectory.source or "replayrig"})}
        scope = {"scope": {"name": "replayrig"}, "spans": spans}
        yield orjson.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]})

    return export


class _Spans:
    """The spans of one task."""

    def __init__(self, task: Trajectory) -> None:
        self._task = task
        self._trace_id = hashlib.blake2b(task.task_id.encode(), digest_size=16).hexdigest()
        self._num_spans = 0

    def agent(self, timed: Timed, name: str, parent_id: str | None) -> Iterator[dict[str, Any]]:
        """An agent's span with all that happened in it."""
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": name,
            "gen_ai.conversation.id": self._task.task_id,
        }
        span = self._span(f"invoke_agent {name}", parent_id, (timed.started, _last_end(timed)), attributes)
        yield span
        agent_id = span["spanId"]
        history = opening_messages(timed.agent)
        for call in timed.calls:
            turn = call.turn
            if turn.user_message is not None:
                history.append({"role": "user", "content": turn.user_message})
            yield self._call(call, history, timed.agent, agent_id)
            history.append(reply_message(turn))
            for tool in turn.tool_calls:
                yield self._tool(tool, call.ended, agent_id)
                history.append(result_message(tool))
            for child in call.spawns:
                yield from self.agent(child, child.agent_id, agent_id)

    def _call(self, call: TimedCall, history: list[Message], agent: Agent, parent_id: str) -> dict[str, Any]:
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.conversation.id": self._task.task_id,
            "gen_ai.input.messages": _json([_parts(message) for message in history]),
            "gen_ai.output.messages": _json([_parts(reply_message(call.turn))]),
            "gen_ai.usage.output_tokens": num_output_tokens(call.turn),
        }
        if self._task.model:
            attributes["gen_ai.request.model"] = self._task.model
        if agent.tools:
            attributes["gen_ai.tool.definitions"] = f"[{','.join(tool.text for tool in agent.tools)}]"
        return self._span("chat", parent_id, (call.started, call.ended), attributes)

    def _tool(self, tool: ToolCall, started: float, parent_id: str) -> dict[str, Any]:
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool.name,
            "gen_ai.tool.call.id": tool.call_id,
            "gen_ai.tool.call.result": tool.result,
        }
        ended = started + (tool.latency_s or 0.0)
        return self._span(f"execute_tool {tool.name}", parent_id, (started, ended), attributes)

    def _span(
        self, name: str, parent_id: str | None, times: tuple[float, float], attributes: dict[str, Any]
    ) -> dict[str, Any]:
        self._num_spans += 1
        begin = self._task.started_at or 0.0
        return {
            "traceId": self._trace_id,
            "spanId": f"{self._num_spans:016x}",
            "parentSpanId": parent_id or "",
            "name": name,
            "kind": 1,
            "startTimeUnixNano": str(_EPOCH_NS + round((begin + times[0]) * 1e9)),
            "endTimeUnixNano": str(_EPOCH_NS + round((begin + times[1]) * 1e9)),
            "attributes": _attributes(attributes),
        }


def _last_end(timed: Timed) -> float:
    ends = [timed.ended] + [_last_end(child) for call in timed.calls for child in call.spawns]
    return max(ends)


def _parts(message: Message) -> dict[str, Any]:
    """A message in the form of the GenAI conventions."""
    if message["role"] == "tool":
        part = {"type": "tool_call_response", "id": message["tool_call_id"], "response": message["content"]}
        return {"role": "tool", "parts": [part]}
    parts: list[dict[str, Any]] = [{"type": "text", "content": message["content"]}] if message["content"] else []
    for call in message.get("tool_calls", ()):
        function = call["function"]
        parts.append(
            {"type": "tool_call", "id": call["id"], "name": function["name"], "arguments": function["arguments"]}
        )
    return {"role": message["role"], "parts": parts}


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in values.items()
    ]
