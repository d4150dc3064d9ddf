"""The finding in words: who is faster, by how much, and what in the numbers explains it.

Every sentence is built from the runs' own numbers, and a cause is only named where the numbers carry it.
"""

from __future__ import annotations

from collections.abc import Sequence

from reports.compare import Comparison, LabelledRun, circumstances
from reports.table import format_value
from reports.words import (
    agree,
    capital,
    explains,
    has_subagents,
    is_busy,
    is_server_limited,
    makespan_s,
    name,
    path_sentence,
    percent,
    queue_share,
    seconds,
    thrash_sentences,
    times,
)

SAME_WITHIN = 1.03
"""Two makespans within 3 % of each other are called about the same."""


def finding(comparison: Comparison) -> list[str]:
    """A few paragraphs: one for each pair that differs in its architecture, one for what the cache does.

    Only runs that differ in nothing else are held against each other.
    """
    runs = [run for run in comparison.runs if run.numbers.makespan_s]
    paragraphs = []
    if not comparison.is_valid:
        paragraphs.append("Not every run is valid, so what follows is a hint and not a result.")
    if len(comparison.runs) == 1:
        return paragraphs + [_alone(run) for run in runs]
    groups = _alike(runs)
    told = 0
    for group in groups.values():
        where = _door(group[0]) if len(groups) > 1 else ""
        pairs = [pair for cache in (False, None, True) for pair in _architectures(group, cache)]
        texts = [_architecture_paragraph(fast, slow) for fast, slow in pairs]
        effects = _cache_effects(group)
        texts += [_cache_paragraph(effects)] if effects else []
        paragraphs += [f"{where}{text}" for text in texts]
        told += len(texts)
    if not told and len(runs) > 1:
        paragraphs.append(_ranking(runs))
    return paragraphs + _twins(runs)


def _alike(runs: Sequence[LabelledRun]) -> dict[tuple[object, ...], list[LabelledRun]]:
    """Runs that differ in their architecture and cache only, by everything else."""
    groups: dict[tuple[object, ...], list[LabelledRun]] = {}
    for run in runs:
        groups.setdefault(circumstances(run.header), []).append(run)
    return groups


def _door(run: LabelledRun) -> str:
    place = "In process" if run.header.is_in_process else "Over HTTP"
    return f"{place}, {run.header.clock} time, {run.header.profile or 'unknown profile'}: "


def _twins(runs: Sequence[LabelledRun]) -> list[str]:
    """How far runs over HTTP end from their twins in virtual time."""
    virtual = {_kind(run): run for run in runs if run.header.clock == "virtual"}
    apart = [
        makespan_s(run) / makespan_s(virtual[_kind(run)]) - 1
        for run in runs
        if run.header.clock != "virtual" and run.is_valid and _kind(run) in virtual
    ]
    if not apart:
        return []
    most = max(apart, key=abs)
    return [
        f"{len(apart)} runs in real time end within {abs(most):.1%} of their twins in virtual time.".replace("%", " %")
    ]


def _kind(run: LabelledRun) -> tuple[object, ...]:
    h = run.header
    return (h.architecture, h.prefix_caching, h.workload_digest, h.num_tasks, h.profile, h.max_num_seqs)


def _architectures(runs: Sequence[LabelledRun], cache: bool | None) -> list[tuple[LabelledRun, LabelledRun]]:
    """The fastest and the slowest run with this cache setting, where they are of different architectures."""
    alike = sorted((run for run in runs if run.header.prefix_caching is cache), key=makespan_s)
    if len(alike) < 2 or alike[0].header.architecture == alike[-1].header.architecture:
        return []
    return [(alike[0], alike[-1])]


def _architecture_paragraph(fast: LabelledRun, slow: LabelledRun) -> str:
    ratio = makespan_s(slow) / makespan_s(fast)
    where = {True: "With the prefix cache on", False: "With the prefix cache off", None: "Here"}
    tasks = f"the {fast.header.num_tasks} tasks"
    opening = where[fast.header.prefix_caching]
    if ratio < SAME_WITHIN:
        sentences = [
            f"{opening}, {name(fast)} and {name(slow)} take about the same time for {tasks}:"
            f" {seconds(fast)} and {seconds(slow)}."
        ]
    else:
        sentences = [
            f"{opening}, {name(fast)} finishes {tasks} in {seconds(fast)};"
            f" {name(slow)} takes {seconds(slow)}, {times(ratio)} as long."
        ]
    return " ".join([*sentences, *_causes(fast, slow, ratio), *thrash_sentences(slow, fast)])


def _causes(fast: LabelledRun, slow: LabelledRun, ratio: float) -> list[str]:
    computed_fast, computed_slow = fast.numbers.num_computed_tokens, slow.numbers.num_computed_tokens
    if not computed_fast or not computed_slow:
        return [path_sentence(slow), path_sentence(fast)]
    work = (
        f"{capital(name(slow))} makes the server compute {format_value(computed_slow)} prompt tokens,"
        f" {name(fast)} {format_value(computed_fast)}"
    )
    work_ratio = computed_slow / computed_fast
    decides = is_server_limited(fast) and is_server_limited(slow) and ratio >= SAME_WITHIN
    if not (decides and explains(work_ratio, ratio)):
        return [f"{work}.", path_sentence(slow), path_sentence(fast), *_tail_sentence(fast, slow)]
    sentences = [
        _limit_sentence(fast, slow),
        f"{work}: {times(work_ratio)} as many, which is the difference.",
        *_prompt_sentence(fast, slow),
    ]
    if has_subagents(fast) and not has_subagents(slow):
        sentences.append(
            "What wins is that each subagent carries only its own history and its own tools (information locality),"
            " not that subagents run in parallel: a server that is always busy has no idle time to fill."
        )
    return sentences


