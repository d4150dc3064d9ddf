"""How long tools take."""

from __future__ import annotations

import random
from dataclasses import dataclass

from traces.trajectory import ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTimes:
    """Execution times of tools: exponential, or as recorded where the recording has them.

    A time depends on the seed, the task and the tool call only, so a task meets the same ones under every
    architecture, in whatever order its tools run.
    """

    seed: int = 0
    mean_s: float = 0.6
    recorded: bool = False

    def __post_init__(self) -> None:
        if self.mean_s < 0:
            raise ValueError(f"the mean time of a tool must be at least 0 s, got {self.mean_s}")

    def latency_s(self, task_id: str, call: ToolCall) -> float:
        """How long ``call`` takes."""
        if self.recorded and call.latency_s is not None:
            return call.latency_s
        if self.mean_s == 0:
            return 0.0
        rng = random.Random(f"{self.seed}/tool/{task_id}/{call.call_id}")
        return rng.expovariate(1 / self.mean_s)
