"""Chain: stages one after the other, each an agent of its own that starts from the summary of the one before."""

from __future__ import annotations

from loadgen import recut
from loadgen.agent import Agent
from loadgen.session import Session
from mockserver.filler import filler
from traces.trajectory import Trajectory, Turn

SUMMARY_TOKENS = 200
ASK_FOR_A_SUMMARY = "Sum up for the next stage what was done and what it has to know."


async def chain(task: Trajectory, session: Session, *, num_stages: int = 4) -> None:
    """Stages in a row, as in a sequential crew or a prompt chain.

    Assumes that a recorded task can be cut at any step: its steps are dealt evenly to the stages, in recorded order
    (a task of fewer steps has as many stages as steps). A stage has the shared system prompt, the task, the summary
    that the stage before it wrote (200 tokens, nothing older), the local tools, the tools of the domains that its
    steps use, and its own history. Added to the recording: one call for each hand-over, which writes the summary.
    """
    previous: Agent | None = None
    stages = recut.stages(task, num_stages)
    for number, turns in enumerate(stages):
        role = "/".join(f"stage-{before}" for before in range(number + 1))  # each is started by the one before it
        agent = session.agent(
            role,
            system_prompt=task.system_prompt,
            tools=recut.tools_of(task, (recut.LOCAL, *recut.domains(turns))),
        )
        if task.user_prompt:
            agent.hear(task.user_prompt)
        if previous is not None:
            agent.follow(previous)
            agent.hear(previous.last_said)
            # A recording may say of a prompt only what it adds to the one before it, which is another agent's now.
            agent.recorded_text = previous.recorded_text
        for turn in turns:
            await agent.take_turn(turn)
        if number + 1 < len(stages):
            agent.hear(ASK_FOR_A_SUMMARY)
            summary = filler(f"summary/{task.task_id}/{number}", SUMMARY_TOKENS)
            await agent.say(Turn(content=summary), is_overhead=True)
        previous = agent
