"""What lies around and beneath the model calls, whatever the architecture; shared by all sessions of one run.

Everything in it is off until a setting asks for it, and costs nothing then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from loadgen.abilities import Abilities
from loadgen.context_policy import ContextPolicy
from loadgen.past import Past
from loadgen.sandboxes import SandboxPool
from loadgen.schedule import CallSchedule
from loadgen.state import StateKeeper
from loadgen.tool_layer import ToolLayer
from mockserver.clock import Clock


@dataclass(eq=False, slots=True, kw_only=True)
class Harness:
    """The framework that agents run in."""

    context_policy: ContextPolicy | None = None
    history_is_live: bool = False
    """Whether histories grow by what the server says, where it says something of its own."""
    shares_tools: bool = False
    """Whether every agent that has tools is given all of the task's, in the same order."""
    abilities: Abilities | None = None
    tools: ToolLayer | None = None
    """None: tools take their time and nothing else."""
    sandboxes: SandboxPool | None = None
    batch_window: BatchWindow | None = None
    past: Past = field(default_factory=Past)
    """What was done before the run was resumed."""
    schedule: CallSchedule | None = None
    """None: a call is due when what it needs is there."""
    state: StateKeeper | None = None
    """None: agents' state is kept nowhere."""
    num_cuts: int = 0
    """Histories that the context policy made shorter."""
    num_summaries: int = 0

    @asynccontextmanager
    async def sandbox(self, task_id: str, clock: Clock) -> AsyncIterator[bool]:
        """Where the tools of ``task_id`` run, as long as the context is open; whether there is such a place."""
        if self.sandboxes is None or self.past.has_ended(task_id):
            yield False
            return
        async with self.sandboxes.sandbox(task_id, clock):
            yield True

    def notes(self) -> dict[str, str]:
        """What a run's header says about all this."""
        notes: dict[str, str] = {}
        if self.context_policy is not None:
            policy = self.context_policy
            notes["context_policy"] = (
                f"{policy.name} at {policy.max_tokens:,} tokens: histories were cut {self.num_cuts:,} times and summed"
                f" up {self.num_summaries:,} times"
            )
        if self.abilities is not None:
            notes.update(self.abilities.notes())
        if self.tools is not None:
            notes["tools"] = self.tools.totals.text()
        if self.sandboxes is not None:
            notes["sandboxes"] = self.sandboxes.text()
        if self.state is not None:
            notes["state"] = self.state.totals.text(self.past.num_taken)
        if self.batch_window is not None:
            notes["batch_window"] = self.batch_window.text()
        return notes


@dataclass(eq=False, slots=True, kw_only=True)
class BatchWindow:
    """Opportunistic batching: calls that are due within a short time of each other are sent together.

    The first call that comes opens the window, and all that come before it closes are due when it does.
    """

    window_s: float
    closes_at: float = 0.0
    num_calls: int = 0
    num_windows: int = 0
    held_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.window_s > 0:
            raise ValueError(f"a batch window must be more than 0 s, got {self.window_s}")

    def release_at(self, due_at: float) -> float:
        """When a call that is due at ``due_at`` is to be sent."""
        if self.num_windows == 0 or due_at > self.closes_at:
            self.closes_at = due_at + self.window_s
            self.num_windows += 1
        self.num_calls += 1
        self.held_s += self.closes_at - due_at
        return self.closes_at

    def text(self) -> str:
        """One line for the run's header."""
        together = self.num_calls / self.num_windows if self.num_windows else 0.0
        held_s = self.held_s / self.num_calls if self.num_calls else 0.0
        return (
            f"calls due within {self.window_s * 1000:g} ms go together: {together:.2f} a window on average, each held"
            f" for {held_s * 1000:.1f} ms"
        )
