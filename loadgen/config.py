"""Every setting of the load generator, defined once: its name, its default, its check and what it means.

Flags, ``LOADGEN_...`` variables and a TOML file all fill this one class; ``sources.py`` reads them. Names that
``vllm bench serve`` has are vLLM's, and mean what they mean there.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from loadgen.agent_settings import AgentSettings
from mockserver.settings import setting as _setting

IN_PROCESS = "in-process"
OWN_MOCK = "http"
AUTO = "auto"
SECRETS = frozenset({"api_key", "header"})
"""Settings that are never written anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(AgentSettings):
    """What one run is told. ``None`` leaves an engine setting to the profile."""

    # -- what is done ----------------------------------------------------------------------------------------------
    workload: str = _setting("toolathlon-like", "an embedded workload's name, or a file of trajectories")
    num_tasks: int | None = _setting(None, "the workload's first so many tasks; default: all", flags=("--num-prompts",))
    prefix_cache: tuple[str, ...] = _setting(
        ("off", "on"), "the prefix cache's states to compare: off, on", only="experiment"
    )
    # -- at what pace ----------------------------------------------------------------------------------------------
    max_concurrency: int | None = _setting(None, "tasks at work at once, at most; default: all of them")
    # -- against what ----------------------------------------------------------------------------------------------
    target: str = _setting(
        IN_PROCESS,
        "in-process (an engine in this process), http (a mock server started for the run), or a server's URL",
        flags=("--base-url",),
    )
    clock: Literal["virtual", "wall"] | None = _setting(
        None, "virtual: wait for nothing (in process only); wall: real time. Default: virtual in process, else wall"
    )
    time_scale: str = _setting(AUTO, "simulated seconds per real second, or auto: what this machine carries")
    model: str | None = _setting(None, "the model's name; default: what /v1/models says first")
    stream_interval: int | None = _setting(
        None, "ask for so many tokens in one chunk (the first comes at once); vLLM's stream_interval"
    )
    # -- the machine, where it is ours -----------------------------------------------------------------------------
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
        AgentSettings.__post_init__(self)
        for name in ("num_tasks", "max_concurrency", "stream_interval"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.sample_period is not None and not self.sample_period > 0:
            raise ValueError(f"sample_period must be more than 0, got {self.sample_period}")
        if not self.is_in_process and self.target != OWN_MOCK and not _is_url(self.target):
            raise ValueError(f"target must be in-process, http or a URL that starts with http, got {self.target!r}")
        if self.clock == "virtual" and not self.is_in_process:
            raise ValueError(f"virtual time is for target in-process only, got target {self.target!r}")
        if self.time_scale != AUTO:
            _positive_number(self.time_scale)
        for state in self.prefix_cache:
            if state not in ("off", "on"):
                raise ValueError(f"prefix_cache takes off and on, got {state!r}")

    @property
    def is_in_process(self) -> bool:
        """Whether the engine is in this process."""
        return self.target == IN_PROCESS

    @property
    def is_virtual(self) -> bool:
        """Whether the run waits for nothing."""
        return self.is_in_process and self.clock != "wall"

    @property
    def fixed_time_scale(self) -> float | None:
        """Simulated seconds per real second, where it is given."""
        return None if self.time_scale == AUTO else float(self.time_scale)

    def public(self) -> dict[str, Any]:
        """All settings but the secrets, for the run's header."""
        return {
            one.name: list(value) if isinstance(value := getattr(self, one.name), tuple) else value
            for one in dataclasses.fields(self)
            if one.name not in SECRETS
        }


def _is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def _positive_number(text: str) -> None:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"time_scale must be a number or auto, got {text!r}") from None
    if not 0.0 < value < float("inf"):
        raise ValueError(f"time_scale must be more than 0, got {text}")
