"""What each chart shows, as plain series: the data behind a picture, without how it is drawn.

``reports export RUN... --figure NAME`` prints the same series, so that every figure can be recomputed from
the run directories.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from reports import measure
from reports.columns import Floats
from reports.compare import Comparison, LabelledRun
from reports.series import QUANTILES, Figure, Series, averaged, rate


def figures(comparison: Comparison) -> list[Figure]:
    """Every figure that the runs have data for, in the order of the page."""
    return [figure for make in FIGURES.values() if (figure := make(comparison)).series]


def figure_named(comparison: Comparison, name: str) -> Figure:
    """One figure; ``ValueError`` names the known ones."""
    if name not in FIGURES:
        raise ValueError(f"no figure {name!r}; there are {', '.join(FIGURES)}")
    return FIGURES[name](comparison)


def makespan(comparison: Comparison) -> Figure:
    """How long each run took."""
    known = [(run.label, run.numbers.makespan_s) for run in comparison.runs if run.numbers.makespan_s]
    return Figure(
        name="makespan",
        title="Makespan",
        caption="From the first task's start to the last task's end, in simulated seconds. Shorter is better.",
        kind="bars",
        x_title="seconds",
        series=_bars(comparison, [run.numbers.makespan_s for run in comparison.runs]) if known else [],
    )


def prompt_tokens(comparison: Comparison) -> Figure:
    """The prefill work of each run, and what the cache took off it."""
    runs = [run for run in comparison.runs if run.numbers.num_computed_tokens is not None]
    labels = [run.label for run in runs]
    parts = (
        ("computed", [float(run.numbers.num_computed_tokens or 0) for run in runs]),
        ("from the cache", [float(run.numbers.num_cached_tokens or 0) for run in runs]),
    )
    return Figure(
        name="prompt_tokens",
        title="Prompt tokens, computed and cached",
        caption="All prompt tokens of a run. The server works for the computed ones; cached ones are nearly free.",
        kind="stack",
        x_title="tokens",
        series=[Series(name=n, x=v, y=labels, part=i) for i, (n, v) in enumerate(parts)] if runs else [],
    )


def hit_rate(comparison: Comparison) -> Figure:
    """The part of the prompt tokens that the cache served."""
    rates = [run.numbers.hit_rate for run in comparison.runs]
    return Figure(
        name="hit_rate",
        title="Hit rate",
        caption="Cached prompt tokens / prompt tokens.",
        kind="bars",
        x_title="% of prompt tokens",
        series=_bars(comparison, [None if rate is None else rate * 100 for rate in rates]),
    )


def critical_path(comparison: Comparison) -> Figure:
    """Where the time of an average task went, along the chain that decided it."""
    runs = [run for run in comparison.runs if run.numbers.path_shares is not None]
    labels = [run.label for run in runs]
    parts = (
        ("waiting for the server", "queue_s"),
        ("prefill", "prefill_s"),
        ("decode", "decode_s"),
        ("tools", "tool_s"),
        ("the agent's own delays", "harness_s"),
    )
    return Figure(
        name="critical_path",
        title="Why a task takes as long as it does",
        caption="The chain of calls, tools and waits that decided a task's end, averaged over the tasks of a run.",
        kind="stack",
        x_title="seconds per task",
        series=[
            Series(name=n, x=[getattr(run.numbers.path_shares, f) for run in runs], y=labels, part=i)
            for i, (n, f) in enumerate(parts)
        ]
        if runs
        else [],
    )


def _distribution(
    name: str, title: str, caption: str, unit: str, values: Callable[[LabelledRun], Floats], *, is_log: bool = True
) -> Callable[[Comparison], Figure]:
    def make(comparison: Comparison) -> Figure:
        series = []
        for place, run in enumerate(comparison.runs):
            known = values(run)
            known = known[~np.isnan(known)]
            if known.size:
                x = np.quantile(known, QUANTILES)
                series.append(Series(name=run.label, run=place, x=x.tolist(), y=(QUANTILES * 100).tolist()))
        return Figure(
            name=name,
            title=title,
            caption=caption,
            kind="lines",
            x_title=unit,
            y_title="% at most this",
            series=series,
            is_log_x=is_log,
        )

    make.__doc__ = f"The distribution of {title}."
    return make


def _over_time(
    name: str,
    title: str,
    caption: str,
    y_title: str,
    values: Callable[[LabelledRun], dict[str, Floats]],
    *,
    is_filled: bool = False,
) -> Callable[[Comparison], Figure]:
    def make(comparison: Comparison) -> Figure:
        series = []
        for place, run in enumerate(comparison.runs):
            at = run.columns.samples["at"]
            for part, (part_name, column) in enumerate(values(run).items()):
                is_known = ~np.isnan(column)
                if is_known.sum() < 2:
                    continue
                x, y = averaged(at[is_known], column[is_known])
                series.append(Series(name=part_name, run=place, part=part, x=x.tolist(), y=y.tolist()))
        if not any(value > 0 for one in series for value in map(float, one.y)):
            series = []  # nothing of the kind happened, or no server told
        return Figure(
            name=name,
            title=title,
            caption=caption,
            kind="panels",
            x_title="seconds",
            y_title=y_title,
            series=series,
            is_filled=is_filled,
        )

    make.__doc__ = f"{title}, one panel for each run."
    return make


def _samples(*names: tuple[str, str]) -> Callable[[LabelledRun], dict[str, Floats]]:
    return lambda run: {label: run.columns.samples[name] for label, name in names}


def _rates(*names: tuple[str, str]) -> Callable[[LabelledRun], dict[str, Floats]]:
    def values(run: LabelledRun) -> dict[str, Floats]:
        samples = run.columns.samples
        return {label: rate(samples["at"], samples[name]) for label, name in names}

    return values


def _pool(run: LabelledRun) -> dict[str, Floats]:
    samples = run.columns.samples
    whole = np.maximum(samples["num_blocks"], 1)
    return {
        "in use": samples["num_used_blocks"] / whole * 100,
        "cached": samples["num_cached_blocks"] / whole * 100,
    }


def _bars(comparison: Comparison, values: Sequence[float | None]) -> list[Series]:
    return [
        Series(name=run.label, run=place, x=[value], y=[run.label])
        for place, (run, value) in enumerate(zip(comparison.runs, values, strict=True))
        if value is not None
    ]


FIGURES: dict[str, Callable[[Comparison], Figure]] = {
    "makespan": makespan,
    "prompt_tokens": prompt_tokens,
    "hit_rate": hit_rate,
    "critical_path": critical_path,
    "task_time": _distribution(
        "task_time",
        "Task time",
        "How many of the tasks took at most so long, from the first call due to the last answer.",
        "seconds",
        lambda run: measure.task_time_s(run.columns.tasks),
        is_log=False,
    ),
    "ttft": _distribution(
        "ttft",
        "Time to first token",
        "How many of the calls had their first token after at most so long. Further left is better.",
        "seconds, logarithmic",
        lambda run: measure.ttft_s(run.columns.calls),
    ),
    "tpot": _distribution(
        "tpot",
        "Time per output token",
        "How many of the calls produced a token at least this fast, after the first.",
        "milliseconds, logarithmic",
        lambda run: measure.tpot_s(run.columns.calls) * 1000,
    ),
    "e2e": _distribution(
        "e2e",
        "End-to-end latency of a call",
        "How many of the calls were answered in full after at most so long.",
        "seconds, logarithmic",
        lambda run: measure.e2e_s(run.columns.calls),
    ),
    "prefill_queue": _over_time(
        "prefill_queue",
        "Prefill queue",
        "Prompt tokens of waiting and running requests that are still to be computed.",
        "tokens",
        _samples(("prompt tokens to compute", "num_waiting_tokens")),
    ),
    "batch": _over_time(
        "batch",
        "Running batch and waiting requests",
        "Sequences in the running batch, and requests that wait for a place in it.",
        "requests",
        _samples(("running", "num_running"), ("waiting", "num_waiting")),
    ),
    "kv_pool": _over_time(
        "kv_pool",
        "KV pool",
        "Blocks that live requests hold, and free blocks whose content can still be hit.",
        "% of the pool",
        _pool,
        is_filled=True,
    ),
    "evictions": _over_time(
        "evictions",
        "Evictions",
        "Blocks whose content was given up for new content, since the run's start.",
        "blocks",
        _samples(("evicted blocks", "num_evicted_blocks")),
    ),
    "prefill_rate": _over_time(
        "prefill_rate",
        "Prompt tokens computed per second",
        "The server's prefill work.",
        "tokens/s",
        _rates(("computed", "num_computed_prompt_tokens")),
    ),
    "cached_rate": _over_time(
        "cached_rate",
        "Prompt tokens from the cache per second",
        "Prompt tokens that the server did not have to compute.",
        "tokens/s",
        _rates(("from the cache", "num_cached_prompt_tokens")),
    ),
    "output_rate": _over_time(
        "output_rate",
        "Output tokens per second",
        "Tokens that the server generated.",
        "tokens/s",
        _rates(("generated", "num_generated_tokens")),
    ),
}
