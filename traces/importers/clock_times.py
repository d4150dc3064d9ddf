"""Recorded moments to the durations that a turn has: what lay between an answer, its tools and the next call."""

from __future__ import annotations

from traces.importers.chat import Measured


def between(earlier: float | None, later: float | None) -> float | None:
    """Seconds from ``earlier`` to ``later``, at least 0; None where either is unknown."""
    return None if earlier is None or later is None else round(max(later - earlier, 0.0), 6)


class AgentTimes:
    """One agent's calls on a clock that started with its task."""

    def __init__(self, begin: float | None) -> None:
        self._begin = begin
        self._waited_until: float | None = None

    def call(self, started: float | None, ended: float | None, *, num_output_tokens: int | None) -> Measured:
        """A call from ``started`` to ``ended``; from now on the agent waits at least for its end."""
        measured = Measured(
            num_output_tokens=num_output_tokens,
            started_at=between(self._begin, started),
            duration_s=between(started, ended),
            delay_s=between(self._waited_until, started),
        )
        self._waited_until = ended
        return measured

    def waited_for(self, ended: float | None) -> None:
        """Subagents of the last call ended: the next call waited for them too."""
        if ended is not None:
            self._waited_until = max(self._waited_until or ended, ended)
