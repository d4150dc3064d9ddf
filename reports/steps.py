"""A server's steps, seen from outside: what each batch held and how long it took, from when tokens arrived.

Every sequence of a batch gets its token when the step ends, so tokens that arrive together mark a step's end, and the
calls they belong to are its decoding sequences. Prompts are laid into the steps before their first token, as a
scheduler with a token budget would: whole budgets first, the rest last. Steps that brought nobody a token (an early
chunk of a long prompt) are hidden in the step after them, which then counts for several.

    tokens    |    ||| |||    |||| ||||      ||||
    steps   --|-----|---|------|----|---------|--     the gap before the last one: a prompt was computed, too
"""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from mockserver.engine.cost import padded_batch_size
from reports.observations import GRAPH_CEILING, Observation, SchedulerLimits, context_before_chunks, first_tokens
from traces.record import CallRecord

_SAME_INSTANT_S = 1e-9
_MAX_MISSING_SHARE = 0.2
_SAME_STEP_SHARE = 0.3
"""Tokens further apart than this part of the usual gap belong to different steps."""


@dataclass(eq=False, slots=True)
class _Step:
    ended_at: float
    decoding: list[tuple[int, int]] = field(default_factory=list)
    """(call, place of the token in its output) of tokens after the first."""
    first: list[int] = field(default_factory=list)
    """Calls that got their first token."""
    prefill: list[tuple[int, int, int]] = field(default_factory=list)
    """(call, first prompt token, one past the last) computed in this step."""
    num_phantoms: int = 0
    """Sequences that had ended by surprise and still held a place."""
    num_hidden: int = 0
    num_arrivals: int = 0
    """Calls that reached the scheduler while it ran."""

    @property
    def num_prefill_tokens(self) -> int:
        return sum(end - start for _, start, end in self.prefill)


def token_times(call: CallRecord) -> tuple[float, ...] | None:
    """When each token arrived; None where that cannot be told.

    A chunk may carry several tokens. Few such chunks are told apart by their gaps: a gap of two steps is about twice
    as long as the others, so what is missing goes where gaps are longest, evenly spaced.
    """
    num_missing = (call.num_output_tokens or 0) - len(call.chunk_at)
    if not num_missing:
        return call.chunk_at
    if call.num_preemptions or num_missing < 0 or num_missing > _MAX_MISSING_SHARE * (call.num_output_tokens or 0):
        return None
    gaps = [b - a for a, b in itertools.pairwise(call.chunk_at)]
    parts = [1] * len(gaps)
    longest = [(-gap, place) for place, gap in enumerate(gaps)]
    heapq.heapify(longest)
    for _ in range(num_missing):
        _, place = longest[0]
        parts[place] += 1
        heapq.heapreplace(longest, (-gaps[place] / parts[place], place))
    times = [call.chunk_at[0]]
    for start, gap, num_parts in zip(call.chunk_at, gaps, parts, strict=False):
        times += [start + gap * part / num_parts for part in range(1, num_parts + 1)]
    return tuple(times)


def share_in_step(calls: Sequence[CallRecord]) -> float:
    """How much of the decoding is in step: the mean share of the calls then decoding whose token came with a step.

    1 where tokens arrive as the server made them; far less where chunks come in disorder, and steps cannot be told.
    """
    steps = _steps_of(calls)
    starts = sorted(record.first_token_at or 0.0 for record in calls)
    ends = sorted(record.last_token_at or 0.0 for record in calls)
    shares = []
    for step in steps:
        at = step.ended_at
        num_decoding = bisect.bisect_left(starts, at - _SAME_INSTANT_S) - bisect.bisect_left(ends, at - _SAME_INSTANT_S)
        if step.decoding and num_decoding > 1:
            shares.append(min(1.0, len(step.decoding) / num_decoding))
    return float(np.mean(shares)) if shares else 1.0


def observe_steps(
    calls: Sequence[CallRecord], limits: SchedulerLimits, *, frontend_s: float = 0.0
) -> list[Observation]:
    """What the tokens of these calls tell of the server's steps; every call must have its ``token_times``.

    ``frontend_s`` is how long a request takes to the scheduler, as far as that is known already.
    """
    steps = _steps_of(calls)
    _lay_prompts(steps, calls, limits, frontend_s)
    _count_arrivals(steps, calls, frontend_s)
    return list(_observations(steps, calls, limits.max_num_batched_tokens))


def _steps_of(calls: Sequence[CallRecord]) -> list[_Step]:
    times_of = [token_times(record) or () for record in calls]
    tokens = sorted((at, call, place) for call, times in enumerate(times_of) for place, at in enumerate(times))
    gaps = [b - a for times in times_of for a, b in itertools.pairwise(times)]
    apart_s = _SAME_STEP_SHARE * float(np.percentile(gaps, 25)) if gaps else 0.0
    steps: list[_Step] = []
    members: set[int] = set()
    started_at = -np.inf
    times: list[float] = []
    for at, call, place in tokens:
        if at - started_at > apart_s or call in members:
            if times:
                steps[-1].ended_at = float(np.median(times))
            steps.append(_Step(ended_at=at))
            members, started_at, times = set(), at, []
        members.add(call)
        times.append(at)
        if place:
            steps[-1].decoding.append((call, place))
        else:
            steps[-1].first.append(call)
    if times:
        steps[-1].ended_at = float(np.median(times))
    return steps


