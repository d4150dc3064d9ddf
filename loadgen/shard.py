"""A part of a run that one of several workers does: every n-th task, started at the same instant as all others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mockserver.clock import WallClock

T = TypeVar("T")


async def at_once(_: WallClock) -> None:
    """Whoever is alone waits for nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """Worker ``number`` of ``num_shards``."""

    number: int = 0
    num_shards: int = 1
    server_url: str | None = None
    """The mock that was started for all workers; None: this one starts its own, if it needs one."""
    wait_for_start: Callable[[WallClock], Awaitable[None]] = at_once
    """Return when all workers are to start, the clock set to ``starts_at`` for that instant."""
    starts_at: float = 0.0
    """More than 0 in a run that is resumed: when the latest of what all workers had done ended."""

    @property
    def is_first(self) -> bool:
        """The first worker does what must be done once."""
        return self.number == 0

    @property
    def is_whole(self) -> bool:
        """Whether there is no other worker."""
        return self.num_shards == 1

    def of(self, whole: Sequence[T]) -> Sequence[T]:
        """This worker's part."""
        return whole if self.is_whole else whole[self.number :: self.num_shards]

    def share(self, limit: int | None) -> int | None:
        """This worker's part of a limit for all: the parts add up to it, but nobody has none."""
        if limit is None:
            return None
        return max(1, limit // self.num_shards + (self.number < limit % self.num_shards))
