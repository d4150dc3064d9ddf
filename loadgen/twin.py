"""The virtual twin of a run over HTTP: the same run in virtual time, to take a time scale from and to compare with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from loadgen.config import IN_PROCESS, Settings
from loadgen.perform import Outcome
from loadgen.target import TargetError
from traces.jsonl import read_header

_SAYS_NOTHING = frozenset(
    (
        *("architectures", "clock", "goodput", "live", "out", "prefix_cache", "sample_period", "save_detailed"),
        *("target", "twins", "workload"),
    )
)
"""Settings that may differ between a run and its twin; the workload's digest is compared, not its name."""


def virtual_twin(settings: Settings) -> Settings:
    """The same run in virtual time, all of it measured."""
    return replace(
        settings,
        target=IN_PROCESS,
        clock="virtual",
        client="http",
        workers=1,
        ray=None,
        state=None,
        resume=False,
        call_schedule=None,
        num_warmups=0,
        warmup=0.0,
        cooldown=0.0,
        steady_window=False,
        time_scale="auto",
        stream_interval=None,
        repeat=1,
        twins=None,
    )


def kept_twin(directory: Path, settings: Settings, workload_digest: str) -> Outcome:
    """The twin that was run before and lies in ``directory``. Raises TargetError where that is another run."""
    header = read_header(directory)
    if header.clock != "virtual" or not header.complete:
        raise TargetError(f"{directory}: a twin is a finished run in virtual time")
    if header.workload_digest != workload_digest:
        raise TargetError(f"{directory}: a twin has the same workload, this has another")
    wanted, has = _that_matter(virtual_twin(settings).public()), _that_matter(header.settings)
    for name in sorted(wanted.keys() | has.keys()):
        if wanted.get(name) != has.get(name):
            raise TargetError(
                f"{directory}: a twin has the same settings; its {name} is {has.get(name)}, not {wanted.get(name)}"
            )
    return Outcome.of(directory)


def _that_matter(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in _SAYS_NOTHING}
