"""Whether the load generator itself was the bottleneck: its CPU and its event loop, watched while a run goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from mockserver.clock import WallClock, cpu_seconds, real_seconds

_BEAT_S = 0.05
_MAX_CPU_SHARE = 0.9
"""One event loop has one core; past this share of it, what is measured is the queue in front of the load generator."""
_SHORTEST_JUDGED_S = 2.0


@dataclass(eq=False, slots=True)
class OwnLoad:
    """What one run cost the process that drove it."""

    cpu_s: float = 0.0
    elapsed_s: float = 0.0
    late_s: list[float] = field(default_factory=list)
    """How late each beat of the event loop was, in real seconds."""

    @property
    def cpu_share(self) -> float:
        """CPU time by real time: 1 is a core all the time."""
        return self.cpu_s / self.elapsed_s if self.elapsed_s else 0.0

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch for as long as the block lasts."""
        started_at, cpu_started_at = real_seconds(), cpu_seconds()
        beating = asyncio.get_running_loop().create_task(self._beat())
        try:
            yield
        finally:
            beating.cancel()
            self.cpu_s += cpu_seconds() - cpu_started_at
            self.elapsed_s += real_seconds() - started_at

    async def _beat(self) -> None:
        clock = WallClock()
        due_at = 0.0
        while True:
            due_at = max(due_at + _BEAT_S, clock.now())
            await clock.sleep_until(due_at)
            self.late_s.append(clock.now() - due_at)

    def in_words(self) -> str:
        """For the run's header."""
        beats = sorted(self.late_s)
        late = (
            f", its event loop late by {1000 * beats[int(0.99 * len(beats))]:.1f} ms at most in 99 %" if beats else ""
        )
        return f"the load generator used {self.cpu_share:.0%} of a core{late}"

    def reasons(self) -> tuple[str, ...]:
        """Why the run must not be believed for this."""
        if self.elapsed_s < _SHORTEST_JUDGED_S or self.cpu_share <= _MAX_CPU_SHARE:
            return ()
        return (f"the load generator was the bottleneck: it used {self.cpu_share:.0%} of a core (try --workers)",)
