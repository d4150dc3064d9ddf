"""Whose cached blocks are evicted: which session's prompt was the first to hold each chain of blocks."""

from __future__ import annotations

import math
from collections.abc import Iterable

from mockserver.engine.chains import BlockPath
from mockserver.engine.engine import Engine


class BlockOwners:
    """The sessions of the chains that came last; a chain beyond ``max_chains`` younger ones is nobody's."""

    def __init__(self, max_chains: float = math.inf) -> None:
        self._max_chains = max_chains
        self._session_by_chain: dict[int, str] = {}

    @property
    def sessions(self) -> tuple[str, ...]:
        """The owners of the chains that are remembered, oldest first."""
        return tuple(self._session_by_chain.values())

    def note(self, path: BlockPath, session_id: str) -> None:
        """A prompt of a session has come."""
        owners = self._session_by_chain
        for run in path:
            owners.setdefault(run.chain_id, session_id)
        while len(owners) > self._max_chains:
            del owners[next(iter(owners))]

    def take_evictions(self, engines: Iterable[Engine]) -> dict[str, int]:
        """Blocks evicted since this was last asked, by session; counted from the first time on."""
        taken: dict[str, int] = {}
        for engine in engines:
            for chain_id, num_blocks in engine.take_evictions().items():
                session_id = self._session_by_chain.get(chain_id)
                if session_id is not None:
                    taken[session_id] = taken.get(session_id, 0) + num_blocks
        return taken
