"""One model call, what came of it, and the seam it is sent through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from loadgen.context import Conversation, Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What an agent asks of the model."""

    call_id: str
    task_id: str
    agent_id: str
    conversation: Conversation
    """The history so far; it grows only between the calls of its agent."""
    reply: Message
    """The assistant message of the recording: what a scripted server answers."""
    num_output_tokens: int
    """How many tokens the answer is to have, its end of turn included: those of ``reply``."""
    is_overhead: bool = False
    """Whether the architecture adds it to what was recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What came back. Instants are the client's, in seconds of the run's clock."""

    sent_at: float
    ended_at: float
    """When the agent has the whole answer, or the error."""
    first_token_at: float | None = None
    last_token_at: float | None = None
    num_prompt_tokens: int | None = None
    num_cached_tokens: int | None = None
    num_output_tokens: int | None = None
    expected_output_tokens: int | None = None
    finish_reason: str | None = None
    error: str | None = None
    """None where the call succeeded, else one line."""
    status: int | None = None
    scheduled_at: float | None = None
    num_preemptions: int | None = None
    num_retries: int = 0
    lag_s: float | None = None
    chunk_at: tuple[float, ...] = ()


class Transport(Protocol):
    """How a call reaches a model: in this process, or over HTTP. Agents see nothing else of it."""

    async def complete(self, call: Call) -> Completion:
        """Send ``call`` and return when its answer has ended; failures are in the Completion, not raised."""
        ...
