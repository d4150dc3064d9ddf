"""Recorded trajectories, cut anew: the same work, handed to other agents.

Whatever an architecture does with the pieces, work is conserved: the tool calls and the recorded outputs of all
pieces together are the original's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from traces.trajectory import Subagent, ToolCall, ToolSchema, Trajectory, Turn

LOCAL = "local"
"""The domain of tools that belong to the agent itself: they are never handed to a subagent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The work between two things the user says, by who does it."""

    user_message: str | None
    """None in the first segment: the task itself is what the user said."""
    parts: dict[str, tuple[Turn, ...]]
    """Each tool domain's turns, the domains in the order of their first use."""
    own: tuple[Turn, ...]
    """Turns that stay with the orchestrator: local tools, and text without tools."""


def steps(trajectory: Trajectory) -> tuple[Turn, ...]:
    """All turns in one line, a spawned subagent's right after the turn that spawned it."""
    return tuple(_steps(trajectory.turns))


def all_tools(trajectory: Trajectory) -> tuple[ToolSchema, ...]:
    """The tools of the task and of the subagents it spawned, each once, in order of appearance."""
    tool_by_name = {tool.name: tool for tool in trajectory.tools}
    for spawn in _spawns(trajectory.turns):
        for tool in spawn.tools:
            tool_by_name.setdefault(tool.name, tool)
    return tuple(tool_by_name.values())


def segments(trajectory: Trajectory) -> tuple[Segment, ...]:
    """The task's steps, by segment and tool domain."""
    cut: list[Segment] = []
    for user_message, turns in _between_user_messages(steps(trajectory)):
        parts: dict[str, list[Turn]] = {}
        own: list[Turn] = []
        for turn in turns:
            for domain, piece in split_by_domain(turn).items():
                (own if domain == LOCAL else parts.setdefault(domain, [])).append(piece)
        cut.append(
            Segment(
                user_message=user_message,
                parts={domain: tuple(pieces) for domain, pieces in parts.items()},
                own=tuple(own),
            )
        )
    return tuple(cut)


def split_by_domain(turn: Turn) -> dict[str, Turn]:
    """``turn`` cut by the domains of its tool calls; the first piece has its text. Text alone is local."""
    domains = list(dict.fromkeys(call.domain for call in turn.tool_calls)) or [LOCAL]
    if len(domains) == 1:
        return {domains[0]: turn}
    # The recorded output length is the whole turn's; what each piece is long follows from its own text.
    first = replace(turn, tool_calls=_calls_of(turn, domains[0]), num_output_tokens=None)
    rest = {domain: Turn(tool_calls=_calls_of(turn, domain)) for domain in domains[1:]}
    return {domains[0]: first, **rest}


def _calls_of(turn: Turn, domain: str) -> tuple[ToolCall, ...]:
    return tuple(call for call in turn.tool_calls if call.domain == domain)


def _steps(turns: Iterable[Turn]) -> Iterator[Turn]:
    for turn in turns:
        yield replace(turn, spawns=()) if turn.spawns else turn
        for spawn in turn.spawns:
            # What the subagent was told stands in the arguments of the call that spawned it.
            yield from _steps(spawn.turns)


def _spawns(turns: Iterable[Turn]) -> Iterator[Subagent]:
    for turn in turns:
        for spawn in turn.spawns:
            yield spawn
            yield from _spawns(spawn.turns)


def _between_user_messages(turns: Iterable[Turn]) -> Iterator[tuple[str | None, list[Turn]]]:
    user_message: str | None = None
    segment: list[Turn] = []
    for turn in turns:
        if turn.user_message is not None:
            if segment:
                yield user_message, segment
            user_message, segment = turn.user_message, []
            turn = replace(turn, user_message=None)  # noqa: PLW2901  (the segment says it from here on)
        segment.append(turn)
    if segment:
        yield user_message, segment
