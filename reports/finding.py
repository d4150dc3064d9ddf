"""The finding in words: who is faster, by how much, and what in the numbers explains it.

Every sentence is built from the runs' own numbers, and a cause is only named where the numbers carry it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from reports.compare import Comparison, LabelledRun
from reports.table import format_value

SAME_WITHIN = 1.03
"""Two makespans within 3 % of each other are called about the same."""
SATURATED_SHARE = 0.9
"""A server that is busy this much of the time is what limits a run."""
WAITING_SHARE = 0.5
"""Likewise where tasks spend this much of their critical path waiting for a place in the batch."""
EXPLAINED_WITHIN = 1.5
"""Work explains time where the logarithms of their ratios agree within this factor."""
ABOUT_AS_MANY = 1.25
"""Two counts within this factor are called about as many."""


def finding(comparison: Comparison) -> list[str]:
    """A few paragraphs: one for each pair that differs in its architecture, one for what the cache does."""
    runs = [run for run in comparison.runs if run.numbers.makespan_s]
    paragraphs = []
    if not comparison.is_valid:
        paragraphs.append("Not every run is valid, so what follows is a hint and not a result.")
    if len(comparison.runs) == 1:
        return paragraphs + [_alone(run) for run in runs]
    pairs = [pair for cache in (False, None, True) for pair in _architectures(runs, cache)]
    paragraphs += [_architecture_paragraph(fast, slow) for fast, slow in pairs]
    effects = _cache_effects(runs)
    if effects:
        paragraphs.append(_cache_paragraph(effects))
    if not pairs and not effects and len(runs) > 1:
        paragraphs.append(_ranking(runs))
    return paragraphs


def _makespan_s(run: LabelledRun) -> float:
    return run.numbers.makespan_s or math.nan


def _architectures(runs: Sequence[LabelledRun], cache: bool | None) -> list[tuple[LabelledRun, LabelledRun]]:
    """The fastest and the slowest run with this cache setting, where they are of different architectures."""
    alike = sorted((run for run in runs if run.header.prefix_caching is cache), key=_makespan_s)
    if len(alike) < 2 or alike[0].header.architecture == alike[-1].header.architecture:
        return []
    return [(alike[0], alike[-1])]


def _architecture_paragraph(fast: LabelledRun, slow: LabelledRun) -> str:
    ratio = _makespan_s(slow) / _makespan_s(fast)
    where = {True: "With the prefix cache on", False: "With the prefix cache off", None: "Here"}
    tasks = f"the {fast.header.num_tasks} tasks"
    opening = where[fast.header.prefix_caching]
    if ratio < SAME_WITHIN:
        sentences = [
            f"{opening}, {_name(fast)} and {_name(slow)} take about the same time for {tasks}:"
            f" {_seconds(fast)} and {_seconds(slow)}."
        ]
    else:
        sentences = [
            f"{opening}, {_name(fast)} finishes {tasks} in {_seconds(fast)};"
            f" {_name(slow)} takes {_seconds(slow)}, {_times(ratio)} as long."
        ]
    return " ".join([*sentences, *_causes(fast, slow, ratio)])


def _causes(fast: LabelledRun, slow: LabelledRun, ratio: float) -> list[str]:
    computed_fast, computed_slow = fast.numbers.num_computed_tokens, slow.numbers.num_computed_tokens
    if not computed_fast or not computed_slow:
        return [_path_sentence(slow), _path_sentence(fast)]
    work = (
        f"{_capital(_name(slow))} makes the server compute {format_value(computed_slow)} prompt tokens,"
        f" {_name(fast)} {format_value(computed_fast)}"
    )
    work_ratio = computed_slow / computed_fast
    decides = _is_server_limited(fast) and _is_server_limited(slow) and ratio >= SAME_WITHIN
    if not (decides and _explains(work_ratio, ratio)):
        return [f"{work}.", _path_sentence(slow), _path_sentence(fast), *_tail_sentence(fast, slow)]
    sentences = [
        _limit_sentence(fast, slow),
        f"{work}: {_times(work_ratio)} as many, which is the difference.",
        *_prompt_sentence(fast, slow),
    ]
    if _has_subagents(fast) and not _has_subagents(slow):
        sentences.append(
            "What wins is that each subagent carries only its own history and its own tools (information locality),"
            " not that subagents run in parallel: a server that is always busy has no idle time to fill."
        )
    return sentences


def _limit_sentence(fast: LabelledRun, slow: LabelledRun) -> str:
    """Why the server's work decides: it is never idle, or tasks do little else than wait for it."""
    if _is_busy(fast) and _is_busy(slow):
        return (
            f"The server is the limit in both (busy {_percent(slow.numbers.gpu_busy_share)} of the time with"
            f" {_name(slow)}, {_percent(fast.numbers.gpu_busy_share)} with {_name(fast)}), so its work decides."
        )
    return (
        f"In both a task mostly waits for the server ({_name(slow)} {_percent(_queue_share(slow))},"
        f" {_name(fast)} {_percent(_queue_share(fast))} of the critical path), so the server's work decides."
    )


