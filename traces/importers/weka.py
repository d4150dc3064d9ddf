"""weka agentic-coding traces: one Claude Code session a line, prompts as hashes of 64-token blocks, subagents nested.

``{id, block_size, hash_id_scope, requests: [{t, type: "n"|"s", in, out, hash_ids, api_time, think_time} |
{t, type: "subagent", agent_id, duration_ms, requests: [...]}]}``. A subagent's ``t`` is when it *completed*, its
own requests' ``t`` starts at 0, and the subagents between two requests of the parent were one fan-out. One without a
duration was launched at ``t``, and its parent did not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from traces.importers.fields import get, get_count, get_list, get_number, get_text
from traces.importers.hashes import KeptBlocks, block_hashes
from traces.importers.log import BadRecord, ImportLog
from traces.importers.sources import Source
from traces.trajectory import Subagent, Trajectory, Turn

NAME = "weka"
_MAX_DEPTH = 8


def recognises(value: Any) -> bool:
    """Whether ``value`` is a session of this format."""
    return isinstance(value, dict) and {"id", "block_size", "requests"} <= value.keys()


def read(source: Source, log: ImportLog) -> Iterator[Trajectory]:
    """The sessions of ``source``; what cannot be used goes to ``log``."""
    for where, session in source.values(log.skip):
        try:
            yield read_session(session, log, where)
        except BadRecord as error:
            log.skip(where, str(error))


def read_session(session: Any, log: ImportLog, where: str) -> Trajectory:
    """One session as a trajectory."""
    session_id = get_text(session, "id", "session")
    reader = _Session(
        session_id=session_id,
        # Ids that are local to a session say nothing about what two sessions share.
        scope=session_id if get(session, "hash_id_scope") != "global" else "",
        block_size=get_count(session, "block_size") or 64,
        log=log,
        where=where,
    )
    turns = reader.turns(get_list(session, "requests"), depth=0)
    if not turns:
        raise BadRecord("no requests in it")
    models = [model for model in get_list(session, "models") if isinstance(model, str)]
    log.note("prompts known by the hashes of their blocks only: replayed as filler that shares exactly those blocks")
    return Trajectory(
        task_id=session_id, turns=turns, source=NAME, model=models[0] if models else "", metadata=_totals(session)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    """What all agents of a session have in common."""

    session_id: str
    scope: str
    block_size: int
    log: ImportLog
    where: str

    def turns(self, requests: list[Any], *, depth: int) -> tuple[Turn, ...]:
        """The calls of one agent, and the fan-outs between them."""
        turns: list[Turn] = []
        kept = KeptBlocks(block_size=self.block_size, scope=self.scope)
        waited_until: float | None = None  # when the subagents spawned last had all ended
        for is_subagent, group in groupby(requests, key=_is_subagent):
            if is_subagent:
                if not turns:
                    self.log.skip(self.where, "subagents before the first request of their parent")
                    continue
                waited_until = self._fan_out(turns, list(group), depth)
                kept.forget()
                continue
            for request in group:
                turns.append(self._turn(request, kept, waited_until))
                waited_until = None
        return tuple(turns)

    def _turn(self, request: Any, kept: KeptBlocks, waited_until: float | None) -> Turn:
        num_prompt_tokens = get_count(request, "in")
        if num_prompt_tokens is None:
            raise BadRecord("a request without 'in'")
        started_at = get_number(request, "t")
        delay_s = get_number(request, "think_time")
        if waited_until is not None and started_at is not None:
            delay_s = started_at - waited_until
        return Turn(
            num_output_tokens=get_count(request, "out") or 0,
            prompt=kept.prompt(num_prompt_tokens, block_hashes(get_list(request, "hash_ids"))),
            started_at=started_at,
            duration_s=get_number(request, "api_time"),
            delay_s=None if delay_s is None else max(delay_s, 0.0),
        )

    def _fan_out(self, turns: list[Turn], subagents: list[Any], depth: int) -> float | None:
        """Hang ``subagents`` on the last turn; returns when the last of them ended."""
        if depth >= _MAX_DEPTH:
            raise BadRecord("subagents nested too deep")
        parent = turns[-1]
        parent_ended_at = (parent.started_at or 0.0) + (parent.duration_s or 0.0)
        spawns: list[tuple[float, Subagent]] = []
        ended_at: list[float] = []
        for subagent in subagents:
            calls = self.turns(get_list(subagent, "requests"), depth=depth + 1)
            if not calls:
                self.log.note("subagents without requests: left out")
                continue
            completed_at = get_number(subagent, "t")
            duration_ms = get_number(subagent, "duration_ms")
            spawned_at = parent_ended_at
            if completed_at is not None:
                spawned_at = completed_at - (duration_ms or 0.0) / 1000
                if duration_ms is not None:
                    ended_at.append(completed_at)
            spawned = Subagent(
                agent_id=get_text(subagent, "agent_id") or f"agent_{len(spawns):03d}",
                user_prompt="",
                turns=calls,
                delay_s=round(max(spawned_at - parent_ended_at, 0.0), 6),
                is_background=duration_ms is None,
            )
            spawns.append((spawned_at, spawned))
        spawns.sort(key=lambda spawn: spawn[0])
        turns[-1] = replace(parent, spawns=parent.spawns + tuple(subagent for _, subagent in spawns))
        return max(ended_at, default=None)


def _is_subagent(request: Any) -> bool:
    return bool(get(request, "type") == "subagent")


def _totals(session: Any) -> dict[str, str]:
    return {
        key: str(value) for key in ("tool_tokens", "system_tokens") if (value := get_count(session, key)) is not None
    }
