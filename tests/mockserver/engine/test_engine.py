"""The machine's time: what a step costs, when tokens appear, and that quiet steps taken at once change nothing."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mockserver.clock import VirtualClock, run_virtual
from mockserver.driver import Driver
from mockserver.engine.chains import ChainTable
from mockserver.engine.config import EngineConfig
from mockserver.engine.cost import BatchShape, ConstantRates, FittedCost, GuidedDecoding, Jittered
from mockserver.engine.engine import Engine, RequestTooLongError
from mockserver.engine.profiles import get_profile
from mockserver.engine.request import Request
from mockserver.tokens import pack

COST = ConstantRates(prefill_tokens_per_s=1000.0, decode_floor_s=0.01, kv_bytes_per_token=1.0, memory_bytes_per_s=1e12)


def make_engine(*, num_blocks: int = 100, async_scheduling: bool = False, budget: int = 8192) -> Engine:
    config = EngineConfig(
        num_blocks=num_blocks,
        block_size=16,
        async_scheduling=async_scheduling,
        max_num_batched_tokens=budget,
    )
    return Engine(config, COST)


def make_request(request_id: str, num_prompt_tokens: int, num_output_tokens: int = 1) -> Request:
    chains = ChainTable(block_size=16)
    return Request(
        request_id=request_id,
        num_prompt_tokens=num_prompt_tokens,
        num_output_tokens=num_output_tokens,
        path=chains.path(pack(list(range(num_prompt_tokens + num_output_tokens)))),
    )


def run_until_idle(engine: Engine, at: float = 0.0) -> float:
    """Step by step, checking what is always true; returns the end of the last step."""
    while (step := engine.begin_step(at)) is not None:
        engine.check_invariants()
        engine.finish_step(step)
        engine.check_invariants()
        at = step.ends_at
    return at


def test_a_lone_request_gets_its_first_token_when_its_prompt_is_computed() -> None:
    engine = make_engine()
    request = make_request("a", num_prompt_tokens=100, num_output_tokens=3)
    engine.add(request, at=2.0)

    run_until_idle(engine, at=2.0)

    assert request.first_token_at == pytest.approx(2.1)
    assert request.last_token_at == pytest.approx(2.1 + 2 * 0.01)


def test_a_long_prompt_is_computed_in_chunks_and_decodes_share_the_step() -> None:
    """10 decodes run, then 5000 and 100 tokens arrive: 10 + 2038, 10 + 2038, 10 + 924 + 100 (semantics.md, 15.5)."""
    engine = make_engine(num_blocks=1000, budget=2048)
    chains = ChainTable(block_size=16)
    for number in range(10):
        path = chains.fresh_path(200)
        engine.add(Request(request_id=f"d{number}", num_prompt_tokens=16, num_output_tokens=100, path=path), at=0.0)
    first = engine.begin_step(0.0)
    assert first is not None
    engine.finish_step(first)
    for request_id, num_tokens in (("long", 5000), ("short", 100)):
        path = chains.fresh_path(num_tokens)
        engine.add(Request(request_id=request_id, num_prompt_tokens=num_tokens, num_output_tokens=1, path=path), at=0.1)

    chunks = []
    for _ in range(3):
        step = engine.begin_step(first.ends_at)
        assert step is not None
        chunks.append(list(step.batch.scheduled().values()))
        assert step.ends_at - step.starts_at == pytest.approx(sum(chunks[-1][10:]) / 1000.0 + 0.01)
        engine.finish_step(step)

    assert chunks == [[1] * 10 + [2038], [1] * 10 + [2038], [1] * 10 + [924, 100]]


def test_a_preempted_request_recomputes_and_loses_no_token() -> None:
    engine = make_engine(num_blocks=4)
    chains = ChainTable(block_size=16)
    requests = [
        Request(
            request_id=name,
            num_prompt_tokens=30,
            num_output_tokens=20,
            path=chains.path(pack([start + i for i in range(50)])),
        )
        for name, start in (("a", 0), ("b", 1000))
    ]
    for request in requests:
        engine.add(request, at=0.0)

    run_until_idle(engine)

    assert [request.num_preemptions for request in requests] == [0, 1]
    assert [request.num_generated_tokens for request in requests] == [20, 20]
    assert engine.snapshot().num_used_blocks == 0


def test_an_abort_frees_all_blocks_at_once_and_the_step_still_takes_its_time() -> None:
    engine = make_engine()
    engine.add(make_request("a", num_prompt_tokens=100), at=0.0)
    step = engine.begin_step(0.0)
    assert step is not None

    aborted = engine.abort("a", at=0.05)

    assert aborted is not None
    assert aborted.finish_reason == "abort"
    assert engine.snapshot().num_used_blocks == 0
    assert engine.finish_step(step).finished == []
    assert engine.snapshot().num_generated_tokens == 0
    engine.add(make_request("b", num_prompt_tokens=100), at=0.06)
    following = engine.begin_step(0.06)
    assert following is not None
    assert following.starts_at == step.ends_at
    assert engine.abort("a", at=1.0) is None


def test_a_request_that_can_never_fit_is_refused_with_vllms_words() -> None:
    engine = make_engine(num_blocks=4)

    with pytest.raises(RequestTooLongError, match="This model's maximum context length is 65 tokens"):
        engine.add(make_request("a", num_prompt_tokens=65), at=0.0)
    with pytest.raises(RequestTooLongError, match="max_tokens=20 cannot be greater than"):
        engine.add(make_request("b", num_prompt_tokens=50, num_output_tokens=20), at=0.0)

    engine.add(make_request("c", num_prompt_tokens=50, num_output_tokens=15), at=0.0)
    run_until_idle(engine)
    assert engine.snapshot().num_finished_requests == 1


def test_asynchronous_scheduling_costs_a_surprise_stop_one_more_slot() -> None:
    """Ending by max_tokens is foreseen: 4 steps for 4 tokens; a stop below it is noticed one step late."""
    steps = {}
    for max_tokens in (4, 9):
        engine = make_engine(async_scheduling=True)
        request = make_request("a", num_prompt_tokens=16, num_output_tokens=4)
        request.limit_num_tokens = 16 + max_tokens
        engine.add(request, at=0.0)
        in_flight = [engine.begin_step(0.0)]
        while in_flight:
            in_flight.append(engine.begin_step(0.0))
            step = in_flight.pop(0)
            if step is None:
                break
            engine.finish_step(step)
        steps[max_tokens] = engine.snapshot().num_steps

    assert steps == {4: 4, 9: 5}


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_a_grammar_slows_the_decode_of_all_by_the_share_that_it_guides(async_scheduling: bool) -> None:
    lasted = []  # two prompts of 20 tokens, 16 of which are the same; then ten steps of decode
    for num_guided in range(3):
        config = EngineConfig(num_blocks=100, block_size=16, async_scheduling=async_scheduling)
        engine = Engine(config, GuidedDecoding(COST, 0.2))
        for number in range(2):
            request = make_request(str(number), num_prompt_tokens=20, num_output_tokens=11)
            request.guided = number < num_guided
            engine.add(request, at=0.0)
        lasted.append(run_until_idle(engine))

    assert lasted == pytest.approx([0.024 + 10 * 0.01 * factor for factor in (1.0, 1.1, 1.2)])


def test_the_reference_profile_has_the_reference_figures() -> None:
    profile = get_profile("kimi-k2-8xb200")

    assert profile.step_cost(BatchShape(num_prefill_tokens=60_000)) == pytest.approx(1.0)
    assert 128 / profile.step_cost(BatchShape(num_decode_seqs=128)) == pytest.approx(32_000)
    assert profile.num_kv_tokens() == pytest.approx(6.77e6, rel=0.001)
    assert profile.num_kv_tokens("replicated") == pytest.approx(0.85e6, rel=0.005)
    assert profile.engine_config().num_blocks == 476_000_000_000 // 70_272 // 16


Record = tuple[str, float, float | None, float | None, float | None, int, int, float]


def simulate(seed: int, *, may_skip: bool, **config: object) -> tuple[list[Record], object]:
    """A random closed-loop workload with aborts, on the driver in virtual time."""
    rng = random.Random(seed)
    engine_config = EngineConfig(**config)  # type: ignore[arg-type]  # drawn by the property
    cost = FittedCost(floor_s=0.003, per_prefill_token_s=1e-5, per_decode_seq_s=1e-4, per_decode_context_token_s=1e-7)
    guided = GuidedDecoding(cost, 0.3)
    engine = Engine(engine_config, Jittered(guided, lambda: rng_jitter.lognormvariate(0.0, 0.2)))
    rng_jitter = random.Random(seed + 1)
    if not may_skip:
        engine.skip = lambda at, until, in_flight=None: at  # type: ignore[method-assign]  # the slow twin
    chains = ChainTable(block_size=engine_config.block_size)
    records: list[Record] = []

    async def main(clock: VirtualClock) -> None:
        driver = Driver(engine, clock)
        loop = asyncio.create_task(driver.run())

        async def client(number: int, seed: float) -> None:
            rng = random.Random(seed)
            history = [rng.randrange(3) for _ in range(rng.randrange(1, 60))]
            for turn in range(rng.randrange(1, 5)):
                await clock.sleep_until(clock.now() + rng.choice((0.0, 0.004, rng.random())))
                num_output_tokens = rng.choice((1, 2, rng.randrange(1, 80)))
                output = [rng.randrange(2) for _ in range(num_output_tokens)]
                request = Request(
                    request_id=f"{number}-{turn}",
                    num_prompt_tokens=len(history),
                    num_output_tokens=num_output_tokens,
                    path=chains.path(pack(history + output)),
                    max_tokens=num_output_tokens + rng.choice((0, 0, 5)),
                    priority=rng.randrange(3),
                    guided=rng.random() < 0.3,
                )
                try:
                    generation = driver.submit(request)
                except RequestTooLongError:
                    return
                if rng.random() < 0.15:
                    await clock.sleep_until(clock.now() + rng.random() * 0.5)
                    driver.abort(request.request_id)
                await generation.wait()
                engine.check_invariants()
                records.append(
                    (
                        request.request_id,
                        request.arrived_at,
                        request.scheduled_at,
                        request.first_token_at,
                        request.last_token_at,
                        request.num_cached_tokens,
                        request.num_preemptions,
                        clock.now(),
                    )
                )
                history = history + output + [rng.randrange(3) for _ in range(rng.randrange(1, 30))]

        async with asyncio.TaskGroup() as clients:
            for number in range(rng.randrange(1, 12)):
                clients.create_task(client(number, rng.random()))
        loop.cancel()

    run_virtual(main)
    return records, engine.snapshot()


@settings(max_examples=1000, deadline=None)
@given(
    seed=st.integers(0, 10**9),
    num_blocks=st.integers(8, 60),
    block_size=st.sampled_from([2, 4, 16]),
    max_num_seqs=st.integers(1, 12),
    max_num_batched_tokens=st.sampled_from([4, 16, 64, 512]),
    async_scheduling=st.booleans(),
    enable_prefix_caching=st.booleans(),
    scheduling_policy=st.sampled_from(["fcfs", "priority"]),
    long_prefill_token_threshold=st.sampled_from([0, 0, 7]),
)
def test_quiet_steps_taken_at_once_give_the_same_records_as_single_steps(seed: int, **config: object) -> None:
    """To the last bit: instants, cache hits, preemptions, counters; under jitter, aborts and priorities."""
    assert simulate(seed, may_skip=True, **config) == simulate(seed, may_skip=False, **config)


def test_skipping_does_skip() -> None:
    """The property above would hold if nothing were ever skipped: here 500 tokens take a few schedulings only."""
    engine = make_engine(num_blocks=1000, async_scheduling=True)
    num_scheduled = 0
    schedule = engine.scheduler.schedule

    def counting() -> object:
        nonlocal num_scheduled
        num_scheduled += 1
        return schedule()

    engine.scheduler.schedule = counting  # type: ignore[method-assign,assignment]  # counts, then does the real work

    async def main(clock: VirtualClock) -> None:
        driver = Driver(engine, clock)
        loop = asyncio.create_task(driver.run())
        await driver.submit(make_request("a", num_prompt_tokens=16, num_output_tokens=500)).wait()
        loop.cancel()

    run_virtual(main)

    assert engine.snapshot().num_steps == 500
    assert num_scheduled < 10
