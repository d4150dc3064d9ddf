"""OpenTelemetry GenAI spans, OTLP or flat: one trace is one task.

A call belongs to the agent whose span it lies in; without such spans, to the service or graph node that sent it. The
agent of the first call is the task's; what others did between two of its calls is a fan-out that the first of the two
started and the second waited for. An agent's own calls that overlap are a fan-out too, and of agents in no span of
their own one that began when all before it had ended is taken to have waited for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from traces.domains import domain_of
from traces.importers.chat import Conversation, schemas_of, text_of
from traces.importers.clock_times import AgentTimes, between
from traces.importers.fields import get, get_list
from traces.importers.log import BadRecord, ImportLog
from traces.importers.otel_agents import MAX_DEPTH, Agent, AgentTree, begin_of, end_of
from traces.importers.otel_spans import Span, input_messages, output_message, spans_in
from traces.importers.requests import Request, Result, read_requests
from traces.importers.sources import Source, parse_json
from traces.trajectory import Subagent, ToolSchema, Trajectory

NAME = "otel"
_CALL_IDS = ("gen_ai.tool.call.id", "tool_call.id")
_SESSIONS = ("gen_ai.conversation.id", "session.id", "exgentic.session.id")


def recognises(value: Any) -> bool:
    """Whether ``value`` holds spans."""
    if isinstance(value, list):
        return bool(value) and recognises(value[0])
    if not isinstance(value, dict):
        return False
    if "resourceSpans" in value or "resource_spans" in value:
        return True
    spans = value.get("spans")
    if isinstance(spans, list) and spans and isinstance(spans[0], dict):
        value = spans[0]
    return bool({"span_id", "spanId"} & value.keys()) and bool({"trace_id", "traceId"} & value.keys())


def read(source: Source, log: ImportLog) -> Iterator[Trajectory]:
    """The traces of ``source``; what cannot be used goes to ``log``."""
    by_trace: dict[str, list[Span]] = {}
    where_by_trace: dict[str, str] = {}
    for where, value in source.values(log.skip):
        try:
            for span in spans_in(value):
                by_trace.setdefault(span.trace_id, []).append(span)
                where_by_trace.setdefault(span.trace_id, where)
        except BadRecord as error:
            log.skip(where, str(error))
    for trace_id, spans in by_trace.items():
        try:
            yield from _Trace(trace_id, spans, log).trajectories()
        except BadRecord as error:
            log.skip(where_by_trace[trace_id], str(error))


class _Trace:
    """The spans of one trace."""

    def __init__(self, trace_id: str, spans: list[Span], log: ImportLog) -> None:
        self._trace_id = trace_id
        self._log = log
        self._tree = AgentTree(spans, log)
        tools = [one for one in spans if one.kind == "tool"]
        self._latency_by_call_id = {
            one.text(*_CALL_IDS): latency_s
            for one in tools
            if (latency_s := between(one.started, one.ended)) is not None
        }
        self._result_by_call_id = {
            one.text(*_CALL_IDS): text_of(one.attributes["gen_ai.tool.call.result"])
            for one in tools
            if "gen_ai.tool.call.result" in one.attributes
        }

    def trajectories(self) -> Iterator[Trajectory]:
        """The task; a call that nobody started and that overlaps the first one is a task of its own."""
        strays = self._tree.pop_strays()
        self._log.note("calls that began with the trace, beside its first: tasks of their own", len(strays))
        for number, agent in enumerate([self._tree.top, *strays]):
            conversation, tools = self._read(agent, self._tree.begin)
            first = agent.calls[0]
            task_id = first.text(*_SESSIONS) or self._trace_id or "trace"
            yield Trajectory(
                task_id=task_id if number == 0 else f"{task_id}/{agent.name}",
                system_prompt=conversation.system_prompt,
                user_prompt=conversation.user_prompt,
                tools=tools,
                turns=conversation.turns,
                source=NAME,
                model=first.text("gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "model"),
                started_at=between(self._tree.begin, agent.started) if strays else None,
            )

    def _read(self, agent: Agent, begin: float, depth: int = 0) -> tuple[Conversation, tuple[ToolSchema, ...]]:
        if depth > MAX_DEPTH:
            raise BadRecord("agents that start each other too deep")
        tools = _tools_of(agent.calls[0])
        times = AgentTimes(begin)
        requests = []
        children = sorted(agent.children, key=lambda child: child.started)
        for index, call in enumerate(agent.calls):
            num_output_tokens = call.number(
                "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"
            )
            measured = times.call(call.started, call.ended, num_output_tokens=num_output_tokens)
            until = begin_of(agent.calls[index + 1]) if index + 1 < len(agent.calls) else float("inf")
            started = [child for child in children if child.calls and child.started < until]
            children = [child for child in children if child not in started]
            times.waited_for(max((child.ended for child in started if child.ended <= until), default=None))
            requests.append(
                Request(
                    messages=input_messages(call),
                    reply=(reply := output_message(call)),
                    results=self._results(reply),
                    measured=measured,
                    latency_by_call_id=self._latency_by_call_id,
                    spawns=[self._subagent(child, call, depth, is_background=child.ended > until) for child in started],
                )
            )
        conversation = read_requests(requests, tools=tools, domain_of=domain_of, log=self._log)
        return conversation, tools

    def _results(self, reply: Any) -> list[Result]:
        """What the spans of tools say that the calls in ``reply`` returned."""
        calls = get_list(reply, "tool_calls") if reply is not None else []
        ids = [call_id for call in calls if isinstance(call_id := get(call, "id"), str)]
        return [
            Result(call_id=one, text=self._result_by_call_id[one], latency_s=self._latency_by_call_id.get(one))
            for one in ids
            if one in self._result_by_call_id
        ]

    def _subagent(self, agent: Agent, spawned_by: Span, depth: int, *, is_background: bool) -> Subagent:
        conversation, tools = self._read(agent, agent.started, depth + 1)
        span = self._tree.span_by_id.get(agent.name)
        is_agent = span is not None and span.kind == "agent"
        name = (span.text("gen_ai.agent.name") or span.name) if span is not None and is_agent else agent.name
        return Subagent(
            agent_id=name or agent.name,
            user_prompt=conversation.user_prompt,
            system_prompt=conversation.system_prompt,
            tools=tools,
            turns=conversation.turns,
            delay_s=between(end_of(spawned_by), agent.started) or 0.0,
            is_background=is_background,
        )


def _tools_of(call: Span) -> tuple[ToolSchema, ...]:
    value = call.attributes.get("gen_ai.tool.definitions")
    if isinstance(value, str):
        try:
            value = parse_json(value)
        except ValueError:
            return ()
    return schemas_of(value, domain_of=domain_of) if isinstance(value, list) else ()
