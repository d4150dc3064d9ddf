"""The definition of every number, once. Records in, numbers out; no file is read and nothing is printed.

Names in the formulas: a call was due at q (``due_at``), sent at s (``sent_at``), its first token chunk came
at t1, its last at tk, and the server's usage says it has n output tokens. All percentiles are numpy's linear
ones. A value that the records do not hold is None or NaN, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from reports.columns import (
    Bools,
    CallColumns,
    Floats,
    TaskColumns,
    ToolColumns,
    call_columns,
    sample_columns,
    task_columns,
    tool_columns,
)
from reports.evictions import EvictionColumns, eviction_columns
from reports.numbers import Distribution, Objectives
from reports.window import Window, call_ended_at, window_of
from traces.record import CallRecord, Lag, RunHeader, ServerSample, TaskRecord, ToolRecord


@dataclass(frozen=True, kw_only=True)
class RunColumns:
    """A run's records as columns, and the header they belong to."""

    header: RunHeader
    calls: CallColumns
    tools: ToolColumns
    tasks: TaskColumns
    samples: dict[str, Floats]
    evictions: EvictionColumns
    window: Window | None
    """The part of the run that is measured; None: all of it."""

    @cached_property
    def predecessor_wait_s(self) -> Floats:
        """``predecessor_wait_s`` of its calls: the one number here that several others need and that takes long."""
        return predecessor_wait_s(self.calls, self.tools)


def collect(
    *,
    header: RunHeader,
    calls: Iterable[CallRecord],
    tools: Iterable[ToolRecord],
    tasks: Iterable[TaskRecord],
    samples: Iterable[ServerSample],
) -> RunColumns:
    """The columns that everything here is computed from; each iterable is read once."""
    looks = list(samples)
    made, done = call_columns(calls), task_columns(tasks)
    return RunColumns(
        header=header,
        calls=made,
        tools=tool_columns(tools),
        tasks=done,
        samples=sample_columns(looks),
        evictions=eviction_columns(looks),
        window=window_of(header.settings, made, done),
    )


# One value per call (NaN where the call has none). Only calls that succeeded and brought a token have times.


def ttft_s(calls: CallColumns) -> Floats:
    """Time to first token: t1 - s."""
    return _where(calls.arrived_with_tokens, calls.first_token_at - calls.sent_at)


def tpot_s(calls: CallColumns) -> Floats:
    """Time per output token after the first: (tk - t1) / (n - 1), where n > 1."""
    has_gaps = calls.arrived_with_tokens & (calls.num_output_tokens > 1)
    gaps = np.where(has_gaps, calls.num_output_tokens - 1, np.nan)
    return (calls.last_token_at - calls.first_token_at) / gaps


def e2e_s(calls: CallColumns) -> Floats:
    """End to end: tk - s."""
    return _where(calls.arrived_with_tokens, calls.last_token_at - calls.sent_at)


def latency_from_schedule_s(calls: CallColumns) -> Floats:
    """tk - q: what a user waits, also where the load generator itself was held up (coordinated omission)."""
    return _where(calls.arrived_with_tokens, calls.last_token_at - calls.due_at)


def dispatch_delay_s(calls: CallColumns) -> Floats:
    """s - q, for every call, failed ones too."""
    return calls.sent_at - calls.due_at


def predecessor_wait_s(calls: CallColumns, tools: ToolColumns) -> Floats:
    """The part of the dispatch delay in which the agent's previous call or its tools were not done yet."""
    done_at = _predecessor_done_at(calls, tools)
    waited = np.minimum(done_at, calls.sent_at) - calls.due_at
    return np.where(np.isnan(waited), 0.0, np.maximum(waited, 0.0))


def queue_time_s(calls: CallColumns) -> Floats:
    """Arrival to first scheduled, where the server says when that was; a call arrives when it is sent."""
    return _where(calls.succeeded & ~np.isnan(calls.scheduled_at), calls.started_at - calls.sent_at)


def task_time_s(tasks: TaskColumns) -> Floats:
    """First call due to last answer, tools included."""
    return _where(tasks.succeeded, tasks.ended_at - tasks.started_at)


def distribution(values: Floats) -> Distribution | None:
    """Mean, deviation and linear percentiles of the values that are there; None where there are none."""
    known = values[~np.isnan(values)]
    if known.size == 0:
        return None
    p50, p90, p99 = (float(value) for value in np.percentile(known, (50, 90, 99)))
    return Distribution(
        num=int(known.size),
        mean=float(known.mean()),
        std=float(known.std()),
        min=float(known.min()),
        p50=p50,
        p90=p90,
        p99=p99,
        max=float(known.max()),
    )


