"""Who&When chat logs: ``{question, history: [{content, role, name?}], system_prompt?: {agent: text}}``.

Several agents speak in one chat. Each answer is a call whose prompt is the speaker's system prompt and the chat so
far, with its own words as the assistant's and all others' as the user's. People and terminals are no models.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from traces.domains import domain_of
from traces.importers.fields import get_list, get_object, get_text
from traces.importers.groups import read_each
from traces.importers.log import BadRecord, ImportLog
from traces.importers.requests import Request, read_requests
from traces.importers.sources import Source
from traces.trajectory import Trajectory

NAME = "who-and-when"
_NO_MODELS = {"human", "user", "computer_terminal", "computerterminal", "chat_manager"}


def recognises(value: Any) -> bool:
    """Whether ``value`` is a chat of this format."""
    return isinstance(value, dict) and {"history", "mistake_agent"} <= value.keys()


def read(source: Source, log: ImportLog) -> Iterator[Trajectory]:
    """The chats of ``source``; what cannot be used goes to ``log``."""
    yield from read_each(source, log, _read_chat)


def speaker_of(message: Any) -> str:
    """Who said it: ``Orchestrator (-> WebSurfer)`` and ``Orchestrator (thought)`` are one agent."""
    name = get_text(message, "name") or get_text(message, "role")
    return name.partition(" (")[0]


def _read_chat(chat: Any, log: ImportLog) -> Trajectory:
    history = get_list(chat, "history")
    prompts = get_object(chat, "system_prompt")
    requests = []
    for index, message in enumerate(history):
        speaker = speaker_of(message)
        # The first message is the task, whoever is said to have posted it.
        if index > 0 and speaker.lower() not in _NO_MODELS:
            seen = [_as_seen_by(speaker, other) for other in history[:index]]
            system = prompts.get(speaker)
            if isinstance(system, str):
                seen.insert(0, {"role": "system", "content": system})
            requests.append(
                Request(messages=seen, reply={"role": "assistant", "content": get_text(message, "content")})
            )
    if not requests:
        raise BadRecord("no answer of a model in it")
    conversation = read_requests(requests, tools=(), domain_of=domain_of, log=log)
    return Trajectory(
        task_id=f"{get_text(chat, 'split') or 'chat'}-{get_text(chat, 'file').removesuffix('.json')}",
        system_prompt=conversation.system_prompt,
        user_prompt=conversation.user_prompt or get_text(chat, "question"),
        turns=conversation.turns,
        source=NAME,
        metadata={"mistake_agent": get_text(chat, "mistake_agent")},
    )


def _as_seen_by(speaker: str, message: Any) -> dict[str, str]:
    other = speaker_of(message)
    content = get_text(message, "content")
    if other == speaker:
        return {"role": "assistant", "content": content}
    return {"role": "user", "content": f"{other}: {content}"}
