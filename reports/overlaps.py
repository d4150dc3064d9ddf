"""What calls tell of a server's cost where tokens arrive in disorder: whole answers instead of single steps.

From its first token to its last a call is in every step, one token each, so how many steps that were is known
exactly, however late single chunks came. Who else was in them is counted from the others' tokens, taken as evenly
spread over their own time. That is blurred at the edges, and good where the noise of single steps is worse.
"""

from __future__ import annotations

import bisect
import itertools
import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mockserver.engine.cost import padded_batch_size
from reports.observations import (
    GRAPH_CEILING,
    Observation,
    SchedulerLimits,
    context_before_chunks,
    first_tokens,
    merged,
    total,
    usual,
)
from reports.spans import first_token, tokens_at
from reports.steps import observe_steps, token_times
from traces.record import CallRecord

_STRETCH = 16
"""Steps: enough for chunks that come late to make little difference."""
_AT_ONCE_SHARE = 0.1
"""Of a usual call's step: an answer whose tokens are closer was held back on its way, and tells its end alone."""
_SAME_STEP_SHARE = 0.9
"""Tokens closer than this part of a usual step came with the same one: the next takes a step at least."""


def observe_overlaps(calls: Sequence[CallRecord], limits: SchedulerLimits) -> list[Observation]:
    """The decode of every call that met others, the prefill where the server was idle, the steps of those alone."""
    neighbours = _Neighbours(calls)
    at_once_s = _AT_ONCE_SHARE * usual([step_s for call in calls if (step_s := _mean_step_s(call)) is not None])
    found: list[Observation] = []
    for call in calls:
        first, last = tokens_at(call)
        step_s = _mean_step_s(call)
        came_at_once = step_s is not None and step_s < at_once_s
        if not any(True for _ in neighbours.between(call.sent_at, last, call)):
            steps = observe_steps([call], limits)  # alone, its own tokens are its steps
            found += [total(steps)] if came_at_once else merged(steps)
            continue
        if came_at_once:
            continue
        if first > call.sent_at and not any(True for _ in neighbours.between(call.sent_at, first, call)):
            found.append(first_token(call, limits))
        if (call.num_output_tokens or 0) > 1 and last > first:
            found += _decode(call, neighbours, limits)
    return sorted(found, key=lambda one: one.at)


def _mean_step_s(call: CallRecord) -> float | None:
    """The mean time between the call's tokens; None with one token."""
    first, last = tokens_at(call)
    num_steps = (call.num_output_tokens or 0) - 1
    return (last - first) / num_steps if num_steps > 0 else None


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


def _decode(call: CallRecord, neighbours: _Neighbours, limits: SchedulerLimits) -> Iterator[Observation]:
    """The call's tokens after its first, in stretches: what came meanwhile is then told from what did not."""
    times = token_times(call) or tokens_at(call)
    num_steps = len(times) - 1
    usual_s = statistics.median(after - before for before, after in itertools.pairwise(times))
    num_stretches = max(1, num_steps // _STRETCH)
    edges = [round(number * num_steps / num_stretches) for number in range(num_stretches + 1)]
    for first, last in itertools.pairwise(edges):
        if times[last] > times[first]:
            stretch = _Stretch(call, first, last, times[first], times[last], _SAME_STEP_SHARE * usual_s)
            yield _observation(stretch, neighbours, limits)


class _Stretch(NamedTuple):
    """The steps of a call's tokens after ``first`` up to ``last``."""

    call: CallRecord
    first: int
    last: int
    start: float
    end: float
    together_s: float
    """Tokens so close to each other came with the same step."""


def _observation(stretch: _Stretch, neighbours: _Neighbours, limits: SchedulerLimits) -> Observation:
    call, first, last, start, end, together_s = stretch
    num_steps = last - first
    seqs, context = float(num_steps), _context(call, first, last)
    prompts: list[tuple[float, int]] = []
    attention = before = 0.0
    for other in neighbours.between(start, end + together_s, call):
        first_at, last_at = tokens_at(other)
        if last_at > first_at:
            num_gaps = (other.num_output_tokens or 1) - 1
            share = num_gaps / (last_at - first_at)
            begin, done = max(0.0, (start - first_at) * share), min(float(num_gaps), (end - first_at) * share)
            if done > begin:
                seqs += done - begin
                context += _context(other, begin, done)
        # A prompt is computed last in its wait; what came together with the stretch's first token was before it.
        if start + together_s < first_at <= end + together_s:
            prompt, cached = other.num_prompt_tokens or 0, other.num_cached_tokens or 0
            prompts.append((first_at, prompt - cached))
            attention += (prompt**2 - cached**2) / 2
            before += context_before_chunks(cached, prompt, limits.max_num_batched_tokens)
    prefill = sum(num_tokens for _, num_tokens in prompts)
    in_steps = _in_steps(prompts, together_s)
    budget = limits.max_num_batched_tokens
    padded = num_steps * padded_batch_size(max(1, round(seqs / num_steps)), GRAPH_CEILING)
    return Observation(
        duration_s=end - start,
        num_steps=max(num_steps, prefill / budget),
        num_mixed_steps=max(len(in_steps), -(-prefill // budget)),
        num_prefill_tokens=prefill,
        num_first_prefill_tokens=sum(first_tokens(num_tokens, budget) for num_tokens in in_steps),
        prefill_attention=attention,
        num_prefill_context_tokens=before,
        num_decode_seqs=seqs,
        num_padded_seqs=seqs if prefill else padded,
        num_decode_context_tokens=context,
        num_arrivals=len(prompts),
        at=end,
    )


def _in_steps(prompts: Sequence[tuple[float, int]], together_s: float) -> list[int]:
    """Tokens of the prompts of each step, which are those whose first tokens came together."""
    found: list[int] = []
    before_at = float("-inf")
    for at, num_tokens in sorted(prompts):
        if at - before_at > together_s:
            found.append(0)
        found[-1] += num_tokens
        before_at = at
    return found


def _context(call: CallRecord, first: float, last: float) -> float:
    """Sum of the context that each decode step between two of the call's tokens reads."""
    return (last - first) * ((call.num_prompt_tokens or 0) + (first + last) / 2)
