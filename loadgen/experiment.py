"""The reference experiment: the same tasks as ReAct and as orchestrator, prefix cache off and on."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

import orjson

from loadgen.architectures import short_name
from loadgen.config import Settings
from loadgen.perform import Outcome
from loadgen.recorder import LagLimit
from mockserver.clock import real_seconds

_CALLS_PER_REAL_S = 320.0
"""What a fast machine with two cores carries, server and client together, with room to spare."""
STREAM_INTERVAL = 256
"""Tokens in a chunk where simulated time runs faster than real: a chunk a token is more than a socket carries then.
What shows first of an answer comes when it is due and so does the last token, whatever the interval."""
_REAL_LAG_S = 0.013
"""How late such a machine is at times; a run is valid where that is little beside its answers' times."""
_SPEED_ROUNDS = 8
_SPEED_STEPS = 200
_SPEED_NUMBERS = tuple(range(1024))
_SPEED_STEPS_S = 0.0038
_SPEED_MESSAGES = 9
_SPEED_BODIES = 60
_SPEED_BODIES_S = 0.0042
MOST_TRIES = 4
SLOWER = 0.65
"""After a try that was too fast, an automatic scale is this much of what it was; that many tries."""
_MAX_LAG_SHARE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run of an experiment."""

    name: str
    settings: Settings


def cells(settings: Settings) -> Iterator[Cell]:
    """Every combination of architecture and prefix cache, in the order they are run.

    A server that is not ours has its cache as it was started: there, the architectures alone.
    """
    if not settings.is_own_machine:
        for architecture in settings.compared_architectures():
            yield Cell(name=short_name(architecture), settings=replace(settings, architecture=architecture))
        return
    for architecture, cache in itertools.product(settings.compared_architectures(), settings.prefix_cache):
        yield Cell(
            name=f"{short_name(architecture)}-{'cache' if cache == 'on' else 'nocache'}",
            settings=replace(settings, architecture=architecture, enable_prefix_caching=cache == "on"),
        )


def carried_time_scale(twin: Outcome) -> float:
    """The time scale at which a machine with two cores carries a run over HTTP, judged by its virtual twin.

    Two things bound it: calls per real second, and how short the answers get beside the machine's own lateness.
    Both depend on how fast the machine is at this moment. The opening burst does not: see ``loadgen.opening``.
    """
    summary, speed = twin.summary, machine_speed()
    by_load = summary["makespan_s"] * _CALLS_PER_REAL_S * speed / summary["completed"]
    by_lag = _MAX_LAG_SHARE * summary["p50_e2el_ms"] / 1000 / _REAL_LAG_S * speed
    return float(f"{max(1.0, min(by_load, by_lag)):.3g}")


def machine_speed() -> float:
    """How fast this machine is here and now; 1: as where the constants above were found. Other people's work counts.

    The slower of two things that serving and sending calls is made of: Python's own steps, and moving and parsing
    bodies of a hundred kilobytes, which needs the memory that neighbours share.
    """
    body = orjson.dumps([{"role": "user", "content": f"{number} " * 5_000} for number in range(_SPEED_MESSAGES)])
    steps_s, bodies_s = [], []
    for _ in range(_SPEED_ROUNDS):
        started_at = real_seconds()
        place_by_number: dict[int, int] = {}
        for _ in range(_SPEED_STEPS):
            for number in _SPEED_NUMBERS:  # nothing is allocated: allocators differ more than machines
                place_by_number[number] = place_by_number.get(_SPEED_NUMBERS[number], number)
        stepped_at = real_seconds()
        kept = [orjson.loads(bytes(bytearray(body))) for _ in range(_SPEED_BODIES)]
        bodies_s.append(real_seconds() - stepped_at)
        steps_s.append(stepped_at - started_at)
        del kept
    return min(_SPEED_STEPS_S / median(steps_s), _SPEED_BODIES_S / median(bodies_s))


def lag_limit(twin: Outcome) -> LagLimit:
    """Past this a run over HTTP cannot be valid: more than one call in a hundred later than its share of the E2E.

    With half as much again for the E2E, which lateness itself makes longer.
    """
    summary = twin.summary
    return LagLimit(
        lag_s=1.5 * _MAX_LAG_SHARE * summary["p50_e2el_ms"] / 1000, num_calls=math.ceil(0.01 * summary["completed"])
    )


def is_too_fast(outcome: Outcome) -> bool:
    """Whether a run was given up, or is invalid, for its lateness, which a lower time scale would mend."""
    if outcome.interrupted:
        return False
    return not outcome.header.complete or any(" was late: " in reason for reason in outcome.header.invalid_reasons)


def digest_of(outcomes: Sequence[Outcome]) -> str:
    """sha256 over the runs' digests."""
    digest = hashlib.sha256()
    for outcome in outcomes:
        digest.update(f"{outcome.header.digest}\n".encode())
    return digest.hexdigest()
