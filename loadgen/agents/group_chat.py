"""Group chat: speakers share one transcript, and a call chooses who speaks next."""

from __future__ import annotations

from loadgen import recut
from loadgen.agent import Agent
from loadgen.session import Session
from traces.trajectory import Trajectory, Turn

SYSTEM_PROMPT = (
    "You chair a conversation between specialists who work on one task. Read it and answer with the name of the one"
    " who is to speak next, and nothing else. The specialists: "
)


async def group_chat(task: Trajectory, session: Session) -> None:
    """Speakers in one conversation, chosen call by call.

    Assumes that everybody reads everything: what one speaker says, its tool calls and their answers stand in the
    history of all, as with a shared list of messages. There is one speaker for each tool domain, and one for local
    tools and for text without tools. A speaker has the shared system prompt, its own tools, and the whole transcript.
    Before every recorded step a chair, who has the transcript, its own earlier choices and no tools, names the next
    speaker. A step that spans domains becomes one turn for each of them. Added to the recording: the chair's calls.
    """
    domains = (*recut.domains(recut.steps(task)), recut.LOCAL)
    chair = session.agent("chair", system_prompt=SYSTEM_PROMPT + ", ".join(domains))
    speaker_by_domain = {
        domain: session.agent(
            f"chair/{domain}", system_prompt=task.system_prompt, tools=recut.tools_of(task, (domain,))
        )
        for domain in domains
    }
    everybody = (chair, *speaker_by_domain.values())
    for speaker in speaker_by_domain.values():
        speaker.audience = tuple(agent for agent in everybody if agent is not speaker)
    if task.user_prompt:
        speaker_by_domain[recut.LOCAL].hear(task.user_prompt)
    for piece in recut.pieces(recut.fresh_steps(task)):
        await chair.say(Turn(content=piece.domain), is_overhead=True)
        await _speak(speaker_by_domain[piece.domain], piece.turn, chair)


async def _speak(speaker: Agent, turn: Turn, chair: Agent) -> None:
    speaker.follow(chair)
    await speaker.take_turn(turn)
    chair.follow(speaker)
