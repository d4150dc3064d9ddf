"""What one step computes."""

from __future__ import annotations

from dataclasses import dataclass, field

from mockserver.engine.cost import BatchShape
from mockserver.engine.request import Request


@dataclass(eq=False, slots=True)
class Batch:
    """What one step computes."""

    num_tokens_by_request: dict[Request, int] = field(default_factory=dict)
    """Scheduled tokens, in the scheduler's own order."""
    sampling: list[Request] = field(default_factory=list)
    """Requests that get a token when the step ends."""
    admitted: list[Request] = field(default_factory=list)
    resumed: list[Request] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    prompts_done: list[Request] = field(default_factory=list)
    """Those of ``sampling`` that come out of prefill: their token may be their first."""
    shape: BatchShape = field(default_factory=BatchShape)