def _prompt_sentence(fast: LabelledRun, slow: LabelledRun) -> list[str]:
    prompt_fast, prompt_slow = fast.numbers.prompt_length, slow.numbers.prompt_length
    if not (prompt_fast and prompt_slow and prompt_slow.p50 > prompt_fast.p50 * SAME_WITHIN):
        return []
    calls = ""
    if _agree(slow.numbers.num_calls / fast.numbers.num_calls, 1.0):
        calls = (
            f"The calls are about as many ({format_value(slow.numbers.num_calls)} and"
            f" {format_value(fast.numbers.num_calls)}), but "
        )
    median = f"the median prompt is {format_value(prompt_slow.p50)} tokens against {format_value(prompt_fast.p50)}."
    return [_capital(calls + median)]


def _tail_sentence(fast: LabelledRun, slow: LabelledRun) -> list[str]:
    """Where the run that ends later has the faster average task: its makespan is that of its longest tasks."""
    time_fast, time_slow = fast.numbers.task_time, slow.numbers.task_time
    if not (time_fast and time_slow and time_slow.mean < time_fast.mean and time_slow.max > time_fast.max):
        return []
    chains = fast.numbers.num_calls_of_longest_chain, slow.numbers.num_calls_of_longest_chain
    chain = "" if None in chains else f", a chain of {chains[1]} calls where {_name(fast)} has {chains[0]}"
    return [
        f"So {_name(slow)} has the faster average task, and ends later because of its longest:"
        f" {format_value(time_slow.max)} s against {format_value(time_fast.max)} s{chain}."
    ]


def _cache_effects(runs: Sequence[LabelledRun]) -> list[tuple[float, LabelledRun, LabelledRun]]:
    """For each architecture with both settings: how much faster the cache makes it, without and with it."""
    effects = []
    for architecture in dict.fromkeys(run.header.architecture for run in runs):
        off = [r for r in runs if r.header.architecture == architecture and r.header.prefix_caching is False]
        on = [r for r in runs if r.header.architecture == architecture and r.header.prefix_caching is True]
        if off and on:
            effects.append((_makespan_s(off[0]) / _makespan_s(on[0]), off[0], on[0]))
    return sorted(effects, key=lambda effect: -effect[0])


def _cache_paragraph(effects: Sequence[tuple[float, LabelledRun, LabelledRun]]) -> str:
    sentences = []
    for gain, off, on in effects:
        hits = on.numbers.hit_rate
        share = f"; {_percent(hits)} of its prompt tokens are hits" if hits is not None else ""
        sentences.append(
            f"{_capital(_name(on))} goes from {_seconds(off)} to {_seconds(on)} with the prefix cache,"
            f" {_times(gain)} as fast{share}."
        )
    if len(effects) > 1 and effects[0][0] > effects[-1][0] * SAME_WITHIN:
        most, least = effects[0], effects[-1]
        sentences.append(
            f"The cache helps {_name(most[1])} more than {_name(least[1])}, because it takes away"
            f" {format_value(_saved(most))} prompt tokens of work there and {format_value(_saved(least))} here."
        )
    evicted = [(on, on.numbers.num_evicted_blocks or 0) for _, _, on in effects]
    if any(count for _, count in evicted):
        each = " and ".join(f"{format_value(count)} for {_name(on)}" for on, count in evicted)
        sentences.append(f"The pool was full at times: blocks evicted, {each}.")
    return " ".join(sentences)


