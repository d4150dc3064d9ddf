"""Sandboxes: where an agent session's tools run. One for each session, from a pool that may have limits."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from mockserver.clock import Clock

BOOT_S = (0.125, 0.150)
MEMORY_BYTES = (256e6, 512e6)
MB, GB = 1e6, 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSize:
    """What one session's sandbox takes: drawn from the seed and the task, whatever the architecture."""

    boot_s: float
    memory_bytes: float

    @classmethod
    def of(cls, task_id: str, *, seed: int) -> SandboxSize:
        """The sandbox of ``task_id``."""
        rng = random.Random(f"{seed}/sandbox/{task_id}")
        return cls(boot_s=rng.uniform(*BOOT_S), memory_bytes=rng.uniform(*MEMORY_BYTES))


@dataclass(eq=False, slots=True, kw_only=True)
class SandboxPool:
    """The sandboxes of one run. Sessions that find no room wait, first come, first served."""

    seed: int = 0
    most_sandboxes: int | None = None
    most_memory_bytes: float | None = None
    num_up: int = 0
    memory_bytes: float = 0.0
    """Of those that are up."""
    num_booted: int = 0
    boot_s: float = 0.0
    waited_s: float = 0.0
    peak_num_up: int = 0
    peak_memory_bytes: float = 0.0
    _waiting: deque[tuple[float, asyncio.Future[None]]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        if self.most_sandboxes is not None and self.most_sandboxes < 1:
            raise ValueError(f"a pool needs room for at least 1 sandbox, got {self.most_sandboxes}")
        if self.most_memory_bytes is not None and self.most_memory_bytes < MEMORY_BYTES[1]:
            raise ValueError(
                f"a pool needs memory for the largest sandbox, {MEMORY_BYTES[1] / GB:g} GB,"
                f" got {self.most_memory_bytes / GB:g}"
            )

    @asynccontextmanager
    async def sandbox(self, task_id: str, clock: Clock) -> AsyncIterator[None]:
        """A booted sandbox, for as long as the context is open."""
        size = SandboxSize.of(task_id, seed=self.seed)
        asked_at = clock.now()
        await self._take(size.memory_bytes)
        try:
            self.waited_s += clock.now() - asked_at
            self.num_booted += 1
            self.boot_s += size.boot_s
            await clock.sleep_until(clock.now() + size.boot_s)
            yield
        finally:
            self._give_back(size.memory_bytes)

    def text(self) -> str:
        """One line for the run's header."""
        mean_boot_s = self.boot_s / self.num_booted if self.num_booted else 0.0
        return (
            f"{self.num_booted:,} sandboxes booted in {mean_boot_s * 1000:.0f} ms on average, at most"
            f" {self.peak_num_up:,} up at once with {self.peak_memory_bytes / GB:.1f} GB; sessions waited"
            f" {self.waited_s:,.1f} s for room"
        )

    async def _take(self, memory_bytes: float) -> None:
        if self._waiting or not self._has_room(memory_bytes):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            place = (memory_bytes, turn)
            self._waiting.append(place)
            try:
                await turn
            except asyncio.CancelledError:
                if place in self._waiting:
                    self._waiting.remove(place)
                else:
                    self._give_back(memory_bytes)
                raise
            return
        self._boot(memory_bytes)

    def _give_back(self, memory_bytes: float) -> None:
        self.num_up -= 1
        self.memory_bytes -= memory_bytes
        while self._waiting and self._has_room(self._waiting[0][0]):
            wanted_bytes, turn = self._waiting.popleft()
            self._boot(wanted_bytes)
            turn.set_result(None)

    def _boot(self, memory_bytes: float) -> None:
        self.num_up += 1
        self.memory_bytes += memory_bytes
        self.peak_num_up = max(self.peak_num_up, self.num_up)
        self.peak_memory_bytes = max(self.peak_memory_bytes, self.memory_bytes)

    def _has_room(self, memory_bytes: float) -> bool:
        if self.most_sandboxes is not None and self.num_up >= self.most_sandboxes:
            return False
        return self.most_memory_bytes is None or self.memory_bytes + memory_bytes <= self.most_memory_bytes
