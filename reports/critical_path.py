"""The chain of calls, tool waits and queue waits that decided a task's time.

Read from the records alone, backwards from the task's last answer: what had to end before this could start?

    orchestrator  call 0 ─┬────────────────────────────┬─ call 1 (join)
    subagent a            └ call ─ tool ─ call ─────┐  │
    subagent b            └ call ────── tool ─ call ───┘      b ended last: b is on the path, a is not
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from reports.columns import CallColumns, TaskColumns, ToolColumns
from reports.numbers import PathShares

_SAME_INSTANT_S = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStep:
    """One call or tool execution on a path, by its position in the run's columns."""

    kind: str
    """``call`` or ``tool``."""
    position: int
    gap_s: float
    """From the end of what came before it on the path: an agent's delay, or the harness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalPath:
    """What decided one task's time, first step first."""

    task_id: str
    steps: tuple[PathStep, ...]
    shares: PathShares


class _Activity(NamedTuple):
    """A call or tool execution; they sort by when they ended, and where that is the same, always in the same way."""

    ended_at: float
    started_at: float
    kind: str
    position: int
    agent_id: str


def critical_paths(calls: CallColumns, tools: ToolColumns, tasks: TaskColumns) -> list[CriticalPath]:
    """The path of every task, in the order of the tasks."""
    activities: dict[str, list[_Activity]] = defaultdict(list)
    for position, (task_id, agent_id, started_at, ended_at) in enumerate(
        zip(calls.task_id, calls.agent_id, calls.due_at.tolist(), calls.last_token_at.tolist(), strict=True)
    ):
        if not math.isnan(ended_at):
            activities[task_id].append(_Activity(ended_at, started_at, "call", position, agent_id))
    for position, (task_id, agent_id, started_at, ended_at) in enumerate(
        zip(tools.task_id, tools.agent_id, tools.started_at.tolist(), tools.ended_at.tolist(), strict=True)
    ):
        activities[task_id].append(_Activity(ended_at, started_at, "tool", position, agent_id))
    split = _CallParts(calls)
    return [
        _path_of_task(task_id, started_at, ended_at, activities.get(task_id, []), split)
        for task_id, started_at, ended_at in zip(
            tasks.task_id, tasks.started_at.tolist(), tasks.ended_at.tolist(), strict=True
        )
    ]


def mean_shares(paths: Sequence[CriticalPath]) -> PathShares | None:
    """The mean over tasks of each part, in seconds."""
    if not paths:
        return None
    parts = np.asarray(
        [(p.shares.queue_s, p.shares.prefill_s, p.shares.decode_s, p.shares.tool_s, p.shares.harness_s) for p in paths]
    ).mean(axis=0)
    queue_s, prefill_s, decode_s, tool_s, harness_s = (float(part) for part in parts)
    return PathShares(queue_s=queue_s, prefill_s=prefill_s, decode_s=decode_s, tool_s=tool_s, harness_s=harness_s)


def longest_chain(paths: Sequence[CriticalPath]) -> int | None:
    """How many calls the path of the longest task has."""
    if not paths:
        return None
    longest = max(paths, key=lambda path: path.shares.total_s)
    return sum(step.kind == "call" for step in longest.steps)


class _CallParts:
    """How one call's time, from due to its last token, divides."""

    def __init__(self, calls: CallColumns) -> None:
        started_at = calls.started_at
        first_at = np.where(np.isnan(calls.first_token_at), calls.last_token_at, calls.first_token_at)
        self.harness_s = (calls.sent_at - calls.due_at).tolist()
        self.queue_s = (started_at - calls.sent_at).tolist()
        self.prefill_s = (first_at - started_at).tolist()
        self.decode_s = (calls.last_token_at - first_at).tolist()


def _path_of_task(
    task_id: str, started_at: float, ended_at: float, activities: list[_Activity], parts: _CallParts
) -> CriticalPath:
    by_end = sorted(activities)
    family = _Family(by_end)
    steps: list[PathStep] = []
    queue_s = prefill_s = decode_s = tool_s = 0.0
    place = len(by_end) - 1
    current = by_end[place] if by_end else None
    harness_s = ended_at - (current.ended_at if current else started_at)
    while current is not None:
        previous_place = _what_came_before(current, by_end, place, family)
        previous = None if previous_place is None else by_end[previous_place]
        gap_s = current.started_at - (previous.ended_at if previous else started_at)
        harness_s += gap_s
        if current.kind == "tool":
            tool_s += current.ended_at - current.started_at
        else:
            harness_s += parts.harness_s[current.position]
            queue_s += parts.queue_s[current.position]
            prefill_s += parts.prefill_s[current.position]
            decode_s += parts.decode_s[current.position]
        steps.append(PathStep(kind=current.kind, position=current.position, gap_s=gap_s))
        place, current = previous_place or 0, previous
    shares = PathShares(queue_s=queue_s, prefill_s=prefill_s, decode_s=decode_s, tool_s=tool_s, harness_s=harness_s)
    return CriticalPath(task_id=task_id, steps=tuple(reversed(steps)), shares=shares)


class _Family:
    """Who spawned whom: an agent whose id extends another's is its child, the rest the first agent's."""

    def __init__(self, activities: list[_Activity]) -> None:
        self.started_at: dict[str, float] = {}
        for activity in activities:
            first = self.started_at.get(activity.agent_id, math.inf)
            self.started_at[activity.agent_id] = min(first, activity.started_at)
        root = min(self.started_at, key=lambda a: (self.started_at[a], a), default="")
        self.parent: dict[str, str | None] = {}
        for agent_id in self.started_at:
            prefix = agent_id.rpartition("/")[0]
            parent = prefix if prefix in self.started_at else root
            self.parent[agent_id] = None if agent_id == root else parent


def _what_came_before(current: _Activity, by_end: list[_Activity], place: int, family: _Family) -> int | None:
    """Where in ``by_end`` stands what ended last of all that ``current`` may have waited for.

    That is what its own agent did before, what the agents did that its agent spawned, and what the agent did that
    spawned its own (a plan, a choice of who is next). Siblings never wait for each other.
    """
    parent = family.parent[current.agent_id]
    for earlier in range(place - 1, -1, -1):
        activity = by_end[earlier]
        if activity.ended_at > current.started_at + _SAME_INSTANT_S:
            continue
        agent_id = activity.agent_id
        if agent_id in (current.agent_id, parent) or family.parent[agent_id] == current.agent_id:
            return earlier
    return None
