"""When a recorded run's calls took place, with a plausible time wherever the recording has none.

Formats of spans and sessions need instants. A call without a recorded duration is taken to have lasted as long as its
output at 50 tokens/s; a tool without a latency took no time.
"""

from __future__ import annotations

from dataclasses import dataclass

from traces.importers.log import ImportLog
from traces.prompt_size import num_output_tokens
from traces.trajectory import Subagent, Trajectory, Turn

_TOKENS_PER_S = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCall:
    """One call with its place in time, in seconds from the task's start."""

    turn: Turn
    started: float
    ended: float
    delay_s: float
    """From the end of what it waited for to its start."""
    spawns: tuple[Timed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """An agent with its calls in time."""

    agent: Trajectory | Subagent
    agent_id: str
    started: float
    calls: tuple[TimedCall, ...]
    is_background: bool = False

    @property
    def ended(self) -> float:
        """When its last call ended, or the last of those that it waited for."""
        ends = [call.ended for call in self.calls]
        ends += [child.ended for call in self.calls for child in call.spawns if not child.is_background]
        return max(ends, default=self.started)


def timeline(trajectory: Trajectory, log: ImportLog) -> Timed:
    """The task in time; how many calls had to be given one goes to ``log``."""
    return _timed(trajectory, "", 0.0, log)


def _timed(agent: Trajectory | Subagent, agent_id: str, at: float, log: ImportLog) -> Timed:
    started = at
    calls: list[TimedCall] = []
    for turn in agent.turns:
        tools_s = max((call.latency_s or 0.0 for call in calls[-1].turn.tool_calls), default=0.0) if calls else 0.0
        delay_s = turn.delay_s if turn.delay_s is not None else tools_s
        begin = at + delay_s
        if turn.started_at is not None and turn.delay_s is None:
            begin = max(started + turn.started_at, at)
        if turn.duration_s is None:
            log.note("calls without a recorded duration: 50 tokens/s")
        end = begin + (turn.duration_s if turn.duration_s is not None else num_output_tokens(turn) / _TOKENS_PER_S)
        spawns = tuple(_timed_spawn(spawn, end, log) for spawn in turn.spawns)
        calls.append(TimedCall(turn=turn, started=begin, ended=end, delay_s=begin - at, spawns=spawns))
        at = max([end, *(spawn.ended for spawn in spawns if not spawn.is_background)])
    return Timed(agent=agent, agent_id=agent_id, started=started, calls=tuple(calls))


def _timed_spawn(spawn: Subagent, at: float, log: ImportLog) -> Timed:
    timed = _timed(spawn, spawn.agent_id, at + spawn.delay_s, log)
    return Timed(
        agent=spawn,
        agent_id=spawn.agent_id,
        started=timed.started,
        calls=timed.calls,
        is_background=spawn.is_background,
    )
