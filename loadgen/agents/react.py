"""ReAct: one agent, one request at a time; its prompt grows by each answer and each tool result."""

from __future__ import annotations

from loadgen import recut
from loadgen.session import Session
from traces.trajectory import Trajectory


async def react(task: Trajectory, session: Session) -> None:
    """One agent with all tools, and one history.

    Assumes nothing of a recorded task but that one agent could do all of it: every step is done in recorded order,
    those of subagents that the recording spawned right after the step that spawned them. Added to the recording:
    nothing.
    """
    agent = session.agent("react", system_prompt=task.system_prompt, tools=recut.all_tools(task))
    if task.user_prompt:
        agent.hear(task.user_prompt)
    for turn in recut.steps(task):
        await agent.take_turn(turn)
