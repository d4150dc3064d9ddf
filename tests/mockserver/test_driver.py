"""Where engine and clock meet: anchored steps, bursts for whoever watches, aborts that wake, nobody lost."""

from __future__ import annotations

import asyncio

import pytest

from mockserver.clock import VirtualClock, WallClock, run_virtual
from mockserver.driver import Driver, TokenBurst
from mockserver.engine.config import EngineConfig
from mockserver.engine.cost import ConstantRates
from mockserver.engine.engine import Engine, RequestTooLongError
from mockserver.engine.front_end import FrontEnd
from mockserver.engine.request import Request

COST = ConstantRates(prefill_tokens_per_s=1000.0, decode_floor_s=0.01, kv_bytes_per_token=1.0, memory_bytes_per_s=1e12)


def make_driver(clock: VirtualClock | WallClock, *, async_scheduling: bool = False) -> Driver:
    config = EngineConfig(num_blocks=200, async_scheduling=async_scheduling)
    return Driver(Engine(config, COST), clock)


def make_request(request_id: str, num_prompt_tokens: int = 100, num_output_tokens: int = 5) -> Request:
    return Request(
        request_id=request_id, num_prompt_tokens=num_prompt_tokens, num_output_tokens=num_output_tokens, path=()
    )


def test_a_watcher_sees_each_token_when_it_is_due() -> None:
    async def main(clock: VirtualClock) -> list[tuple[float, TokenBurst]]:
        driver = make_driver(clock)
        loop = asyncio.create_task(driver.run())
        seen = [(clock.now(), burst) async for burst in driver.submit(make_request("a"), watch=True)]
        loop.cancel()
        return seen

    seen = run_virtual(main)

    assert [burst.num_tokens for _, burst in seen] == [1, 1, 1, 1, 1]
    assert [now for now, _ in seen] == pytest.approx([0.1, 0.11, 0.12, 0.13, 0.14])
    assert all(now == burst.at for now, burst in seen)
    assert [burst.finished for _, burst in seen] == [False] * 4 + [True]


def test_a_watcher_that_was_away_gets_what_became_due_as_one_burst() -> None:
    async def main(clock: VirtualClock) -> list[int]:
        driver = make_driver(clock)
        loop = asyncio.create_task(driver.run())
        sizes = []
        async for burst in driver.submit(make_request("a", num_output_tokens=10), watch=True):
            sizes.append(burst.num_tokens)
            await clock.sleep_until(clock.now() + 0.033)
        loop.cancel()
        return sizes

    assert run_virtual(main) == [1, 3, 3, 3]


def test_one_who_waits_is_woken_by_an_abort_and_the_machine_goes_on() -> None:
    async def main(clock: VirtualClock) -> None:
        driver = make_driver(clock)
        loop = asyncio.create_task(driver.run())
        aborted = driver.submit(make_request("a", num_output_tokens=1000))
        other = driver.submit(make_request("b"))
        await clock.sleep_until(1.0)

        driver.abort("a")
        driver.abort("a")
        driver.abort("never there")
        await aborted.wait()

        assert clock.now() == 1.0
        assert aborted.finish_reason == "abort"
        assert 0 < aborted.num_output_tokens < 1000
        assert other.finish_reason == "length"
        assert driver.snapshot().num_used_blocks == 0
        await driver.submit(make_request("a")).wait()
        loop.cancel()

    run_virtual(main)


def test_an_idle_machine_starts_at_the_first_arrival() -> None:
    async def main(clock: VirtualClock) -> None:
        driver = make_driver(clock)
        loop = asyncio.create_task(driver.run())
        await clock.sleep_until(50.0)
        generation = driver.submit(make_request("a"))
        await generation.wait()
        assert generation.first_token_at == pytest.approx(50.1)
        assert generation.scheduled_at == 50.0
        loop.cancel()

    run_virtual(main)


def test_calls_that_follow_an_answer_at_once_join_the_next_step() -> None:
    """An agent without tools answers in no time: its next call is there before the step at that instant is decided."""

    async def main(clock: VirtualClock) -> None:
        driver = make_driver(clock)
        loop = asyncio.create_task(driver.run())
        first = driver.submit(make_request("a", num_output_tokens=1))
        driver.submit(make_request("b", num_output_tokens=1000))
        await first.wait()
        second = driver.submit(make_request("c", num_output_tokens=1))
        await second.wait()
        assert second.scheduled_at == first.last_token_at
        loop.cancel()

    run_virtual(main)


