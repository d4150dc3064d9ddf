"""What calls tell of a server's cost where tokens arrive in disorder: whole answers instead of single steps.

From its first token to its last a call is in every step, one token each, so how many steps that were is known
exactly, however late single chunks came. Who else was in them is counted from the others' tokens, taken as evenly
spread over their own time. That is blurred at the edges, and good where the noise of single steps is worse.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence

from mockserver.engine.cost import padded_batch_size
from reports.observations import GRAPH_CEILING, Observation, SchedulerLimits, merged
from reports.spans import first_token, tokens_at
from reports.steps import observe_steps
from traces.record import CallRecord


def observe_overlaps(calls: Sequence[CallRecord], limits: SchedulerLimits) -> list[Observation]:
    """The decode of every call that met others, the prefill where the server was idle, the steps of those alone."""
    neighbours = _Neighbours(calls)
    found: list[Observation] = []
    for call in calls:
        first, last = tokens_at(call)
        if not any(True for _ in neighbours.between(call.sent_at, last, call)):
            found += merged(observe_steps([call], limits))  # alone, its own tokens are its steps
            continue
        if first > call.sent_at and not any(True for _ in neighbours.between(call.sent_at, first, call)):
            found.append(first_token(call, limits))
        if (call.num_output_tokens or 0) > 1 and last > first:
            found.append(_decode(call, neighbours, limits))
    return sorted(found, key=lambda one: one.at)


class _Neighbours:
    """Which calls were there at the same time."""

    def __init__(self, calls: Sequence[CallRecord]) -> None:
        self._calls = calls
        self._sent_at = [call.sent_at for call in calls]
        self._longest_s = max((tokens_at(call)[1] - call.sent_at for call in calls), default=0.0)

    def between(self, start: float, end: float, apart_from: CallRecord) -> Iterator[CallRecord]:
        for place in range(bisect.bisect_left(self._sent_at, start - self._longest_s), len(self._calls)):
            call = self._calls[place]
            if call.sent_at >= end:
                return
            if call is not apart_from and tokens_at(call)[1] > start:
                yield call


def _decode(call: CallRecord, neighbours: _Neighbours, limits: SchedulerLimits) -> Observation:
    start, end = tokens_at(call)
    num_steps = (call.num_output_tokens or 0) - 1
    seqs, context = float(num_steps), _context(call, 0.0, 1.0)
    prefill = attention = 0.0
    for other in neighbours.between(start, end, call):
        first, last = tokens_at(other)
        if last > first:
            share_from, share_to = max(0.0, (start - first) / (last - first)), min(1.0, (end - first) / (last - first))
            if share_to > share_from:
                seqs += (share_to - share_from) * ((other.num_output_tokens or 1) - 1)
                context += _context(other, share_from, share_to)
        if start < first <= end:  # a prompt is computed last in its wait
            prompt, cached = other.num_prompt_tokens or 0, other.num_cached_tokens or 0
            prefill += prompt - cached
            attention += (prompt**2 - cached**2) / 2
    padded = num_steps * padded_batch_size(max(1, round(seqs / num_steps)), GRAPH_CEILING)
    return Observation(
        duration_s=end - start,
        num_steps=max(num_steps, prefill / limits.max_num_batched_tokens),
        num_prefill_tokens=prefill,
        prefill_attention=attention,
        num_decode_seqs=seqs,
        num_padded_seqs=seqs if prefill else padded,
        num_decode_context_tokens=context,
        at=end,
    )


def _context(call: CallRecord, share_from: float, share_to: float) -> float:
    """Sum of the context that each decode step between two shares of the call's output reads."""
    num_steps = (call.num_output_tokens or 1) - 1
    middle = (call.num_prompt_tokens or 0) + num_steps * (share_from + share_to) / 2
    return num_steps * (share_to - share_from) * middle
