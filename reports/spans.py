"""What calls that were alone tell of a server's cost by their first and last tokens alone.

With nobody else there, the time to the first token is the way in and out and the prompt's own steps, and every token
after it is one step of one sequence. Calls that met others say nothing without their tokens' times (``steps``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mockserver.engine.cost import padded_batch_size
from reports.observations import GRAPH_CEILING, Observation, SchedulerLimits, context_before_chunks, first_tokens
from traces.record import CallRecord


def observe_spans(calls: Sequence[CallRecord], limits: SchedulerLimits) -> list[Observation]:
    """The prefill and the decode of each call that was alone; calls in the order they were sent."""
    found: list[Observation] = []
    busy_until = float("-inf")
    for place, call in enumerate(calls):
        _, last = tokens_at(call)
        next_at = calls[place + 1].sent_at if place + 1 < len(calls) else float("inf")
        if busy_until <= call.sent_at and last <= next_at:
            found += _alone(call, limits)
        busy_until = max(busy_until, last)
    return found


def _alone(call: CallRecord, limits: SchedulerLimits) -> Iterator[Observation]:
    first, last = tokens_at(call)
    prompt, output = call.num_prompt_tokens or 0, call.num_output_tokens or 0
    if first > call.sent_at:
        yield first_token(call, limits)
    if output > 1 and last > first:
        num_steps = output - 1
        yield Observation(
            duration_s=last - first,
            num_steps=num_steps,
            num_decode_seqs=num_steps,
            num_padded_seqs=num_steps * padded_batch_size(1, GRAPH_CEILING),
            num_decode_context_tokens=num_steps * (prompt + (num_steps - 1) / 2),
            at=last,
        )


def first_token(call: CallRecord, limits: SchedulerLimits) -> Observation:
    """From sending to the first token, where the call met an idle server."""
    first, _ = tokens_at(call)
    prompt, cached = call.num_prompt_tokens or 0, call.num_cached_tokens or 0
    return Observation(
        duration_s=first - call.sent_at,
        num_steps=-(-(prompt - cached) // limits.max_num_batched_tokens),
        num_prefill_tokens=prompt - cached,
        num_first_prefill_tokens=first_tokens(prompt - cached, limits.max_num_batched_tokens),
        prefill_attention=(prompt**2 - cached**2) / 2,
        num_prefill_context_tokens=context_before_chunks(cached, prompt, limits.max_num_batched_tokens),
        num_requests=1,
        num_request_prompt_tokens=prompt,
        at=first,
    )


def tokens_at(call: CallRecord) -> tuple[float, float]:
    """The call's first and last token."""
    assert call.first_token_at is not None
    assert call.last_token_at is not None
    return call.first_token_at, call.last_token_at
