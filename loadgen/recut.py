"""Recorded trajectories, cut anew: the same work, handed to other agents.

Whatever an architecture does with the pieces, work is conserved: the tool calls and the recorded outputs of all
pieces together are the original's.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace

from traces.trajectory import Subagent, ToolCall, ToolSchema, Trajectory, Turn

LOCAL = "local"
"""The domain of tools that belong to the agent itself: they are never handed to a subagent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A turn whose tools are all of one domain."""

    domain: str
    turn: Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Neighbouring turns of one domain."""

    domain: str
    user_message: str | None
    """What the user says before it; the first of its turns says so too."""
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The work between two things the user says, by who does it."""

    user_message: str | None
    """None in the first segment: the task itself is what the user said."""
    parts: dict[str, tuple[Turn, ...]]
    """Each tool domain's turns, the domains in the order of their first use."""
    own: tuple[Turn, ...]
    """Turns that stay with the orchestrator: local tools, and text without tools."""
    pieces: tuple[Piece, ...]
    """The same turns in recorded order, those that span domains cut."""

    def turns_of(self, domains: Container[str]) -> tuple[Turn, ...]:
        """What ``domains`` have to do, in recorded order."""
        return tuple(piece.turn for piece in self.pieces if piece.domain in domains)


def steps(trajectory: Trajectory) -> tuple[Turn, ...]:
    """All turns in one line, a spawned subagent's right after the turn that spawned it."""
    return tuple(_steps(trajectory.turns))


def fresh_steps(trajectory: Trajectory) -> tuple[Turn, ...]:
    """The same, for histories that are put together anew.

    A recorded prompt is that of the recording's own agent. Where its text is there, the text counts.
    """
    turns = steps(trajectory)
    if not trajectory.user_prompt:
        return turns
    return tuple(turn if turn.prompt is None else replace(turn, prompt=None) for turn in turns)


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
    for user_message, turns in _between_user_messages(fresh_steps(trajectory)):
        parts: dict[str, list[Turn]] = {}
        own: list[Turn] = []
        cut_turns = tuple(pieces(turns))
        for piece in cut_turns:
            (own if piece.domain == LOCAL else parts.setdefault(piece.domain, [])).append(piece.turn)
        cut.append(
            Segment(
                user_message=user_message,
                parts={domain: tuple(turns_of_it) for domain, turns_of_it in parts.items()},
                own=tuple(own),
                pieces=cut_turns,
            )
        )
    return tuple(cut)


def pieces(turns: Iterable[Turn]) -> Iterator[Piece]:
    """``turns`` in order, those that span domains cut."""
    for turn in turns:
        for domain, piece in split_by_domain(turn).items():
            yield Piece(domain=domain, turn=piece)


def runs(trajectory: Trajectory) -> tuple[Run, ...]:
    """The task's steps as runs of one domain each, as long as they go between two things the user says.

    Local tools, and text without tools, go with the run they follow; at a task's start, with the one that they lead to.
    """
    cut = tuple(pieces(fresh_steps(trajectory)))
    domain = next((piece.domain for piece in cut if piece.domain != LOCAL), LOCAL)
    found: list[tuple[str, list[Turn]]] = []
    for piece in cut:
        is_foreign = piece.domain not in (LOCAL, domain)
        if is_foreign:
            domain = piece.domain
        if is_foreign or not found or piece.turn.user_message is not None:
            found.append((domain, []))
        found[-1][1].append(piece.turn)
    return tuple(Run(domain=one, user_message=turns[0].user_message, turns=tuple(turns)) for one, turns in found)


def stages(trajectory: Trajectory, num_stages: int) -> tuple[tuple[Turn, ...], ...]:
    """The task's steps in ``num_stages`` parts of as many steps each, or one more; fewer where there are fewer."""
    turns = fresh_steps(trajectory)
    num_parts = min(num_stages, len(turns))
    ends = [len(turns) * part // num_parts for part in range(num_parts + 1)]
    return tuple(turns[start:end] for start, end in itertools.pairwise(ends))


def domains(turns: Iterable[Turn]) -> tuple[str, ...]:
    """The tool domains that ``turns`` use, each once, in order of first use; local tools apart."""
    used = (call.domain for turn in turns for call in turn.tool_calls if call.domain != LOCAL)
    return tuple(dict.fromkeys(used))


def tools_of(trajectory: Trajectory, domains: Container[str]) -> tuple[ToolSchema, ...]:
    """The task's tools that belong to ``domains``, in order of appearance."""
    return tuple(tool for tool in all_tools(trajectory) if tool.domain in domains)


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
