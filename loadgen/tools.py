"""How long tools take."""

from __future__ import annotations

import functools
import math
import random
from dataclasses import dataclass

from traces.trajectory import ToolCall

SHORTEST_S, LONGEST_S = 0.01, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainTimes:
    """Execution times of a domain's tools: lognormal, from 10 ms to 30 s."""

    median_s: float
    sigma: float
    is_remote: bool
    """Whether somebody else's machine does the work; else it takes one of our CPUs."""

    def draw(self, rng: random.Random) -> float:
        """One time."""
        return min(max(self.median_s * math.exp(rng.gauss(0.0, self.sigma)), SHORTEST_S), LONGEST_S)


# Medians: shell commands as recorded by coding agents (p50 0.12 s, p95 0.61 s); the others are assumptions.
_IN_MEMORY = DomainTimes(median_s=0.02, sigma=1.0, is_remote=False)
_SHELL = DomainTimes(median_s=0.12, sigma=1.0, is_remote=False)
_DOCUMENT = DomainTimes(median_s=0.4, sigma=0.9, is_remote=False)
_BROWSER = DomainTimes(median_s=2.0, sigma=0.9, is_remote=False)
_WEB_API = DomainTimes(median_s=0.6, sigma=0.8, is_remote=True)
_CLOUD = DomainTimes(median_s=1.5, sigma=1.0, is_remote=True)
DOMAIN_TIMES = {
    **dict.fromkeys(("local", "memory", "filesystem", "git", "howtocook", "rail_12306"), _IN_MEMORY),
    **dict.fromkeys(("terminal",), _SHELL),
    **dict.fromkeys(("excel", "word", "pptx", "pdf-tools", "arxiv_local", "arxiv-latex"), _DOCUMENT),
    **dict.fromkeys(("playwright_with_chunk",), _BROWSER),
    **dict.fromkeys(("google-cloud", "k8s", "snowflake", "wandb", "scholarly"), _CLOUD),
}
OTHER_DOMAINS = _WEB_API


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTimes:
    """Execution times of tools: exponential, by tool domain, or as recorded where the recording has them.

    A time depends on the seed, the task and the tool call only, so a task meets the same ones under every
    architecture, in whatever order its tools run.
    """

    seed: int = 0
    mean_s: float = 0.6
    recorded: bool = False
    by_domain: bool = False

    def __post_init__(self) -> None:
        if self.mean_s < 0:
            raise ValueError(f"the mean time of a tool must be at least 0 s, got {self.mean_s}")

    def latency_s(self, task_id: str, call: ToolCall, *, attempt: int = 0) -> float:
        """How long ``call`` takes, at the first attempt or at a later one."""
        if self.recorded and call.latency_s is not None:
            return call.latency_s
        if self.mean_s == 0 and not self.by_domain:
            return 0.0
        again = f"/{attempt}" if attempt else ""
        seed = f"{self.seed}/tool/{task_id}/{call.call_id}{again}"
        return _drawn_s(seed, DOMAIN_TIMES.get(call.domain, OTHER_DOMAINS) if self.by_domain else None, self.mean_s)

    def is_remote(self, domain: str) -> bool:
        """Whether a domain's tools take none of our workers."""
        return DOMAIN_TIMES.get(domain, OTHER_DOMAINS).is_remote


@functools.lru_cache(maxsize=65_536)
def _drawn_s(seed: str, domain_times: DomainTimes | None, mean_s: float) -> float:
    """One time; remembered, because seeding costs far more than drawing and every architecture asks for the same."""
    rng = random.Random(seed)
    return rng.expovariate(1 / mean_s) if domain_times is None else domain_times.draw(rng)