def _lay_prompts(steps: list[_Step], calls: Sequence[CallRecord], limits: SchedulerLimits, frontend_s: float) -> None:
    """Give every prompt's computed tokens to steps up to the one that brought its first token, first come first
    served.

    A prompt takes what the decodes and the prompts before it leave of each budget, from the first step that was
    decided after it had come; and so late that it is not done before the step that brought its first token.
    """
    budget = limits.max_num_batched_tokens
    if limits.is_async:
        for before, step in itertools.pairwise(steps):
            step.num_phantoms = sum(
                place + 1 == calls[call].num_output_tokens and calls[call].finish_reason != "length"
                for call, place in before.decoding
            )
    decided_at = _decided_at(steps, calls, limits, frontend_s)
    room = [max(0, budget - len(step.decoding) - step.num_phantoms) for step in steps]
    first_step = {call: place for place, step in enumerate(steps) for call in step.first}
    for call in sorted(first_step, key=lambda c: (first_step[c], calls[c].sent_at, c)):
        last = first_step[call]
        record = calls[call]
        start, wanted = record.num_cached_tokens or 0, (record.num_prompt_tokens or 0) - (record.num_cached_tokens or 0)
        came_at = record.sent_at + frontend_s - _SAME_INSTANT_S
        place, earlier = last, 0
        while place and decided_at[place - 1] >= came_at and earlier + room[place - 1] < wanted:
            place -= 1
            earlier += room[place]
        for at in range(place, last):
            take = min(wanted, room[at])
            if take:
                steps[at].prefill.append((call, start, start + take))
                room[at] -= take
                start, wanted = start + take, wanted - take
        steps[last].prefill.append((call, start, start + wanted))
        steps[last].num_hidden += -(-max(0, wanted - room[last]) // budget)
        room[last] = max(0, room[last] - wanted)


def _count_arrivals(steps: list[_Step], calls: Sequence[CallRecord], frontend_s: float) -> None:
    """Count each call where it reached the scheduler: in the step that ran then."""
    ends = [step.ended_at for step in steps]
    for call in calls:
        place = bisect.bisect_left(ends, call.sent_at + frontend_s)
        if place < len(steps):
            steps[place].num_arrivals += 1


def _decided_at(
    steps: list[_Step], calls: Sequence[CallRecord], limits: SchedulerLimits, frontend_s: float
) -> list[float]:
    """When each step's batch was decided: as it started, or as the one before it did."""
    decided: list[float] = []
    started_at = -np.inf
    for place, step in enumerate(steps):
        before_at = steps[place - 1].ended_at if place else -np.inf
        came_at = min((calls[call].sent_at + frontend_s for call in step.first), default=np.inf)
        if not step.decoding and came_at >= before_at:
            started_at = came_at
            decided.append(came_at)
        else:
            decided.append(started_at if limits.is_async else before_at)
            started_at = before_at
    return decided


def _observations(steps: list[_Step], calls: Sequence[CallRecord], budget: int) -> Iterator[Observation]:
    for place, step in enumerate(steps):
        if not step.decoding and not step.prefill:
            continue
        before_at = steps[place - 1].ended_at if place else -np.inf
        work = [call for call, _, _ in step.prefill]
        first_sent_at = min((calls[call].sent_at for call in work), default=np.inf)
        starts_idle = not step.decoding and first_sent_at >= before_at
        if not step.decoding and not starts_idle:
            started_before = place > 1 and first_sent_at <= steps[place - 2].ended_at
            if not started_before:
                continue  # sent just before the step before it ended: the server may have been idle for a moment
        num_seqs = len(step.decoding) + step.num_phantoms
        yield Observation(
            duration_s=step.ended_at - (first_sent_at if starts_idle else before_at),
            num_steps=1 + step.num_hidden,
            num_mixed_steps=1 + step.num_hidden if step.prefill and step.decoding else 0,
            num_prefill_tokens=step.num_prefill_tokens,
            num_first_prefill_tokens=first_tokens(step.num_prefill_tokens, budget),
            prefill_attention=sum((end - start) * (start + end) / 2 for _, start, end in step.prefill),
            num_prefill_context_tokens=sum(context_before_chunks(start, end, budget) for _, start, end in step.prefill),
            num_decode_seqs=num_seqs,
            num_padded_seqs=num_seqs if step.prefill or not num_seqs else padded_batch_size(num_seqs, GRAPH_CEILING),
            num_decode_context_tokens=sum(
                (calls[call].num_prompt_tokens or 0) + token - 1 for call, token in step.decoding
            ),
            num_requests=float(starts_idle),
            num_request_prompt_tokens=max((calls[c].num_prompt_tokens or 0 for c in work), default=0)
            if starts_idle
            else 0,
            num_arrivals=0 if starts_idle else step.num_arrivals,
            at=step.ended_at,
        )
