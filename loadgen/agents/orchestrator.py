"""Orchestrator: plan, fan out to one subagent per tool domain, join."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import orjson

from loadgen import recut
from loadgen.agent import Agent
from loadgen.session import Session
from traces.trajectory import ToolCall, ToolSchema, Trajectory, Turn

DELEGATE = "delegate"
DELEGATE_TOOL = ToolSchema(
    name=DELEGATE,
    domain=recut.LOCAL,
    text=(
        '{"type":"function","function":{"name":"delegate","description":"Start a subagent that has the tools of one '
        'server; it works on its own and returns a report.","parameters":{"type":"object","properties":{"server":'
        '{"type":"string","description":"The server whose tools the subagent gets."},"instructions":{"type":"string",'
        '"description":"What the subagent is to do."}},"required":["server","instructions"]}}}'
    ),
)


async def orchestrator(task: Trajectory, session: Session) -> None:
    """One planning call, one subagent per tool domain in parallel, and a join.

    Assumes that the steps of one tool domain need only each other: each domain's steps become one subagent, and all
    subagents start when the plan is there. A step whose tool calls span domains is split between them; its text goes
    to the domain of its first call. A subagent has the shared system prompt, the task, its domain's tools and its own
    history; it returns what it said last, or its last tool's answer. Local tools, and text without tools, stay with
    the orchestrator and come after the join, in recorded order; the first of them is the join call. Added to the
    recording: the plan, which asks for each subagent by a tool call, and a one-line answer at the end where the
    recording leaves nothing to say after the join.
    """
    tools = recut.all_tools(task)
    planner = session.agent(
        "orchestrator",
        system_prompt=task.system_prompt,
        tools=(*(tool for tool in tools if tool.domain == recut.LOCAL), DELEGATE_TOOL),
    )
    subagent_by_domain: dict[str, Agent] = {}
    for number, segment in enumerate(recut.segments(task)):
        asked = segment.user_message or (task.user_prompt if number == 0 else "")
        if asked:
            planner.hear(asked)
        if segment.parts:
            plan = delegate_turn(segment.parts, str(number))
            await planner.say(plan, is_overhead=True)
            for domain in segment.parts:
                if domain not in subagent_by_domain:
                    own_tools = tuple(tool for tool in tools if tool.domain == domain)
                    subagent_by_domain[domain] = session.agent(
                        domain, system_prompt=task.system_prompt, tools=own_tools
                    )
            await _fan_out(planner, plan, segment, subagent_by_domain, asked)
        for turn in segment.own:
            await planner.take_turn(turn)
        if not segment.own:
            await planner.say(Turn(content="All parts are done."), is_overhead=True)


def delegate_turn(names: Iterable[str], plan_id: str) -> Turn:
    """A planning call's answer: one ``delegate`` call for each of ``names``."""
    return Turn(
        tool_calls=tuple(
            ToolCall(
                call_id=f"delegate-{plan_id}-{name}",
                name=DELEGATE,
                domain=recut.LOCAL,
                arguments=orjson.dumps(
                    {"server": name, "instructions": f"Do what the task needs from {name} and report what you found."}
                ).decode(),
                result="",
            )
            for name in names
        )
    )


async def _fan_out(
    planner: Agent,
    plan: Turn,
    segment: recut.Segment,
    subagent_by_domain: dict[str, Agent],
    asked: str,
) -> None:
    """Run the segment's subagents side by side; the planner's history grows by their reports."""
    planned_at = planner.due_at
    async with asyncio.TaskGroup() as group:
        for domain, turns in segment.parts.items():
            subagent = subagent_by_domain[domain]
            subagent.due_at = planned_at
            if asked:
                subagent.hear(asked)
            group.create_task(_work(subagent, turns))
    for domain, call in zip(segment.parts, plan.tool_calls, strict=True):
        subagent = subagent_by_domain[domain]
        planner.receive(call.call_id, subagent.report, at=subagent.due_at)


async def _work(agent: Agent, turns: tuple[Turn, ...]) -> None:
    for turn in turns:
        await agent.take_turn(turn)
