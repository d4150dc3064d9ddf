"""One model call, what came of it, and the seam it is sent through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from loadgen.context import Conversation, Message
from traces.record import CallRecord


@dataclass(slots=True, kw_only=True)
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


@dataclass(slots=True, kw_only=True)
class Completion:
    """What came back. Instants are the client's, in seconds of the run's clock."""

    sent_at: float
    ended_at: float
    """When the agent has the whole answer, or the error."""
    first_token_at: float | None = None
    last_token_at: float | None = None
    num_prompt_tokens: int | None = None
    expected_prompt_tokens: int | None = None
    """The trace's, where the prompt was made to be as long for this server."""
    num_cached_tokens: int | None = None
    num_output_tokens: int | None = None
    expected_output_tokens: int | None = None
    finish_reason: str | None = None
    answer: Message | None = None
    """What the server said, reasoning left out; None where nobody wants to know."""
    error: str | None = None
    """None where the call succeeded, else one line."""
    status: int | None = None
    scheduled_at: float | None = None
    num_preemptions: int | None = None
    num_retries: int = 0
    lag_s: float | None = None
    is_retryable: bool = False
    """Whether the same call may succeed if it is sent again: the server was busy, or the connection stale."""
    retry_after_s: float | None = None
    """Real seconds that the server wants to be left alone before."""
    chunk_at: tuple[float, ...] = ()


class Transport(Protocol):
    """How a call reaches a model: in this process, or over HTTP. Agents see nothing else of it."""

    async def complete(self, call: Call) -> Completion:
        """Send ``call`` and return when its answer has ended; failures are in the Completion, not raised."""
        ...


@dataclass(slots=True, kw_only=True)
class DoneCall:
    """A call that has ended."""

    record: CallRecord
    ended_at: float
    """When its agent could go on."""
    answer: Message | None = None
    """What the server said, where the history holds that."""


def record_of(call: Call, completion: Completion, *, index: int, due_at: float) -> CallRecord:
    """What is kept of ``call``, its agent's ``index``-th, which was due at ``due_at``."""
    return CallRecord(
        call_id=call.call_id,
        task_id=call.task_id,
        agent_id=call.agent_id,
        index=index,
        due_at=due_at,
        sent_at=completion.sent_at,
        first_token_at=completion.first_token_at,
        last_token_at=completion.last_token_at,
        num_prompt_tokens=completion.num_prompt_tokens,
        num_cached_tokens=completion.num_cached_tokens,
        num_output_tokens=completion.num_output_tokens,
        expected_output_tokens=completion.expected_output_tokens,
        finish_reason=completion.finish_reason,
        error=completion.error,
        status=completion.status,
        scheduled_at=completion.scheduled_at,
        num_preemptions=completion.num_preemptions,
        num_retries=completion.num_retries,
        lag_s=completion.lag_s,
        chunk_at=completion.chunk_at,
        expected_prompt_tokens=completion.expected_prompt_tokens,
    )
