"""Every setting of the load generator, defined once: its name, its default, its check and what it means.

Flags, ``LOADGEN_...`` variables and a TOML file all fill this one class (mockserver/settings.py reads them). Names that
``vllm bench serve`` has are vLLM's, and mean what they mean there. The classes it is built from say what is asked of
the agents, of the target and of the load.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from loadgen.load_settings import LoadSettings
from loadgen.stores.store import shown
from loadgen.target_settings import AUTO, IN_PROCESS, OWN_MOCK, SECRETS
from mockserver.settings import setting as _setting

__all__ = ["AUTO", "IN_PROCESS", "OWN_MOCK", "SECRETS", "Settings"]

_URLS = ("state", "target")
"""Settings whose values may hold a password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(LoadSettings):
    """What one run is told. ``None`` leaves an engine setting to the profile."""

    prefix_cache: tuple[str, ...] = _setting(
        ("off", "on"), "the prefix cache's states to compare: off, on", only="experiment"
    )
    enable_prefix_caching: bool | None = _setting(
        None, "keep KV blocks for later prompts with the same start", flags=("--prefix-caching",), only="run sweep"
    )
    # -- one run after the other -----------------------------------------------------------------------------------
    sweep_over: Literal["max_concurrency", "request_rate"] = _setting(
        "max_concurrency", "the load that is varied: max_concurrency or request_rate", only="sweep"
    )
    sweep_values: tuple[float, ...] = _setting((1, 2, 4, 8, 16, 32, 64, 128), "the loads to run at", only="sweep")
    attainment: float = _setting(0.99, "share of the calls that must meet --goodput", only="sweep")
    search_steps: int = _setting(
        0, "further runs in search of the largest load that meets --goodput, between two of the values", only="sweep"
    )
    # -- what is kept ----------------------------------------------------------------------------------------------
    out: str | None = _setting(None, "directory of the results; default: runs/...", flags=("--result-dir",))
    save_detailed: bool = _setting(False, "keep the arrival of every chunk in calls.jsonl")
    sample_period: float | None = _setting(
        None, "simulated seconds between looks at the server; default: 0.5, then growing with the run"
    )
    twins: str | None = _setting(
        None,
        "results of the same in virtual time, which a run over HTTP takes its time scale from; default: do it first",
        only="run experiment",
    )
    # -- what is shown ---------------------------------------------------------------------------------------------
    live: bool = _setting(True, "show progress while the run goes on")

    def __post_init__(self) -> None:
        LoadSettings.__post_init__(self)
        if self.sample_period is not None and not self.sample_period > 0:
            raise ValueError(f"sample_period must be more than 0, got {self.sample_period}")
        if self.twins is not None and self.target != OWN_MOCK:
            raise ValueError(f"twins are of runs against a mock of one's own: --target http, got {self.target}")
        if not self.sweep_values or not all(value > 0 for value in self.sweep_values):
            raise ValueError(f"sweep_values must be more than 0, got {list(self.sweep_values)}")
        if self.sweep_over == "max_concurrency" and any(value != round(value) for value in self.sweep_values):
            raise ValueError(f"a concurrency is a whole number, got {list(self.sweep_values)}")
        if not 0 < self.attainment <= 1:
            raise ValueError(f"attainment must be in (0, 1], got {self.attainment}")
        if self.search_steps < 0 or (self.search_steps and not self.goodput):
            raise ValueError("search_steps needs --goodput to search by, and a number that is not negative")
        for state in self.prefix_cache:
            if state not in ("off", "on"):
                raise ValueError(f"prefix_cache takes off and on, got {state!r}")

    def public(self) -> dict[str, Any]:
        """All settings but the secrets, for the run's header: what JSON cannot hold as text, URLs without passwords."""
        values = {one.name: getattr(self, one.name) for one in dataclasses.fields(self) if one.name not in SECRETS}
        return {name: shown(value) if name in _URLS and value else _in_json(value) for name, value in values.items()}


def _in_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return "inf" if value == float("inf") else value
