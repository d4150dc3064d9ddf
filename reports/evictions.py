"""Whose cached blocks were evicted, and when: what a server of ours says with its samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reports.columns import Floats
from traces.record import ServerSample


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionColumns:
    """A row for each agent that lost blocks between two samples, in the order of the samples."""

    at: Floats
    """The later sample's time."""
    agent_id: tuple[str, ...]
    num_blocks: Floats
    is_known: bool
    """Whether the server says whose blocks they were; where not, no rows means nothing."""

    def __len__(self) -> int:
        return len(self.agent_id)


def eviction_columns(samples: Sequence[ServerSample]) -> EvictionColumns:
    """The evictions of a run."""
    rows = [
        (sample.at, agent_id, num_blocks)
        for sample in samples
        for agent_id, num_blocks in (sample.evicted_by_agent or {}).items()
    ]
    return EvictionColumns(
        at=np.asarray([at for at, _, _ in rows], dtype=np.float64),
        agent_id=tuple(agent_id for _, agent_id, _ in rows),
        num_blocks=np.asarray([num_blocks for _, _, num_blocks in rows], dtype=np.float64),
        is_known=any(sample.evicted_by_agent is not None for sample in samples),
    )
