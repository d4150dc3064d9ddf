"""Nodes of several ranks: where requests go, and how ranks wait for each other."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from mockserver.clock import VirtualClock, run_virtual
from mockserver.driver import Driver, Generation
from mockserver.engine.profiles import get_profile
from mockserver.engine.request import Request
from mockserver.node import build_driver, build_encoder
from mockserver.node_settings import NodeSettings
from mockserver.profile_files import write_profile
from mockserver.prompt import PromptEncoder
from mockserver.tokens import pack

ENCODER = PromptEncoder(block_size=16)


def make_request(request_id: str, first_token: int = 0, num_prompt_tokens: int = 6000) -> Request:
    tokens = pack([first_token + number for number in range(num_prompt_tokens + 4)])
    return Request(
        request_id=request_id, num_prompt_tokens=num_prompt_tokens, num_output_tokens=4, path=ENCODER.path(tokens)
    )


def in_virtual_time(settings: NodeSettings, scenario: object) -> Driver:
    """Run ``scenario(driver, clock)`` against a node; returns its driver."""

    async def main(clock: VirtualClock) -> Driver:
        driver = build_driver(settings, clock)
        loop = asyncio.create_task(driver.run())
        await scenario(driver, clock)  # type: ignore[operator]  # a coroutine function of the tests
        loop.cancel()
        return driver

    return run_virtual(main)


def turns_of_two_agents(policy: str, session_ids: bool = True) -> list[int]:
    """Two agents of three turns each, one after another; the cached tokens of every turn."""
    cached: list[int] = []

    async def scenario(driver: Driver, clock: VirtualClock) -> None:
        for turn in range(3):
            for agent in range(2):
                request = make_request(
                    f"{agent}-{turn}", first_token=agent * 10_000, num_prompt_tokens=1600 + 160 * turn
                )
                session_id = f"agent {agent}" if session_ids else None
                generation = driver.submit(request, session_id=session_id)
                await generation.wait()
                cached.append(generation.num_cached_tokens)

    in_virtual_time(NodeSettings(data_parallel_size=3, routing_policy=policy), scenario)
    return cached


def test_a_balancer_blind_to_prefixes_scatters_the_turns_of_an_agent() -> None:
    assert turns_of_two_agents("round-robin") == [0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("policy", ["session-affinity", "prefix-aware"])
def test_turns_that_stay_on_one_rank_hit_what_came_before(policy: str) -> None:
    # Turn n+1's prompt is turn n's with its output and more: all full blocks but the last token's are hit.
    assert turns_of_two_agents(policy) == [0, 0, 1600, 1600, 1760, 1760]


def test_least_loaded_and_vllms_score_spread_what_arrives_together() -> None:
    for policy in ("least-loaded", "vllm", "round-robin"):

        async def scenario(driver: Driver, clock: VirtualClock) -> None:
            generations = [driver.submit(make_request(str(number), number * 10_000)) for number in range(8)]
            assert [engine.num_requests for engine in driver.engines] == [2, 2, 2, 2]
            for generation in generations:
                await generation.wait()

        in_virtual_time(NodeSettings(data_parallel_size=4, routing_policy=policy), scenario)


def test_a_pinned_request_goes_where_it_is_told() -> None:
    async def scenario(driver: Driver, clock: VirtualClock) -> None:
        generation = driver.submit(make_request("a"), rank=2)
        assert [engine.num_requests for engine in driver.engines] == [0, 0, 1]
        with pytest.raises(ValueError, match=r"data_parallel_rank 3 is out of range \[0, 3\)"):
            driver.submit(make_request("b"), rank=3)
        await generation.wait()

    in_virtual_time(NodeSettings(data_parallel_size=3), scenario)


def ends_of(settings: NodeSettings) -> dict[str, float]:
    """A long and a short prompt on two ranks: when each got its first token."""
    first_token_at: dict[str, float] = {}

    async def scenario(driver: Driver, clock: VirtualClock) -> None:
        generations: list[Generation] = [
            driver.submit(make_request("long", 0, num_prompt_tokens=800), rank=0),
            driver.submit(make_request("short", 50_000, num_prompt_tokens=80), rank=1),
        ]
        for generation in generations:
            await generation.wait()
            assert generation.first_token_at is not None
            first_token_at[generation.request_id] = generation.first_token_at

    in_virtual_time(settings, scenario)
    return first_token_at


def test_ranks_of_one_node_wait_for_the_slowest_and_nodes_of_their_own_do_not() -> None:
    """A rank of eight has an eighth of 60k tokens/s; in lock-step the short prompt waits for the long one's step."""
    assert ends_of(NodeSettings(data_parallel_size=2)) == pytest.approx({"long": 800 / 60e3, "short": 80 / 60e3})
    assert ends_of(NodeSettings(kv_layout="split")) == pytest.approx({"long": 800 / 7.5e3, "short": 800 / 7.5e3})