def meets_objectives(calls: CallColumns, objectives: Objectives) -> Bools:
    """Calls that meet every stated objective; a call without the metric misses it."""
    good = calls.succeeded.copy()
    for limit_s, values in (
        (objectives.ttft_s, ttft_s(calls)),
        (objectives.tpot_s, tpot_s(calls)),
        (objectives.e2e_s, e2e_s(calls)),
    ):
        if limit_s is not None:
            good &= values <= limit_s  # a comparison with NaN is false: the metric is missed
    return good


def num_reusable_tokens(calls: CallColumns, *, block_size: int) -> Floats:
    """Prompt tokens that a cache that forgets nothing could serve, as far as an agent's own history tells.

    An agent's prompt begins with its previous prompt and the reply to it, so whole blocks of both can be hit;
    never the last prompt token, which the model must run on. What agents share with each other (a system
    prompt) is not in the records, so this is a lower bound of the best possible.
    """
    reusable = np.zeros(len(calls))
    order, follows = _agent_order(calls)
    # The reply's last token was sampled and never computed, so its KV does not exist.
    history = calls.num_prompt_tokens[order][:-1] + calls.num_output_tokens[order][:-1] - 1
    can_hit = np.minimum(history, calls.num_prompt_tokens[order][1:] - 1) // block_size * block_size
    reusable[order[1:]] = np.where(follows[1:] & ~np.isnan(can_hit), np.maximum(can_hit, 0), 0)
    return np.maximum(reusable, np.nan_to_num(calls.num_cached_tokens))


def max_concurrent(started_at: Floats, ended_at: Floats) -> int:
    """The most intervals open at once; one that ends where another starts does not overlap it."""
    known = ~np.isnan(started_at) & ~np.isnan(ended_at)
    at = np.concatenate([started_at[known], ended_at[known]])
    change = np.concatenate([np.ones(known.sum()), -np.ones(known.sum())])
    order = np.lexsort((change, at))
    return int(np.max(np.cumsum(change[order]), initial=0))


def run_lag(run: RunColumns) -> Lag | None:
    """How late answers were delivered against the model's own time: the server's figure, else the calls'."""
    return run.header.server_lag or _lag(run.calls.lag_s[due_inside(run)])


def run_send_lag(run: RunColumns) -> Lag | None:
    """How late the load generator sent calls that could have been sent."""
    return run.header.send_lag or _lag(send_lateness_s(run)[due_inside(run)])


def send_lateness_s(run: RunColumns) -> Floats:
    """The part of the dispatch delay that is the load generator's own."""
    return dispatch_delay_s(run.calls) - run.predecessor_wait_s


# What is measured of a run, where not all of it is (reports.window says why).


def due_inside(run: RunColumns) -> Bools:
    """Calls whose latencies are measured."""
    window = run.window
    return np.ones(len(run.calls), dtype=np.bool_) if window is None else window.has(run.calls.due_at)


def ended_inside(run: RunColumns) -> Bools:
    """Calls that count for throughputs."""
    window = run.window
    return np.ones(len(run.calls), dtype=np.bool_) if window is None else window.has(call_ended_at(run.calls))


def chunk_gaps_s(calls: CallColumns, among: Bools) -> Floats:
    """The gaps between token chunks of the calls ``among`` which they are wanted."""
    return calls.chunk_gap_s[np.repeat(among, calls.num_chunk_gaps.astype(np.int64))]


def sampled_inside(run: RunColumns) -> dict[str, Floats]:
    """The samples of the server that were taken in the window."""
    window = run.window
    if window is None:
        return run.samples
    inside = window.has(run.samples["at"])
    return {name: values[inside] for name, values in run.samples.items()}


# One value per run; None where the records lack it.


def makespan_s(tasks: TaskColumns) -> float | None:
    """First task's start to last task's end."""
    return _span_s(tasks.started_at, tasks.ended_at)


def duration_s(run: RunColumns) -> float | None:
    """What throughputs are divided by: first task or call to last answer, also of tasks that did not end.

    Where only a part of the run is measured, the length of that.
    """
    if (window := run.window) is not None:
        return window.length_s
    started_at = np.concatenate([run.tasks.started_at, run.calls.due_at])
    ended_at = np.concatenate([run.tasks.ended_at, run.calls.last_token_at])
    return _span_s(started_at, ended_at)


