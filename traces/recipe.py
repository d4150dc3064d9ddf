"""What a generated workload is like: its distributions, and the figures of the embedded one."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True, slots=True, kw_only=True)
class LogNormal:
    """A whole number whose logarithm is normal, clipped to a range."""

    median: float
    sigma: float
    at_least: int = 1
    at_most: int

    def draw(self, rng: random.Random) -> int:
        """One number."""
        return self._clip(self.median * rng.lognormvariate(0.0, self.sigma))

    def draw_evenly(self, rng: random.Random, how_many: int) -> list[int]:
        """``how_many`` numbers, one from each of so many equally likely ranges, in random order.

        Their quantiles are the distribution's whatever the seed; those of a few hundred plain draws are not.
        """
        to_normal = NormalDist(0.0, self.sigma).inv_cdf
        quantiles = [(index + rng.random()) / how_many for index in range(how_many)]
        rng.shuffle(quantiles)
        return [self._clip(self.median * math.exp(to_normal(max(one, 1e-9)))) for one in quantiles]

    def _clip(self, number: float) -> int:
        return min(max(round(number), self.at_least), self.at_most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The distributions that a generated workload follows."""

    num_tasks: int
    num_calls: LogNormal
    schema_tokens: LogNormal
    """All tool schemas of a task together."""
    system_tokens: int
    user_tokens: LogNormal
    output_tokens: LogNormal
    result_tokens: LogNormal
    """What the tools of one step return together."""
    tokens_per_tool: int
    num_servers: Mapping[int, float]
    """How often a task has so many servers."""
    steps_in_domain: LogNormal
    """How many steps in a row stay with one server."""
    local_share: float
    """How often such a run of steps uses the agent's own tools."""
    num_parallel_calls: Mapping[int, float]
    """How often a step calls so many tools at once, if its output has room for two calls or more."""
    spoken_tokens: LogNormal
    """What the model says beside its tool calls, where it says something."""
    spoken_share: float


# Fitted to 413 runs of four models on the Toolathlon benchmark (hkust-nlp/Toolathlon-Trajectories, CC-BY-4.0),
# and to the reference figures of the model this stands for: median prompt 15.5k, median output 53 tokens, 6.8 M
# distinct tokens in 295 tasks.
TOOLATHLON_LIKE = Recipe(
    num_tasks=295,
    num_calls=LogNormal(median=26, sigma=0.5, at_least=2, at_most=100),
    schema_tokens=LogNormal(median=7000, sigma=0.4, at_least=1000, at_most=40_000),
    system_tokens=133,
    user_tokens=LogNormal(median=125, sigma=0.5, at_most=1000),
    output_tokens=LogNormal(median=53, sigma=1.2, at_most=4096),
    result_tokens=LogNormal(median=120, sigma=1.6, at_most=8000),
    tokens_per_tool=136,
    num_servers={2: 13, 3: 46, 4: 28, 5: 10, 6: 3},
    steps_in_domain=LogNormal(median=1.5, sigma=1.1, at_most=90),
    local_share=0.15,
    # 7 % of all steps, which is 15 % of those with an output long enough for two calls.
    num_parallel_calls={1: 85, 2: 5.4, 3: 3.3, 4: 1.7, 5: 2.4, 6: 0.8, 7: 0.4, 8: 1},
    spoken_tokens=LogNormal(median=15, sigma=0.8, at_most=300),
    spoken_share=0.55,
)