def test_lock_step_can_be_asked_for_and_declined() -> None:
    free = NodeSettings(kv_layout="split", lock_step=False)
    locked = NodeSettings(data_parallel_size=2, lock_step=True)

    assert ends_of(free) == pytest.approx({"long": 800 / 7.5e3, "short": 80 / 7.5e3})
    assert ends_of(locked) == pytest.approx({"long": 800 / 60e3, "short": 800 / 60e3})


def test_a_node_counts_all_its_ranks() -> None:
    async def scenario(driver: Driver, clock: VirtualClock) -> None:
        for generation in [driver.submit(make_request(str(number), number * 10_000)) for number in range(4)]:
            await generation.wait()

    snapshot = in_virtual_time(NodeSettings(data_parallel_size=2), scenario).snapshot()

    assert snapshot.num_finished_requests == 4
    assert snapshot.num_computed_prompt_tokens == 4 * 6000
    assert snapshot.num_used_blocks == 0
    assert snapshot.num_blocks == 2 * (6_773_679 // 16)
    assert 0.2 < snapshot.busy_s < 0.3


def test_jitter_is_seeded() -> None:
    def makespan(seed: int) -> float:
        async def scenario(driver: Driver, clock: VirtualClock) -> None:
            await driver.submit(make_request("a")).wait()
            ends.append(clock.now())

        ends: list[float] = []
        in_virtual_time(NodeSettings(step_jitter=0.3, seed=seed), scenario)
        return ends[0]

    assert makespan(1) == makespan(1)
    assert makespan(1) != makespan(2)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"block_size": 0}, "block_size must be at least 1, got 0"),
        ({"num_gpu_blocks_override": 1}, "num_gpu_blocks_override must be at least 2, got 1"),
        ({"num_gpu_blocks_override": 10}, r"a KV pool of 144 tokens \(9 blocks of 16\) cannot hold one request of max"),
        ({"routing_policy": "random"}, "routing_policy must be one of vllm"),
        ({"step_jitter": -1.0}, r"step_jitter must be in \[0, 2\], got -1.0"),
        ({"profile": "h100"}, "unknown profile 'h100'"),
        ({"data_parallel_size": 0}, "data_parallel_size must be at least 1, got 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        NodeSettings(**settings)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("num_ranks", [1, 4])
def test_encoder_knows_the_blocks_of_all_that_the_caches_of_all_ranks_can_hold(num_ranks: int) -> None:
    settings = NodeSettings(num_gpu_blocks_override=64, max_model_len=512, data_parallel_size=num_ranks)
    encoder = build_encoder(settings, min_tokens=0)
    num_prompts = 2 * settings.resolve()[1].num_kv_tokens * num_ranks // 128

    def path(prompt: int) -> object:
        return encoder.path(pack([1000 * prompt + number for number in range(128)]))

    first = path(0)
    for prompt in range(1, num_prompts):
        path(prompt)

    assert path(0) == first
    for prompt in range(1, num_prompts + 1):
        path(prompt)
    assert path(0) != first


def test_a_profiles_front_end_and_wake_up_are_the_nodes(tmp_path: Path) -> None:
    """The request comes at 1.0, is 0.3 s on its way and read for 0.4 s; its first step is 0.75 s longer."""
    path = tmp_path / "slow-to-begin.toml"
    profile = get_profile("kimi-k2-8xb200")
    write_profile(path, replace(profile, frontend_latency_s=0.3, frontend_s=0.4, wakeup_s=0.5, arrival_s=0.25))
    begun: list[float | None] = []
    answered: list[float] = []

    async def scenario(driver: Driver, clock: VirtualClock) -> None:
        await clock.sleep_until(1.0)
        generation = driver.submit(make_request("one"))
        await generation.wait()
        assert generation.first_token_at is not None
        begun.append(generation.scheduled_at)
        answered.append(generation.first_token_at)

    in_virtual_time(NodeSettings(profile=str(path)), scenario)
    in_virtual_time(NodeSettings(profile="kimi-k2-8xb200"), scenario)

    assert begun[0] == pytest.approx(1.7)
    assert answered[0] - answered[1] == pytest.approx(0.3 + 0.4 + 0.5 + 0.25)
