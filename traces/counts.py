"""How much there is in a stream of trajectories, counted while it passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from traces.prompt_size import react_calls
from traces.trajectory import Trajectory


class Counts:
    """Counts trajectories on their way."""

    def __init__(self) -> None:
        self.num_tasks = 0
        self.num_calls = 0
        self.num_tool_calls = 0
        self.num_prompt_tokens = 0
        self.num_output_tokens = 0

    def watch(self, trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
        """``trajectories``, counted as they pass."""
        for trajectory in trajectories:
            self.num_tasks += 1
            self.num_calls += trajectory.num_calls
            self.num_tool_calls += trajectory.num_tool_calls
            for call in react_calls(trajectory):
                self.num_prompt_tokens += call.num_prompt_tokens
                self.num_output_tokens += call.num_output_tokens
            yield trajectory
