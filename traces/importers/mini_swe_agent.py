"""mini-swe-agent trajectories: ``{info, messages, trajectory_format: "mini-swe-agent-1..."}``.

Older ones are the bare list of messages, which the importer of chat messages reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from traces.domains import domain_of
from traces.importers.chat import ConversationBuilder, Measured, text_of
from traces.importers.fields import get, get_count, get_label, get_list, get_object, get_text
from traces.importers.groups import read_each
from traces.importers.log import ImportLog
from traces.importers.sources import Source
from traces.trajectory import Trajectory

NAME = "mini-swe-agent"


def recognises(value: Any) -> bool:
    """Whether ``value`` is a trajectory of this format."""
    return isinstance(value, dict) and get_label(value, "trajectory_format").startswith("mini-swe-agent")


def read(source: Source, log: ImportLog) -> Iterator[Trajectory]:
    """The trajectories of ``source``; what cannot be used goes to ``log``."""
    yield from read_each(source, log, _read_trajectory)


def _read_trajectory(record: Any, log: ImportLog) -> Trajectory:
    builder = ConversationBuilder(domain_of=domain_of, log=log)
    for message in get_list(record, "messages"):
        role = get_text(message, "role")
        if role == "assistant":
            usage = get_object(get_object(get_object(message, "extra"), "response"), "usage")
            builder.add_reply(message, Measured(num_output_tokens=get_count(usage, "completion_tokens")))
        elif role != "exit" and (role != "user" or text_of(get(message, "content"))):
            builder.add(message)
    conversation = builder.conversation()
    info = get_object(record, "info")
    model = get_object(get_object(info, "config"), "model")
    return Trajectory(
        task_id=get_text(record, "instance_id") or "task",
        system_prompt=conversation.system_prompt,
        user_prompt=conversation.user_prompt,
        turns=conversation.turns,
        source=NAME,
        model=get_text(model, "model_name"),
        metadata={"exit_status": get_text(info, "exit_status")},
    )