def _saved(effect: tuple[float, LabelledRun, LabelledRun]) -> int:
    _, off, on = effect
    return (off.numbers.num_computed_tokens or 0) - (on.numbers.num_computed_tokens or 0)


def _ranking(runs: Sequence[LabelledRun]) -> str:
    ranked = sorted(runs, key=_makespan_s)
    each = ", ".join(f"{run.label} {_seconds(run)}" for run in ranked)
    ratio = _makespan_s(ranked[-1]) / _makespan_s(ranked[0])
    sentences = [f"Makespans, shortest first: {each}; the longest is {_times(ratio)} the shortest."]
    sentences += [_path_sentence(run) for run in (ranked[0], ranked[-1])]
    return " ".join(sentences)


def _alone(run: LabelledRun) -> str:
    numbers = run.numbers
    sentences = [
        f"{_capital(run.label)}: {numbers.num_tasks_succeeded} of {run.header.num_tasks} tasks in {_seconds(run)},"
        f" {format_value(numbers.num_calls)} model calls."
    ]
    if numbers.hit_rate is not None:
        sentences.append(f"The cache served {_percent(numbers.hit_rate)} of the prompt tokens.")
    if numbers.gpu_busy_share is not None:
        sentences.append(f"The server was busy {_percent(numbers.gpu_busy_share)} of the time.")
    return " ".join([*sentences, _path_sentence(run)])


def _path_sentence(run: LabelledRun) -> str:
    shares = run.numbers.path_shares
    if shares is None or shares.total_s == 0:
        return f"Where the tasks of {_name(run)} spend their time is not in the records."
    parts = {
        "waiting for the server": shares.queue_s,
        "prefill": shares.prefill_s,
        "decode": shares.decode_s,
        "tools": shares.tool_s,
        "the agent's own delays": shares.harness_s,
    }
    largest = sorted(parts.items(), key=lambda part: -part[1])[:3]
    words = ", ".join(f"{name} {format_value(part)} s" for name, part in largest if part > 0)
    return f"An average task of {_name(run)} takes {format_value(shares.total_s)} s: {words}."


def _has_subagents(run: LabelledRun) -> bool:
    return bool((run.columns.tasks.num_subagents > 0).any())


def _is_server_limited(run: LabelledRun) -> bool:
    waiting = _queue_share(run)
    return _is_busy(run) or (waiting is not None and waiting >= WAITING_SHARE)


def _is_busy(run: LabelledRun) -> bool:
    share = run.numbers.gpu_busy_share
    return share is not None and share >= SATURATED_SHARE


def _queue_share(run: LabelledRun) -> float | None:
    shares = run.numbers.path_shares
    return None if shares is None or not shares.total_s else shares.queue_s / shares.total_s


def _explains(work_ratio: float, ratio: float) -> bool:
    """Whether the work differs about as much as the time does, on a scale of factors."""
    share = math.log(work_ratio) / math.log(ratio)
    return 1 / EXPLAINED_WITHIN <= share <= EXPLAINED_WITHIN


def _agree(one: float, other: float) -> bool:
    return max(one / other, other / one) <= ABOUT_AS_MANY


def _name(run: LabelledRun) -> str:
    return {"orchestrator": "the orchestrator", "react": "ReAct"}.get(run.header.architecture, run.header.architecture)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _seconds(run: LabelledRun) -> str:
    return f"{format_value(run.numbers.makespan_s)} s"


def _times(ratio: float) -> str:
    return f"{ratio:.1f} times" if ratio < 10 else f"{ratio:.0f} times"


def _percent(share: float | None) -> str:
    return "an unknown part" if share is None else f"{share:.1%}".replace("%", " %")
