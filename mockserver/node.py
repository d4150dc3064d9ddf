"""A node made to run: its engines, one for each data-parallel rank, under one driver, and what tokenises for them."""

from __future__ import annotations

import random
from functools import partial

from mockserver.clock import Clock
from mockserver.driver import Driver
from mockserver.engine.cost import GuidedDecoding, Jittered, RankShare, StepCost
from mockserver.engine.engine import Engine
from mockserver.node_settings import NodeSettings
from mockserver.prompt import PromptEncoder

_BYTES_PER_TOKEN = 10  # its text and its id, and a little


def build_driver(settings: NodeSettings, clock: Clock) -> Driver:
    """The engines that ``settings`` describe; somebody must run the driver.

    With a ``split`` KV layout the ranks share one node: each has its part of the node's speed, and they step in lock
    if the profile says so. Otherwise each rank is a node of its own. ``lock_step`` overrides either.
    """
    profile, config = settings.resolve()
    num_ranks = settings.num_ranks
    shares_node = settings.kv_layout == "split" and num_ranks > 1
    step_cost: StepCost = RankShare(profile.step_cost, num_ranks) if shares_node else profile.step_cost
    if profile.guided_decoding_overhead:
        step_cost = GuidedDecoding(step_cost, profile.guided_decoding_overhead)
    engines = [
        Engine(config, _with_jitter(step_cost, settings.step_jitter, f"{settings.seed}/step/{rank}"))
        for rank in range(num_ranks)
    ]
    in_lock_step = shares_node and profile.steps_in_lock if settings.lock_step is None else settings.lock_step
    return Driver(
        engines,
        clock,
        routing_policy=settings.routing_policy,
        in_lock_step=in_lock_step,
        front_end=profile.front_end,
    )


def build_encoder(settings: NodeSettings, *, min_tokens: int) -> PromptEncoder:
    """An encoder that remembers twice as many tokens as the KV caches of all ranks hold, or ``min_tokens``.

    With less it would forget which prompts share blocks that are still cached, and hits would be lost.
    """
    _, config = settings.resolve()
    num_tokens = max(min_tokens, 2 * config.num_kv_tokens * settings.num_ranks)
    return PromptEncoder(
        block_size=config.block_size, max_chain_tokens=num_tokens, max_cache_bytes=_BYTES_PER_TOKEN * num_tokens
    )


def _with_jitter(step_cost: StepCost, sigma: float, seed: str) -> StepCost:
    if sigma == 0:
        return step_cost
    # Mean 1: a lognormal's mean is exp(mu + sigma^2 / 2).
    return Jittered(step_cost, partial(random.Random(seed).lognormvariate, -sigma * sigma / 2, sigma))