def num_off(calls: CallColumns, measured: Floats, expected: Floats) -> int | None:
    """Calls that succeeded with another number of tokens than was expected; None where none was."""
    known = calls.succeeded & ~np.isnan(measured) & ~np.isnan(expected)
    return int((measured != expected)[known].sum()) if known.any() else None


def says_cached(calls: CallColumns) -> Bools:
    """Calls whose usage tells cached prompt tokens apart; only they enter a hit rate."""
    return calls.succeeded & ~np.isnan(calls.num_cached_tokens) & ~np.isnan(calls.num_prompt_tokens)


def hit_rate(calls: CallColumns, among: Bools | None = None) -> float | None:
    """Cached prompt tokens / prompt tokens, of all calls or those ``among`` which it is wanted."""
    counted = says_cached(calls) if among is None else says_cached(calls) & among
    return ratio(total(calls.num_cached_tokens[counted]), total(calls.num_prompt_tokens[counted]))


def reusable_hit_rate(calls: CallColumns, *, block_size: int, among: Bools | None = None) -> float | None:
    """``num_reusable_tokens`` / prompt tokens: at least this much the best possible cache would hit."""
    counted = says_cached(calls) if among is None else says_cached(calls) & among
    reusable = num_reusable_tokens(calls, block_size=block_size)
    return ratio(total(reusable[counted]), total(calls.num_prompt_tokens[counted]))


def gpu_busy_share(run: RunColumns) -> float | None:
    """Time in steps / time, between the first and the last sample of the server."""
    samples = sampled_inside(run)
    return ratio(increase(samples["busy_s"]), increase(samples["at"]))


def batch_occupancy(run: RunColumns) -> float | None:
    """Mean sequences per step over ``max_num_seqs``, each step weighted by how long it took."""
    samples = sampled_inside(run)
    mean_num_seqs = ratio(increase(samples["occupancy_s"]), increase(samples["busy_s"]))
    return ratio(mean_num_seqs, run.header.max_num_seqs)


def increase(counter: Floats) -> float | None:
    """What a counter of the server grew by over the run; None where it was not sampled twice, or is not told.

    A counter that falls is that of a server which was started anew, and grew from 0.
    """
    if counter.size < 2:
        return None
    steps = np.diff(counter)
    grown = float(np.sum(np.where(steps < 0, counter[1:], steps)))
    return None if math.isnan(grown) else grown


def total(values: Floats) -> int:
    """The sum of the counts that are known."""
    return int(np.nansum(values))


def ratio(value: float | None, whole: float | None) -> float | None:
    """A share or a rate; None where either side is unknown or there is nothing to divide by."""
    return None if value is None or not whole else value / whole


def _where(condition: Bools, values: Floats) -> Floats:
    return np.where(condition, values, np.nan)


def _span_s(started_at: Floats, ended_at: Floats) -> float | None:
    started, ended = started_at[~np.isnan(started_at)], ended_at[~np.isnan(ended_at)]
    return float(ended.max() - started.min()) if started.size and ended.size else None


def _lag(late_s: Floats) -> Lag | None:
    spread = distribution(late_s)
    if spread is None:
        return None
    return Lag(p50_s=spread.p50, p99_s=spread.p99, max_s=spread.max, num_samples=spread.num)


def _agent_order(calls: CallColumns) -> tuple[npt.NDArray[np.intp], Bools]:
    """The calls sorted by agent and index, and whether each one follows a call of the same agent."""
    number_by_agent: dict[str, int] = {}
    numbers = [number_by_agent.setdefault(agent_id, len(number_by_agent)) for agent_id in calls.agent_id]
    agent = np.asarray(numbers, dtype=np.int64)
    order = np.lexsort((calls.index, agent))
    follows = np.zeros(len(calls), dtype=np.bool_)
    follows[1:] = agent[order][1:] == agent[order][:-1]
    return order, follows


def _predecessor_done_at(calls: CallColumns, tools: ToolColumns) -> Floats:
    """When the agent's previous call and the tools it asked for had ended; NaN for an agent's first call."""
    tools_ended_at: dict[str, float] = {}
    for call_id, ended_at in zip(tools.call_id, tools.ended_at.tolist(), strict=True):
        tools_ended_at[call_id] = max(ended_at, tools_ended_at.get(call_id, -np.inf))
    own_end = np.asarray([tools_ended_at.get(call_id, -np.inf) for call_id in calls.call_id])
    ended_at = np.fmax(calls.last_token_at, own_end)
    done_at = np.full(len(calls), np.nan)
    order, follows = _agent_order(calls)
    done_at[order[1:]] = np.where(follows[1:], ended_at[order[:-1]], np.nan)
    return done_at
