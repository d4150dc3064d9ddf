"""Numbers of a run as words and half sentences, and what they may be called: busy, about as many, explained."""

from __future__ import annotations

import math

from reports.compare import LabelledRun
from reports.table import format_value

SATURATED_SHARE = 0.9
"""A server that is busy this much of the time is what limits a run."""
WAITING_SHARE = 0.5
"""Likewise where tasks spend this much of their critical path waiting for a place in the batch."""
THRASHING = 0.02
"""Histories count as evicted too early where that costs this much of the hit rate."""
EXPLAINED_WITHIN = 1.5
"""Work explains time where the logarithms of their ratios agree within this factor."""
ABOUT_AS_MANY = 1.25
"""Two counts within this factor are called about as many."""


def makespan_s(run: LabelledRun) -> float:
    """The makespan; NaN where it is not known."""
    return run.numbers.makespan_s or math.nan


def path_sentence(run: LabelledRun) -> str:
    """Where an average task's time goes: the three largest parts of its critical path."""
    shares = run.numbers.path_shares
    if shares is None or shares.total_s == 0:
        return f"Where the tasks of {name(run)} spend their time is not in the records."
    parts = {
        "waiting for the server": shares.queue_s,
        "prefill": shares.prefill_s,
        "decode": shares.decode_s,
        "tools": shares.tool_s,
        "the agent's own delays": shares.harness_s,
    }
    largest = sorted(parts.items(), key=lambda part: -part[1])[:3]
    words = ", ".join(f"{name} {format_value(part)} s" for name, part in largest if part > 0)
    return f"An average task of {name(run)} takes {format_value(shares.total_s)} s: {words}."


def has_subagents(run: LabelledRun) -> bool:
    """Whether any task of the run had subagents."""
    return bool((run.columns.tasks.num_subagents > 0).any())


def is_server_limited(run: LabelledRun) -> bool:
    """Whether the server's work decides how long the run takes."""
    waiting = queue_share(run)
    return is_busy(run) or (waiting is not None and waiting >= WAITING_SHARE)


def is_busy(run: LabelledRun) -> bool:
    """Whether the server was hardly ever idle."""
    share = run.numbers.gpu_busy_share
    return share is not None and share >= SATURATED_SHARE


def queue_share(run: LabelledRun) -> float | None:
    """The part of the critical path that is waiting for a place in the batch."""
    shares = run.numbers.path_shares
    return None if shares is None or not shares.total_s else shares.queue_s / shares.total_s


def explains(work_ratio: float, ratio: float) -> bool:
    """Whether the work differs about as much as the time does, on a scale of factors."""
    share = math.log(work_ratio) / math.log(ratio)
    return 1 / EXPLAINED_WITHIN <= share <= EXPLAINED_WITHIN


def agree(one: float, other: float) -> bool:
    """Whether two counts are about the same."""
    return max(one / other, other / one) <= ABOUT_AS_MANY


def name(run: LabelledRun) -> str:
    """The architecture, as one says it."""
    return {"orchestrator": "the orchestrator", "react": "ReAct"}.get(run.header.architecture, run.header.architecture)


def capital(text: str) -> str:
    """With a capital first letter."""
    return text[:1].upper() + text[1:]


def seconds(run: LabelledRun) -> str:
    """The makespan, in words."""
    return f"{format_value(run.numbers.makespan_s)} s"


def times(ratio: float) -> str:
    """A factor, in words."""
    return f"{ratio:.1f} times" if ratio < 10 else f"{ratio:.0f} times"


def percent(share: float | None) -> str:
    """A share, in words."""
    return "an unknown part" if share is None else f"{share:.1%}".replace("%", " %")


def thrash_sentences(*runs: LabelledRun) -> list[str]:
    """For each run whose agents' histories were evicted before they were needed again, how much that cost."""
    sentences = []
    for run in runs:
        numbers = run.numbers
        rates = numbers.hit_rate, numbers.reusable_hit_rate
        if rates[0] is None or rates[1] is None or rates[1] - rates[0] < THRASHING or not numbers.num_evicted_blocks:
            continue
        lost = (rates[1] - rates[0]) * numbers.num_prompt_tokens
        sentences.append(
            f"The pool is too small for {name(run)}: {percent(rates[0])} of its prompt tokens are hits where its own"
            f" histories alone would have allowed {percent(rates[1])}, because {format_value(lost)} tokens of them were"
            " evicted before they were needed again."
        )
    return sentences
