"""Recorded: the agents of the recording, with its fan-outs, joins and gaps."""

from __future__ import annotations

import asyncio

from loadgen import recut
from loadgen.agent import Agent
from loadgen.session import Session
from traces.record import ToolRecord
from traces.trajectory import Subagent, Trajectory, Turn


async def recorded(task: Trajectory, session: Session) -> None:
    """Each agent of the recording makes its own calls, in its own history.

    A turn's subagents start when its answer is there and their recorded delay is over; the next turn waits for those
    that are not in the background, and then for its recorded delay. Where no delay is recorded, it waits for the
    turn's tools: as long as recorded, else as long as drawn. How long calls take is up to the server. Nothing is added
    to the recording and nothing left out.
    """
    agent = session.agent("main", system_prompt=task.system_prompt, tools=task.tools)
    if task.user_prompt:
        agent.hear(task.user_prompt)
    async with asyncio.TaskGroup() as background:
        await _work(agent, task.turns, background)


async def _work(agent: Agent, turns: tuple[Turn, ...], background: asyncio.TaskGroup) -> None:
    """All turns of one agent, and of the agents it spawns."""
    for turn, following in zip(turns, (*turns[1:], None), strict=True):
        await agent.session.clock.sleep_until(agent.due_at)
        await agent.say(turn)
        answered_at = agent.due_at
        gap_s = None if following is None else following.delay_s
        async with asyncio.TaskGroup() as group:
            spawned = []
            for spawn in turn.spawns:
                child = _spawned(spawn, agent.session, answered_at)
                (background if spawn.is_background else group).create_task(_work(child, spawn.turns, background))
                spawned += [] if spawn.is_background else [child]
        joined_at = max([answered_at, *(child.due_at for child in spawned)])
        tools_done_at = _use_tools(agent, turn, answered_at, None if turn.spawns else gap_s)
        agent.due_at = max(joined_at, tools_done_at) if gap_s is None else joined_at + gap_s
        agent.session.ended(agent.due_at if following is not None else joined_at)


def _spawned(spawn: Subagent, session: Session, answered_at: float) -> Agent:
    child = session.agent(
        spawn.agent_id,
        system_prompt=spawn.system_prompt,
        tools=spawn.tools,
        starts_at=answered_at + spawn.delay_s,
    )
    if spawn.user_prompt:
        child.hear(spawn.user_prompt)
    return child


def _use_tools(agent: Agent, turn: Turn, answered_at: float, gap_s: float | None) -> float:
    """The tools' answers join the history; returns when the last of them was there."""
    session = agent.session
    done_at = answered_at
    for call in turn.tool_calls:
        latency_s = call.latency_s
        if latency_s is None:
            latency_s = gap_s if gap_s is not None else session.tool_times.latency_s(session.task_id, call)
        ended_at = answered_at + latency_s
        done_at = max(done_at, ended_at)
        agent.receive(call.call_id, call.result, at=answered_at)
        session.recorder.tool(
            ToolRecord(
                task_id=session.task_id,
                agent_id=agent.agent_id,
                call_id=f"{agent.agent_id}#{agent.index - 1}",
                name=call.name,
                domain=call.domain or recut.LOCAL,
                started_at=answered_at,
                ended_at=ended_at,
                is_error=call.is_error,
            )
        )
        agent.last_result = call.result
    session.num_tool_calls += len(turn.tool_calls)
    return done_at
