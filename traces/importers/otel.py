"""OpenTelemetry GenAI spans, OTLP or flat: one trace is one task.

A call belongs to the agent whose span it lies in; without such spans, to the service or graph node that sent it. The
agent of the first call is the task's; what others did between two of its calls is a fan-out that the first of the two
started and the second waited for. An agent's own calls that overlap are a fan-out too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from traces.domains import domain_of
from traces.importers.chat import Conversation, schemas_of, text_of
from traces.importers.clock_times import AgentTimes, between
from traces.importers.fields import get, get_list
from traces.importers.log import BadRecord, ImportLog
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


@dataclass(eq=False, slots=True)
class _Agent:
    """An agent of a trace: its calls in the order of time, and the agents that it started."""

    name: str
    calls: list[Span] = field(default_factory=list)
    children: list[_Agent] = field(default_factory=list)

    @property
    def started(self) -> float:
        return min((_begin(one) for one in [*self.calls]), default=float("inf"))

    @property
    def ended(self) -> float:
        ends = [_end(call) for call in self.calls] + [child.ended for child in self.children]
        return max(ends, default=float("-inf"))


class _Trace:
    """The spans of one trace."""

    def __init__(self, trace_id: str, spans: list[Span], log: ImportLog) -> None:
        self._trace_id = trace_id
        self._span_by_id = {span.span_id: span for span in spans}
        self._log = log
        parents = {span.parent_id for span in spans}
        calls = self._innermost([span for span in spans if span.kind == "call"])
        if not calls:  # exports that keep only a graph's nodes: a node without children was one call
            calls = [
                one for one in spans if one.kind == "chain" and one.span_id not in parents and one.text("output_text")
            ]
            log.note("graph nodes taken as one model call each", len(calls))
        if not calls:
            raise BadRecord("no spans of model calls in it")
        self._calls = sorted(calls, key=_begin)
        self._begin = _begin(self._calls[0])
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

    def _innermost(self, calls: list[Span]) -> list[Span]:
        """Two instrumentations of one call give a span in a span: the inner one counts, if it has the prompt."""
        doubled: set[str] = set()
        call_ids = {call.span_id for call in calls}
        for call in calls:
            above = self._span_by_id.get(call.parent_id)
            for _ in range(64):
                if above is None or above.kind == "agent":
                    break
                if above.span_id in call_ids and _end(call) <= _end(above):
                    doubled.add(above.span_id if input_messages(call) else call.span_id)
                    break
                above = self._span_by_id.get(above.parent_id)
        return [call for call in calls if call.span_id not in doubled]

    def trajectories(self) -> Iterator[Trajectory]:
        """The task; a call that nobody started and that overlaps the first one is a task of its own."""
        main = self._agents()
        strays = [child for child in main.children if child.started < _end(main.calls[0])]
        main.children = [child for child in main.children if child not in strays]
        self._log.note("calls that began with the trace, beside its first: tasks of their own", len(strays))
        for number, agent in enumerate([main, *strays]):
            conversation, tools = self._read(agent, self._begin)
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
                started_at=between(self._begin, agent.started) if strays else None,
            )

    def _agents(self) -> _Agent:
        """The task's agent, with the others below it."""
        agent_by_name: dict[str, _Agent] = {}
        for call in self._calls:
            name = self._agent_of(call)
            agent_by_name.setdefault(name, _Agent(name)).calls.append(call)
        main, *others = sorted(agent_by_name.values(), key=lambda agent: agent.started)
        by_name = {agent.name: agent for agent in (main, *others)}
        for agent in others:
            parent = by_name.get(self._agent_above(agent.calls[0], agent.name), main)
            parent = main if parent is agent or parent.started > agent.started else parent
            parent.children += self._episodes(agent, parent)
        for agent in (main, *others):
            self._split_overlaps(agent)
        return main

    def _episodes(self, agent: _Agent, parent: _Agent) -> list[_Agent]:
        """``agent`` cut where its parent's calls lie between its own: each piece was started anew."""
        pieces: list[_Agent] = []
        last_started = None
        for call in agent.calls:
            started_by = sum(_begin(one) <= _begin(call) for one in parent.calls)
            if started_by != last_started:
                pieces.append(_Agent(agent.name if not pieces else f"{agent.name}-{len(pieces) + 1}"))
            last_started = started_by
            pieces[-1].calls.append(call)
        pieces[0].children = agent.children
        if len(pieces) == 1:
            agent.name = pieces[0].name
            return [agent]
        return pieces

    def _split_overlaps(self, agent: _Agent) -> None:
        """Of calls that overlap, none is the agent's next one: each becomes an agent of one call."""
        own: list[Span] = []
        for call in agent.calls:
            if own and _begin(call) < _end(own[-1]):
                if len(own) > 1:  # the one it overlaps is part of the fan-out as well
                    previous = own.pop()
                    agent.children.append(_Agent(previous.span_id or previous.name, [previous]))
                agent.children.append(_Agent(call.span_id or call.name, [call]))
            elif own and any(_begin(call) < child.ended for child in agent.children if child.calls[0] in agent.calls):
                agent.children.append(_Agent(call.span_id or call.name, [call]))
            else:
                own.append(call)
        agent.calls = own

    def _agent_of(self, call: Span) -> str:
        above = self._agent_span_above(call)
        if above is not None:
            return above.span_id
        if call.text("agent_or_node_id"):
            return "graph"  # its nodes hand one state on: together they are one agent
        return call.text("gen_ai.agent.name") or call.service or "agent"

    def _agent_above(self, call: Span, name: str) -> str:
        """The agent that ``name``'s span lies in; nothing where there is none."""
        own = self._span_by_id.get(name)
        above = self._agent_span_above(own) if own is not None else None
        return above.span_id if above is not None else ""

    def _agent_span_above(self, span: Span) -> Span | None:
        seen: set[str] = set()
        above = self._span_by_id.get(span.parent_id)
        while above is not None and above.span_id not in seen:
            if above.kind == "agent":
                return above
            seen.add(above.span_id)
            above = self._span_by_id.get(above.parent_id)
        return None

    def _read(self, agent: _Agent, begin: float) -> tuple[Conversation, tuple[ToolSchema, ...]]:
        tools = _tools_of(agent.calls[0])
        times = AgentTimes(begin)
        requests = []
        children = sorted(agent.children, key=lambda child: child.started)
        for index, call in enumerate(agent.calls):
            num_output_tokens = call.number(
                "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"
            )
            measured = times.call(call.started, call.ended, num_output_tokens=num_output_tokens)
            until = _begin(agent.calls[index + 1]) if index + 1 < len(agent.calls) else float("inf")
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
                    spawns=[self._subagent(child, call, is_background=child.ended > until) for child in started],
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

    def _subagent(self, agent: _Agent, spawned_by: Span, *, is_background: bool) -> Subagent:
        conversation, tools = self._read(agent, agent.started)
        span = self._span_by_id.get(agent.name)
        is_agent = span is not None and span.kind == "agent"
        name = (span.text("gen_ai.agent.name") or span.name) if span is not None and is_agent else agent.name
        return Subagent(
            agent_id=name or agent.name,
            user_prompt=conversation.user_prompt,
            system_prompt=conversation.system_prompt,
            tools=tools,
            turns=conversation.turns,
            delay_s=between(_end(spawned_by), agent.started) or 0.0,
            is_background=is_background,
        )


def _begin(span: Span) -> float:
    return span.started if span.started is not None else 0.0


def _end(span: Span) -> float:
    return span.ended if span.ended is not None else _begin(span)


def _tools_of(call: Span) -> tuple[ToolSchema, ...]:
    value = call.attributes.get("gen_ai.tool.definitions")
    if isinstance(value, str):
        try:
            value = parse_json(value)
        except ValueError:
            return ()
    return schemas_of(value, domain_of=domain_of) if isinstance(value, list) else ()
