"""ReAct: one agent, one request at a time; its prompt grows by each answer and each tool result."""

from __future__ import annotations

from loadgen import recut
from loadgen.session import Session
from traces.trajectory import Trajectory


async def react(task: Trajectory, session: Session) -> None:
    """Do every step of ``task`` in one history. Subagents that the recording spawned are done in line."""
    agent = session.agent("react", system_prompt=task.system_prompt, tools=recut.all_tools(task))
    if task.user_prompt:
        agent.hear(task.user_prompt)
    for turn in recut.steps(task):
        await agent.take_turn(turn)
