"""When task k starts: pure functions from a count to instants."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence


def at_once(num_tasks: int) -> tuple[float, ...]:
    """All tasks are there from the start."""
    return (0.0,) * num_tasks


def constant(num_tasks: int, *, rate: float) -> tuple[float, ...]:
    """One task every ``1 / rate`` seconds, the first at once."""
    _check_rate(rate)
    return tuple(k / rate for k in range(num_tasks))


def gamma(num_tasks: int, *, rate: float, burstiness: float, seed: int) -> tuple[float, ...]:
    """Gamma-distributed gaps with mean ``1 / rate``, as vLLM's ``--burstiness``.

    1 is a Poisson process, less is burstier, more is more even. The first task starts at once.
    """
    _check_rate(rate)
    if burstiness <= 0:
        raise ValueError(f"burstiness must be more than 0, got {burstiness}")
    rng = random.Random(f"{seed}/arrivals")
    gaps = (rng.gammavariate(burstiness, 1 / (rate * burstiness)) for _ in range(num_tasks - 1))
    return tuple(itertools.accumulate(gaps, initial=0.0))[:num_tasks]


def ramp(num_tasks: int, *, first_rate: float, last_rate: float, shape: str = "linear") -> tuple[float, ...]:
    """Tasks that come ever faster (or slower): the rate goes from ``first_rate`` to ``last_rate`` over the tasks."""
    _check_rate(first_rate)
    _check_rate(last_rate)
    if shape not in ("linear", "exponential"):
        raise ValueError(f"a ramp is linear or exponential, got {shape!r}")
    return tuple(_ramp_instants(num_tasks, first_rate, last_rate, shape))


def recorded(started_at: Sequence[float | None]) -> tuple[float, ...]:
    """The recorded starts, counted from the earliest."""
    known = [at for at in started_at if at is not None]
    if len(known) != len(started_at):
        num_unknown = len(started_at) - len(known)
        raise ValueError(f"recorded arrivals need a start for each task; {num_unknown} of {len(started_at)} have none")
    first = min(known, default=0.0)
    return tuple(at - first for at in known)


def _ramp_instants(num_tasks: int, first_rate: float, last_rate: float, shape: str) -> Iterator[float]:
    at = 0.0
    for k in range(num_tasks):
        yield at
        done = k / max(num_tasks - 1, 1)
        if shape == "linear":
            rate = first_rate + (last_rate - first_rate) * done
        else:
            rate = first_rate * (last_rate / first_rate) ** done
        at += 1 / rate


def _check_rate(rate: float) -> None:
    if rate <= 0:
        raise ValueError(f"a rate must be more than 0 tasks per second, got {rate}")
