"""What besides a server's cost makes a mock run and live runs differ: other prompts, another cache, other company."""

from __future__ import annotations

from collections.abc import Iterator

from reports.columns import CallColumns
from reports.fidelity import Fidelity, in_common
from reports.table import format_value

_MOST_APART = 0.02
"""Of all prompt tokens, or of those computed: what is closer makes no difference that shows."""


def hints(found: Fidelity) -> list[str]:
    """One line for each that was found, and how to do without it."""
    mock, live = found.mock.header, found.live[0].header
    said: list[str] = []
    runs = {"the mock": found.mock} | {f"live run {k}": run for k, run in enumerate(found.live[1:], start=2)}
    for name, run in runs.items():
        said += _other_work(name, run.columns.calls, found.live[0].columns.calls)
    is_held_to_text = live.profile is None and live.settings.get("exact_lengths") is not False
    if is_held_to_text and mock.settings.get("recorded_answers") is not False:
        said.append(
            "the live server answered with texts of its own, whose every token shows and which no later prompt holds;"
            " loadgen run --no-recorded-answers lets the mock do so"
        )
    if found.met_other_calls and not mock.settings.get("call_schedule"):
        said.append(
            f"calls were sent {format_value(found.sent_apart_s)} s earlier or later than on the live server (median),"
            " so they met other calls there, which is part of these errors; loadgen run --call-schedule LIVE-RUN sends"
            " the mock each call when the live server got it"
        )
    return said


def _other_work(name: str, calls: CallColumns, live: CallColumns) -> Iterator[str]:
    """Where the calls that both made had other prompts, or found another share of them in the cache."""
    here, there = in_common(calls, live, lambda run: run.num_prompt_tokens).sum(axis=0).tolist()
    if abs(here - there) > _MOST_APART * there:
        yield (
            f"{name} had {abs(here - there) / there:.0%} {_more(here - there)} prompt tokens in the same calls than"
            " live run 1; --endpoint completions makes them as long as the trace's on any server"
        )
        return
    here, there = in_common(calls, live, lambda run: run.num_cached_tokens).sum(axis=0).tolist()
    computed = in_common(calls, live, lambda run: run.num_prompt_tokens - run.num_cached_tokens)
    num_computed = float(computed[:, 1].sum())
    if abs(here - there) > _MOST_APART * num_computed:
        yield (
            f"{name} found {format_value(abs(here - there))} {_more(here - there)} prompt tokens in its cache than live"
            f" run 1, which computed {format_value(num_computed)}; --reset-prefix-cache begins with an empty one"
        )


def _more(difference: float) -> str:
    return "more" if difference > 0 else "fewer"