def _limit_sentence(fast: LabelledRun, slow: LabelledRun) -> str:
    """Why the server's work decides: it is never idle, or tasks do little else than wait for it."""
    if is_busy(fast) and is_busy(slow):
        return (
            f"The server is the limit in both (busy {percent(slow.numbers.gpu_busy_share)} of the time with"
            f" {name(slow)}, {percent(fast.numbers.gpu_busy_share)} with {name(fast)}), so its work decides."
        )
    return (
        f"In both a task mostly waits for the server ({name(slow)} {percent(queue_share(slow))},"
        f" {name(fast)} {percent(queue_share(fast))} of the critical path), so the server's work decides."
    )


def _prompt_sentence(fast: LabelledRun, slow: LabelledRun) -> list[str]:
    prompt_fast, prompt_slow = fast.numbers.prompt_length, slow.numbers.prompt_length
    if not (prompt_fast and prompt_slow and prompt_slow.p50 > prompt_fast.p50 * SAME_WITHIN):
        return []
    calls = ""
    if agree(slow.numbers.num_calls / fast.numbers.num_calls, 1.0):
        calls = (
            f"The calls are about as many ({format_value(slow.numbers.num_calls)} and"
            f" {format_value(fast.numbers.num_calls)}), but "
        )
    median = f"the median prompt is {format_value(prompt_slow.p50)} tokens against {format_value(prompt_fast.p50)}."
    return [capital(calls + median)]


def _tail_sentence(fast: LabelledRun, slow: LabelledRun) -> list[str]:
    """Where the run that ends later has the faster average task: its makespan is that of its longest tasks."""
    time_fast, time_slow = fast.numbers.task_time, slow.numbers.task_time
    if not (time_fast and time_slow and time_slow.mean < time_fast.mean and time_slow.max > time_fast.max):
        return []
    chains = fast.numbers.num_calls_of_longest_chain, slow.numbers.num_calls_of_longest_chain
    chain = "" if None in chains else f", a chain of {chains[1]} calls where {name(fast)} has {chains[0]}"
    return [
        f"So {name(slow)} has the faster average task, and ends later because of its longest:"
        f" {format_value(time_slow.max)} s against {format_value(time_fast.max)} s{chain}."
    ]


def _cache_effects(runs: Sequence[LabelledRun]) -> list[tuple[float, LabelledRun, LabelledRun]]:
    """For each architecture with both settings: how much faster the cache makes it, without and with it."""
    effects = []
    for architecture in dict.fromkeys(run.header.architecture for run in runs):
        off = [r for r in runs if r.header.architecture == architecture and r.header.prefix_caching is False]
        on = [r for r in runs if r.header.architecture == architecture and r.header.prefix_caching is True]
        if off and on:
            effects.append((makespan_s(off[0]) / makespan_s(on[0]), off[0], on[0]))
    return sorted(effects, key=lambda effect: -effect[0])


def _cache_paragraph(effects: Sequence[tuple[float, LabelledRun, LabelledRun]]) -> str:
    sentences = []
    for gain, off, on in effects:
        hits = on.numbers.hit_rate
        share = f"; {percent(hits)} of its prompt tokens are hits" if hits is not None else ""
        sentences.append(
            f"{capital(name(on))} goes from {seconds(off)} to {seconds(on)} with the prefix cache,"
            f" {times(gain)} as fast{share}."
        )
    if len(effects) > 1 and effects[0][0] > effects[-1][0] * SAME_WITHIN:
        most, least = effects[0], effects[-1]
        sentences.append(
            f"The cache helps {name(most[1])} more than {name(least[1])}, because it takes away"
            f" {format_value(_saved(most))} prompt tokens of {name(most[1])}'s work and"
            f" {format_value(_saved(least))} of {name(least[1])}'s."
        )
    evicted = [(on, on.numbers.num_evicted_blocks or 0) for _, _, on in effects]
    if any(count for _, count in evicted):
        each = " and ".join(f"{format_value(count)} for {name(on)}" for on, count in evicted)
        sentences.append(f"The pool was full at times: blocks evicted, {each}.")
    return " ".join(sentences)


def _saved(effect: tuple[float, LabelledRun, LabelledRun]) -> int:
    _, off, on = effect
    return (off.numbers.num_computed_tokens or 0) - (on.numbers.num_computed_tokens or 0)


def _ranking(runs: Sequence[LabelledRun]) -> str:
    ranked = sorted(runs, key=makespan_s)
    each = ", ".join(f"{run.label} {seconds(run)}" for run in ranked)
    ratio = makespan_s(ranked[-1]) / makespan_s(ranked[0])
    sentences = [f"Makespans, shortest first: {each}; the longest is {times(ratio)} the shortest."]
    sentences += [path_sentence(run) for run in (ranked[0], ranked[-1])]
    return " ".join(sentences)


def _alone(run: LabelledRun) -> str:
    numbers = run.numbers
    sentences = [
        f"{capital(run.label)}: {numbers.num_tasks_succeeded} of {run.header.num_tasks} tasks in {seconds(run)},"
        f" {format_value(numbers.num_calls)} model calls."
    ]
    if numbers.hit_rate is not None:
        sentences.append(f"The cache served {percent(numbers.hit_rate)} of the prompt tokens.")
    if numbers.gpu_busy_share is not None:
        sentences.append(f"The server was busy {percent(numbers.gpu_busy_share)} of the time.")
    return " ".join([*sentences, path_sentence(run)])
