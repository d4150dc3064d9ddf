"""What a live server's records say about the cost of its work: stretches of time, and the work done in each."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from mockserver.engine.cost import FIRST_PREFILL_TOKENS

GRAPH_CEILING = 512
"""Largest batch that vLLM captures as a CUDA graph by default; batches are padded to the sizes below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """What bounds a server's batch."""

    max_num_batched_tokens: int
    is_async: bool = True
    """The server decides a step before the one before it has ended, as vLLM does by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A stretch of time in which the server was busy, and what it did. Counts are sums over the steps in it."""

    duration_s: float
    num_steps: float
    num_mixed_steps: float = 0.0
    """Of its steps, those that decoded and computed prompt tokens."""
    num_prefill_tokens: float = 0.0
    num_first_prefill_tokens: float = 0.0
    """Of those of each step, the first ``FIRST_PREFILL_TOKENS``."""
    prefill_attention: float = 0.0
    """Chunk tokens times the mean context they attend to."""
    num_prefill_context_tokens: float = 0.0
    """Tokens that were there before the chunks."""
    num_decode_seqs: float = 0.0
    num_padded_seqs: float = 0.0
    """The same, with pure decode batches padded to the sizes of captured graphs."""
    num_decode_context_tokens: float = 0.0
    num_requests: float = 0.0
    """1 where the stretch begins with a request that met an idle server, so that its way in and out counts too."""
    num_request_prompt_tokens: float = 0.0
    """That request's prompt, cached or not: a front end reads all of it."""
    num_arrivals: float = 0.0
    """Requests that came meanwhile, and may have held it up."""
    at: float = 0.0
    """When it was: neighbours in time share their noise."""


def without_arrivals(observations: Sequence[Observation], arrival_s: float) -> list[Observation]:
    """What they would have taken, had no request held them up by ``arrival_s``."""
    return [replace(one, duration_s=one.duration_s - arrival_s * one.num_arrivals) for one in observations]


def context_before_chunks(num_cached: int, num_prompt: int, budget: int) -> int:
    """Tokens that are there before each of a prompt's chunks of ``budget`` tokens, summed up."""
    return sum(range(num_cached, num_prompt, budget))


def first_tokens(num_tokens: float, budget: int) -> float:
    """Prompt tokens among the first of their steps, where ``num_tokens`` are computed by themselves."""
    whole, rest = divmod(num_tokens, budget)
    return whole * min(budget, FIRST_PREFILL_TOKENS) + min(rest, FIRST_PREFILL_TOKENS)


_MERGED = 16
_JITTER_SHARE = 0.01
_LEAST_SHARE = 0.1
"""Of a mean: what is shorter was no step, but came late together with the one before."""


def merged(observations: Sequence[Observation]) -> list[Observation]:
    """The observations with their jitter averaged out, where there is such.

    A chunk that comes late makes its step look long and the next one short. Over a stretch of steps that cancels, and
    as costs add up, a sum of steps says as much as each of them. Stretches end where the server was idle.
    """
    steps = [one.duration_s for one in observations if not one.num_requests]
    usual_s = usual(steps)
    num_odd = sum(duration_s < 0.2 * usual_s for duration_s in steps)
    if num_odd <= _JITTER_SHARE * len(steps):
        return list(observations)
    found: list[Observation] = []
    stretch: list[Observation] = []
    for one in observations:
        if one.num_requests:
            found += [total(stretch)] if stretch else []
            found.append(one)
            stretch = []
            continue
        stretch.append(one)
        if len(stretch) == _MERGED:
            found.append(total(stretch))
            stretch = []
    return [*found, *([total(stretch)] if stretch else [])]


def usual(durations_s: Sequence[float]) -> float:
    """Their median but for those next to nothing, which are most where a client was held up; 0 where there are none."""
    least_s = _LEAST_SHARE * statistics.fmean(durations_s) if durations_s else 0.0
    kept = [duration_s for duration_s in durations_s if duration_s >= least_s]
    return statistics.median(kept) if kept else 0.0


def total(stretch: Sequence[Observation]) -> Observation:
    """One observation of all that was done in those that follow each other."""
    names = [field.name for field in fields(Observation) if field.name != "at"]
    return Observation(**{name: sum(getattr(one, name) for one in stretch) for name in names}, at=stretch[-1].at)
