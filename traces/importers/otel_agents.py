"""The agents of a trace, from its spans: who made which call, who started whom."""

from __future__ import annotations

from dataclasses import dataclass, field

from traces.importers.log import BadRecord, ImportLog
from traces.importers.otel_spans import Span, input_messages

MAX_DEPTH = 24
"""Agents that start each other deeper than this are no recording of agents."""


@dataclass(eq=False, slots=True)
class Agent:
    """An agent of a trace: its calls in the order of time, and the agents that it started."""

    name: str
    calls: list[Span] = field(default_factory=list)
    children: list[Agent] = field(default_factory=list)
    is_placed: bool = False
    """The spans say which agent started it."""

    @property
    def started(self) -> float:
        """When its first call began."""
        return min(map(begin_of, self.calls), default=float("inf"))

    @property
    def ended(self) -> float:
        """When the last of its calls and its children's ended."""
        ends = [end_of(call) for call in self.calls] + [child.ended for child in self.children]
        return max(ends, default=float("-inf"))


def begin_of(span: Span) -> float:
    """When ``span`` began."""
    return span.started if span.started is not None else 0.0


def end_of(span: Span) -> float:
    """When ``span`` ended."""
    return span.ended if span.ended is not None else begin_of(span)


class AgentTree:
    """The agents of one trace, the task's on top."""

    def __init__(self, spans: list[Span], log: ImportLog) -> None:
        self.span_by_id = {span.span_id: span for span in spans}
        self._log = log
        self._calls = sorted(self._calls_of(spans), key=begin_of)
        self.begin = begin_of(self._calls[0])
        self.top = self._build()

    def pop_strays(self) -> list[Agent]:
        """Agents that nobody can have started: they were there before the first call had an answer."""
        first_answer = end_of(self.top.calls[0])
        strays = [child for child in self.top.children if child.started < first_answer]
        self.top.children = [child for child in self.top.children if child not in strays]
        return strays

    def _calls_of(self, spans: list[Span]) -> list[Span]:
        calls = self._innermost([span for span in spans if span.kind == "call"])
        if not calls:  # exports that keep only a graph's nodes: a node without children was one call
            parents = {span.parent_id for span in spans}
            calls = [
                one for one in spans if one.kind == "chain" and one.span_id not in parents and one.text("output_text")
            ]
            self._log.note("graph nodes taken as one model call each", len(calls))
        if not calls:
            raise BadRecord("no spans of model calls in it")
        return calls

    def _innermost(self, calls: list[Span]) -> list[Span]:
        """Two instrumentations of one call give a span in a span: the inner one counts, if it has the prompt."""
        doubled: set[str] = set()
        call_ids = {call.span_id for call in calls}
        for call in calls:
            above = self.span_by_id.get(call.parent_id)
            for _ in range(64):
                if above is None or above.kind == "agent":
                    break
                if above.span_id in call_ids and end_of(call) <= end_of(above):
                    doubled.add(above.span_id if input_messages(call) else call.span_id)
                    break
                above = self.span_by_id.get(above.parent_id)
        return [call for call in calls if call.span_id not in doubled]

    def _build(self) -> Agent:
        """The task's agent, with the others below it."""
        agent_by_name: dict[str, Agent] = {}
        for call in self._calls:
            name = self._agent_of(call)
            agent_by_name.setdefault(name, Agent(name)).calls.append(call)
        main, *others = sorted(agent_by_name.values(), key=lambda agent: agent.started)
        by_name = {agent.name: agent for agent in (main, *others)}
        for agent in others:
            above = by_name.get(self._agent_above(agent.name))
            agent.is_placed = above is not None and above is not agent and above.started <= agent.started
            parent = above if above is not None and agent.is_placed else main
            parent.children += self._episodes(agent, parent)
        for agent in (main, *others):
            self._split_overlaps(agent)
            self._put_in_sequence(agent)
        return main

    def _episodes(self, agent: Agent, parent: Agent) -> list[Agent]:
        """``agent`` cut where its parent's calls lie between its own: each piece was started anew."""
        pieces: list[Agent] = []
        last_started = None
        for call in agent.calls:
            started_by = sum(begin_of(one) <= begin_of(call) for one in parent.calls)
            if started_by != last_started:
                pieces.append(Agent(agent.name if not pieces else f"{agent.name}-{len(pieces) + 1}"))
            last_started = started_by
            pieces[-1].calls.append(call)
        pieces[0].children = agent.children
        if len(pieces) == 1:
            agent.name = pieces[0].name
            return [agent]
        return pieces

    def _split_overlaps(self, agent: Agent) -> None:
        """Of calls that overlap, none is the agent's next one: each becomes an agent of one call."""
        own: list[Span] = []
        for call in agent.calls:
            if own and begin_of(call) < end_of(own[-1]):
                if len(own) > 1:  # the one it overlaps is part of the fan-out as well
                    previous = own.pop()
                    agent.children.append(Agent(previous.span_id or previous.name, [previous]))
                agent.children.append(Agent(call.span_id or call.name, [call]))
            elif own and any(begin_of(call) < child.ended for child in agent.children if child.calls[0] in agent.calls):
                agent.children.append(Agent(call.span_id or call.name, [call]))
            else:
                own.append(call)
        agent.calls = own

    def _put_in_sequence(self, agent: Agent) -> None:
        """Of agents that no span places: one that began after all before it had ended had waited for them.

        It is hung on the one that ended last, so that it waits for that one again.
        """
        starts = [begin_of(call) for call in agent.calls]
        wave: list[Agent] = []
        num_in_sequence = 0
        direct: list[Agent] = []
        for child in sorted(agent.children, key=lambda one: one.started):
            if child.is_placed:
                direct.append(child)
                continue
            if any(begin > one.started for one in wave for begin in starts if begin <= child.started):
                wave, num_in_sequence = [], 0  # a call of the agent itself lies between: it joined those before
            if wave and num_in_sequence < MAX_DEPTH // 2 and child.started >= max(one.ended for one in wave):
                num_in_sequence += 1
                max(wave, key=lambda one: one.ended).children.append(child)
                self._log.note("agents that began when others had ended: taken to have waited for them")
                wave = [child]
            else:
                direct.append(child)
                wave.append(child)
        agent.children = direct

    def _agent_of(self, call: Span) -> str:
        above = self._agent_span_above(call)
        if above is not None:
            return above.span_id
        if call.text("agent_or_node_id"):
            return "graph"  # its nodes hand one state on: together they are one agent
        return call.text("gen_ai.agent.name") or call.service or "agent"

    def _agent_above(self, name: str) -> str:
        """The agent that ``name``'s span lies in; nothing where there is none."""
        own = self.span_by_id.get(name)
        above = self._agent_span_above(own) if own is not None else None
        return above.span_id if above is not None else ""

    def _agent_span_above(self, span: Span) -> Span | None:
        seen: set[str] = set()
        above = self.span_by_id.get(span.parent_id)
        while above is not None and above.span_id not in seen:
            if above.kind == "agent":
                return above
            seen.add(above.span_id)
            above = self.span_by_id.get(above.parent_id)
        return None
