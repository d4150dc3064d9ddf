"""The reference experiment: the same tasks as ReAct and as orchestrator, prefix cache off and on."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from loadgen.architectures import short_name
from loadgen.config import IN_PROCESS, Settings
from loadgen.perform import Outcome

_CALLS_PER_REAL_S = 150.0
"""What a machine with two cores carries, server and client together, with room to spare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run of an experiment."""

    name: str
    settings: Settings


def cells(settings: Settings) -> Iterator[Cell]:
    """Every combination of architecture and prefix cache, in the order they are run."""
    for architecture, cache in itertools.product(settings.compared_architectures(), settings.prefix_cache):
        yield Cell(
            name=f"{short_name(architecture)}-{'cache' if cache == 'on' else 'nocache'}",
            settings=replace(settings, architecture=architecture, enable_prefix_caching=cache == "on"),
        )


def virtual_twin(settings: Settings) -> Settings:
    """The same run in virtual time."""
    return replace(settings, target=IN_PROCESS, clock="virtual")


def carried_time_scale(twin: Outcome) -> float:
    """The time scale at which this machine carries a run over HTTP, judged by its virtual twin."""
    makespan_s = twin.summary["makespan_s"]
    num_calls = twin.summary["completed"]
    return float(f"{makespan_s * _CALLS_PER_REAL_S / num_calls:.3g}")


def digest_of(outcomes: Sequence[Outcome]) -> str:
    """sha256 over the runs' digests."""
    digest = hashlib.sha256()
    for outcome in outcomes:
        digest.update(f"{outcome.header.digest}\n".encode())
    return digest.hexdigest()
