"""tau-bench results: a list of ``{task_id, trial, reward, info, traj: [OpenAI messages]}``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from traces.importers.chat import read_conversation, text_of
from traces.importers.fields import get_label, get_list
from traces.importers.groups import read_each
from traces.importers.log import ImportLog
from traces.importers.sources import Source
from traces.trajectory import Trajectory

NAME = "tau-bench"
_DOMAINS = ("airline", "retail", "telecom")


def recognises(value: Any) -> bool:
    """Whether ``value`` is a result of this format, or a list of them."""
    record = value[0] if isinstance(value, list) and value else value
    return isinstance(record, dict) and {"task_id", "traj", "reward"} <= record.keys()


def read(source: Source, log: ImportLog) -> Iterator[Trajectory]:
    """The runs of ``source``; what cannot be used goes to ``log``."""
    yield from read_each(source, log, _read_run)


def _read_run(run: Any, log: ImportLog) -> Trajectory:
    messages = get_list(run, "traj")
    domain = domain_in(messages)
    conversation = read_conversation(messages, domain_of=lambda name: domain, log=log)
    log.note("runs without tool schemas: their prompts are shorter than the run's were")
    return Trajectory(
        task_id=f"{domain}-{get_label(run, 'task_id')}-{get_label(run, 'trial') or 0}",
        system_prompt=conversation.system_prompt,
        user_prompt=conversation.user_prompt,
        turns=conversation.turns,
        source=NAME,
        metadata={"reward": get_label(run, "reward")},
    )


def domain_in(messages: list[Any]) -> str:
    """The simulated company: what the policy in the first message speaks of. All its tools are one server."""
    policy = text_of(messages[0].get("content")).lower() if messages and isinstance(messages[0], dict) else ""
    counts = {domain: policy.count(domain) for domain in _DOMAINS}
    best = max(_DOMAINS, key=lambda domain: counts[domain])
    return best if counts[best] else "environment"