def test_refusals_come_from_submit_and_leave_nothing_behind() -> None:
    async def main(clock: VirtualClock) -> None:
        driver = make_driver(clock)
        with pytest.raises(RequestTooLongError):
            driver.submit(make_request("a", num_prompt_tokens=5000))
        driver.submit(make_request("a"))
        with pytest.raises(ValueError, match="request_id 'a' is in use"):
            driver.submit(make_request("a"))
        assert driver.snapshot().num_waiting == 1

    run_virtual(main)


def test_who_has_ended_is_told_before_who_goes_on() -> None:
    order: list[tuple[str, float]] = []

    async def main(clock: VirtualClock) -> None:
        driver = Driver(Engine(EngineConfig(num_blocks=200, async_scheduling=False), COST), clock)
        loop = asyncio.create_task(driver.run())

        async def listen(request: Request) -> None:
            async for burst in driver.submit(request, watch=1):
                order.append((request.request_id, burst.at))

        async with asyncio.TaskGroup() as group:
            group.create_task(listen(make_request("goes on", num_output_tokens=3)))
            group.create_task(listen(make_request("ends", num_output_tokens=2)))
        loop.cancel()

    run_virtual(main)

    second = sorted({at for _, at in order})[1]
    assert [name for name, at in order if at == second] == ["ends", "goes on"]


def test_a_front_end_takes_its_time_before_the_scheduler_sees_a_request() -> None:
    """TTFT and queue time count from the arrival; who leaves meanwhile is never scheduled, but has been read."""

    async def main(clock: VirtualClock) -> None:
        config = EngineConfig(num_blocks=200, async_scheduling=False)
        driver = Driver(Engine(config, COST), clock, front_end=FrontEnd(work_s=0.5, work_per_prompt_token_s=0.001))
        loop = asyncio.create_task(driver.run())
        gone = driver.submit(make_request("gone"))
        stays = driver.submit(make_request("stays"))
        with pytest.raises(RequestTooLongError):
            driver.submit(make_request("long", num_prompt_tokens=5000))

        await clock.sleep_until(0.3)
        driver.abort("gone")
        await gone.wait()
        await stays.wait()

        assert (gone.finish_reason, gone.scheduled_at) == ("abort", None)
        assert stays.arrived_at == 0.0
        assert stays.scheduled_at == pytest.approx(1.2)
        assert stays.first_token_at == pytest.approx(1.3)
        assert driver.snapshot().num_finished_requests == 1
        loop.cancel()

    run_virtual(main)


def test_the_way_to_the_front_end_is_taken_side_by_side_and_what_is_there_is_read_together() -> None:
    """Two arrive at 2.0 and are read until 3.0; one that arrives at 2.5 waits for that, and is read until 3.5."""

    async def main(clock: VirtualClock) -> None:
        config = EngineConfig(num_blocks=200, async_scheduling=False)
        driver = Driver(Engine(config, COST), clock, front_end=FrontEnd(work_s=0.5, latency_s=2.0))
        loop = asyncio.create_task(driver.run())
        one, other = driver.submit(make_request("one")), driver.submit(make_request("other"))
        await clock.sleep_until(0.5)
        late = driver.submit(make_request("late"))
        await late.wait()

        assert one.scheduled_at == other.scheduled_at == pytest.approx(3.0)
        assert late.scheduled_at == pytest.approx(3.5)
        loop.cancel()

    run_virtual(main)


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_the_first_step_of_an_idle_engine_is_longer(async_scheduling: bool) -> None:
    """It is decided when one comes at 1.0; another at 2.5 waits for the next. Whoever comes to a busy engine, or to one
    that is idle again, tells the difference.
    """

    async def main(clock: VirtualClock) -> None:
        config = EngineConfig(num_blocks=200, async_scheduling=async_scheduling)
        driver = Driver(Engine(config, COST), clock, front_end=FrontEnd(wakeup_s=2.0))
        loop = asyncio.create_task(driver.run())
        await clock.sleep_until(1.0)
        one = driver.submit(make_request("one"))
        await clock.sleep_until(2.5)
        other = driver.submit(make_request("other"))
        await other.wait()
        await clock.sleep_until(50.0)
        again = driver.submit(make_request("again"))
        await again.wait()
        loop.cancel()

        prefill_s = 0.1
        assert one.first_token_at is not None
        assert one.scheduled_at == pytest.approx(1.0)
        assert one.first_token_at == pytest.approx(1.0 + 2.0 + prefill_s, abs=0.011)
        assert other.first_token_at == pytest.approx(one.first_token_at + prefill_s, abs=0.03)
        assert again.first_token_at == pytest.approx(50.0 + 2.0 + prefill_s, abs=0.011)

    run_virtual(main)


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_who_arrives_holds_up_those_who_are_being_answered(async_scheduling: bool) -> None:
    """The first step begins at 1.0 and is held up by its own request and by one that comes meanwhile; a request to an
    engine that rests holds up its own step only.
    """

    async def first_tokens_at(clock: VirtualClock, arrival_s: float) -> list[float]:
        config = EngineConfig(num_blocks=200, async_scheduling=async_scheduling)
        driver = Driver(Engine(config, COST), clock, front_end=FrontEnd(arrival_s=arrival_s))
        loop = asyncio.create_task(driver.run())
        found = []
        for at in (1.0, 1.05, 30.0):
            await clock.sleep_until(at)
            found.append(driver.submit(make_request(str(at))))
        await found[-1].wait()
        loop.cancel()
        return [generation.first_token_at or 0.0 for generation in found]

    held_up = run_virtual(lambda clock: first_tokens_at(clock, 0.5))
    not_held_up = run_virtual(lambda clock: first_tokens_at(clock, 0.0))

    late_s = [with_s - without_s for with_s, without_s in zip(held_up, not_held_up, strict=True)]
    assert late_s == pytest.approx([1.0, 1.0, 0.5])


