"""Every setting of the load generator, defined once: its name, its default, its check and what it means.

Flags, ``LOADGEN_...`` variables and a TOML file all fill this one class (mockserver/settings.py reads them). Names that
``vllm bench serve`` has are vLLM's, and mean what they mean there. The classes it is built from say what is asked of
the agents, of the target and of the load.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from loadgen.load_settings import LoadSettings
from loadgen.target_settings import AUTO, IN_PROCESS, OWN_MOCK, SECRETS
from mockserver.settings import setting as _setting

__all__ = ["AUTO", "IN_PROCESS", "OWN_MOCK", "SECRETS", "Settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(LoadSettings):
    """What one run is told. ``None`` leaves an engine setting to the profile."""

    prefix_cache: tuple[str, ...] = _setting(
        ("off", "on"), "the prefix cache's states to compare: off, on", only="experiment"
    )
    enable_prefix_caching: bool | None = _setting(
        None, "keep KV blocks for later prompts with the same start", flags=("--prefix-caching",), only="run"
    )
    # -- what is kept ----------------------------------------------------------------------------------------------
    out: str | None = _setting(None, "directory of the results; default: runs/...", flags=("--result-dir",))
    save_detailed: bool = _setting(False, "keep the arrival of every chunk in calls.jsonl")
    sample_period: float | None = _setting(
        None, "simulated seconds between looks at the server; default: 0.5, then growing with the run"
    )
    # -- what is shown ---------------------------------------------------------------------------------------------
    live: bool = _setting(True, "show progress while the run goes on")

    def __post_init__(self) -> None:
        LoadSettings.__post_init__(self)
        if self.sample_period is not None and not self.sample_period > 0:
            raise ValueError(f"sample_period must be more than 0, got {self.sample_period}")
        for state in self.prefix_cache:
            if state not in ("off", "on"):
                raise ValueError(f"prefix_cache takes off and on, got {state!r}")

    def public(self) -> dict[str, Any]:
        """All settings but the secrets, for the run's header."""
        return {
            one.name: list(value) if isinstance(value := getattr(self, one.name), tuple) else value
            for one in dataclasses.fields(self)
            if one.name not in SECRETS
        }
