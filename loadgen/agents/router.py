"""Router: a small call says which specialist is next; specialists work one at a time."""

from __future__ import annotations

from loadgen import recut
from loadgen.agent import Agent
from loadgen.session import Session
from traces.trajectory import Trajectory, Turn

SYSTEM_PROMPT = (
    "You route work to specialists. Read the request and what has been done so far, and answer with the name of the"
    " one specialist who is to work next, and nothing else."
)


async def router(task: Trajectory, session: Session) -> None:
    """A classifier in front of specialists, one for each tool domain.

    Assumes that whoever does the steps of one tool domain needs of the others only what they reported. Whenever the
    domain of the recorded steps changes, and whenever the user speaks, a small call names the next specialist; it has
    the task and the choices so far, and no tools. A specialist has the shared system prompt, the task, its own tools
    and the local ones, its own history from all its visits, and the report of the specialist before it (what that one
    said last, or its last tool's answer). Local tools, and text without tools, stay with the specialist at work. A
    step that spans domains is split between them. Added to the recording: the small calls.
    """
    classifier = session.agent("router", system_prompt=SYSTEM_PROMPT)
    if task.user_prompt:
        classifier.hear(task.user_prompt)
    specialist_by_domain: dict[str, Agent] = {}
    previous: Agent | None = None
    for run in recut.runs(task):
        if run.user_message is not None:
            classifier.hear(run.user_message)
        elif previous is not None:
            classifier.hear("That is done. Who is next?")
        await classifier.say(Turn(content=run.domain), is_overhead=True)
        specialist = specialist_by_domain.get(run.domain)
        if specialist is None:
            tools = recut.tools_of(task, (recut.LOCAL, run.domain))
            specialist = session.agent(f"router/{run.domain}", system_prompt=task.system_prompt, tools=tools)
            specialist_by_domain[run.domain] = specialist
            if task.user_prompt:
                specialist.hear(task.user_prompt)
        if previous is not None and previous is not specialist and previous.report:
            specialist.hear(previous.report)
        specialist.follow(classifier)
        for turn in run.turns:
            await specialist.take_turn(turn)
        classifier.follow(specialist)
        previous = specialist