@pytest.mark.parametrize("in_lock_step", [False, True])
def test_ranks_in_lock_step_are_held_up_together(in_lock_step: bool) -> None:
    async def main(clock: VirtualClock) -> float | None:
        config = EngineConfig(num_blocks=200, async_scheduling=False)
        engines = [Engine(config, COST), Engine(config, COST)]
        driver = Driver(engines, clock, in_lock_step=in_lock_step, front_end=FrontEnd(arrival_s=0.5))
        loop = asyncio.create_task(driver.run())
        await clock.sleep_until(1.0)
        one = driver.submit(make_request("one"), rank=0)
        await clock.sleep_until(1.05)
        other = driver.submit(make_request("other"), rank=1)
        await other.wait()
        loop.cancel()
        return one.first_token_at

    assert run_virtual(main) == pytest.approx(2.11 if in_lock_step else 1.61, abs=0.02)


@pytest.mark.wall_clock
@pytest.mark.parametrize("rate", [1.0, 20.0])
async def test_a_late_process_does_not_slow_the_model(rate: float) -> None:
    """Steps are anchored: whatever the rate, 50 tokens at 10 ms take 0.49 s of the model's time after the first."""
    clock = WallClock(rate)
    driver = make_driver(clock, async_scheduling=True)
    loop = asyncio.create_task(driver.run())

    generation = driver.submit(make_request("a", num_output_tokens=50), watch=True)
    async for _ in generation:
        pass

    assert generation.first_token_at is not None
    assert generation.last_token_at is not None
    assert generation.last_token_at - generation.first_token_at == pytest.approx(0.49)
    assert clock.now() >= generation.last_token_at
    assert driver.lag.summary().num_samples == 50
    loop.cancel()


@pytest.mark.wall_clock
async def test_what_reaches_a_late_machine_arrives_in_its_present() -> None:
    """At a scale that no process carries the machine is always late, yet nobody is scheduled before arriving."""
    clock = WallClock(100_000.0)
    driver = make_driver(clock, async_scheduling=True)
    loop = asyncio.create_task(driver.run())
    queue_times: list[float] = []
    long = driver.submit(make_request("long", num_output_tokens=2500))

    for number in range(20):
        if long.finish_reason is not None:  # how many come while it is answered hangs on the machine
            long = driver.submit(make_request(f"long {number}", num_output_tokens=2500))
        short = driver.submit(make_request(f"short {number}", num_prompt_tokens=10, num_output_tokens=1))
        await short.wait()
        assert short.scheduled_at is not None
        queue_times.append(short.scheduled_at - short.arrived_at)
    loop.cancel()

    assert min(queue_times) >= 0.0
    assert driver.lag.summary().max_s > 1.0


@pytest.mark.wall_clock
async def test_what_comes_while_the_clock_is_held_arrives_at_one_instant_and_shares_the_first_step() -> None:
    clock = WallClock(50.0)
    clock.hold()
    driver = make_driver(clock, async_scheduling=True)
    loop = asyncio.create_task(driver.run())

    generations = []
    for name in ("a", "b", "c"):
        generations.append(driver.submit(make_request(name, num_prompt_tokens=10, num_output_tokens=2)))
        await asyncio.sleep(0.01)
    waiting = driver.snapshot().num_waiting
    clock.release()
    for generation in generations:
        await generation.wait()
    loop.cancel()

    assert waiting == 3
    assert len({generation.arrived_at for generation in generations}) == 1
    assert {generation.scheduled_at for generation in generations} == {generations[0].arrived_at}
