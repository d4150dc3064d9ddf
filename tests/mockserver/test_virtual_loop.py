"""Stock asyncio works on the virtual loop; threads, sockets and deadlocks are refused by name."""

from __future__ import annotations

import asyncio
import math
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from mockserver.clock import DeadlockError, VirtualClock, VirtualLoop, VirtualTimeError, run_virtual


def timers_of(loop: asyncio.AbstractEventLoop) -> list[Any]:
    assert isinstance(loop, VirtualLoop)
    return loop._timers


class TestStockAsyncioInVirtualTime:
    def test_timeouts_use_virtual_seconds(self) -> None:
        async def main(clock: VirtualClock) -> float:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(30.0):
                    await clock.sleep_until(1000.0)
            return clock.now()

        assert run_virtual(main) == 30.0

    def test_a_timeout_that_was_not_needed_moves_no_time(self) -> None:
        async def main(clock: VirtualClock) -> float:
            async with asyncio.timeout(3600.0):
                await clock.sleep_until(1.0)
            await asyncio.sleep(1.0)
            return clock.now()

        assert run_virtual(main) == 2.0

    def test_queues_and_events_hand_over_at_the_same_instant(self) -> None:
        async def main(clock: VirtualClock) -> list[tuple[int, float]]:
            queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)
            done = asyncio.Event()
            taken: list[tuple[int, float]] = []

            async def producer() -> None:
                for index in range(3):
                    await clock.sleep_until(float(index))
                    await queue.put(index)

            async def consumer() -> None:
                for _ in range(3):
                    taken.append((await queue.get(), clock.now()))
                done.set()

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(producer())
                tasks.create_task(consumer())
                await done.wait()
            return taken

        assert run_virtual(main) == [(0, 0.0), (1, 1.0), (2, 2.0)]

    def test_call_later_can_be_cancelled(self) -> None:
        async def main(clock: VirtualClock) -> list[str]:
            called: list[str] = []
            loop = asyncio.get_running_loop()
            loop.call_later(1.0, called.append, "kept")
            loop.call_later(1.0, called.append, "cancelled").cancel()
            loop.call_soon(called.append, "cancelled").cancel()
            await clock.sleep_until(loop.time() + 2.0)
            return called

        assert run_virtual(main) == ["kept"]

    def test_a_failing_callback_is_reported_and_the_rest_runs(self) -> None:
        async def main(clock: VirtualClock) -> list[Any]:
            reported: list[Any] = []
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
            loop.call_soon([].pop)
            await clock.sleep_until(1.0)
            return reported

        (error,) = run_virtual(main)
        assert isinstance(error, IndexError)

    def test_left_over_tasks_and_generators_are_closed(self) -> None:
        closed: list[str] = []

        async def forever(clock: VirtualClock) -> None:
            try:
                await clock.sleep_until(1e9)
            finally:
                closed.append("task")

        async def endless(clock: VirtualClock) -> AsyncIterator[int]:
            try:
                while True:
                    yield 0
            finally:
                await clock.sleep_until(clock.now() + 1.0)
                closed.append("generator")

        async def main(clock: VirtualClock) -> None:
            task = asyncio.create_task(forever(clock))
            generator = endless(clock)
            await anext(generator)
            await clock.sleep_until(1.0)
            kept.extend([task, generator])

        kept: list[Any] = []
        run_virtual(main)

        assert closed == ["task", "generator"]

    def test_cancelled_sleeps_and_timers_do_not_pile_up(self) -> None:
        async def main(clock: VirtualClock) -> int:
            loop = asyncio.get_running_loop()
            most = 0
            for _ in range(2000):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.001):
                        await clock.sleep_until(1e9)
                async with asyncio.timeout(1e6):
                    await asyncio.sleep(0.001)
                most = max(most, len(timers_of(loop)))
            return most

        assert run_virtual(main) < 200

    def test_sweeping_cancelled_timers_keeps_the_order_of_the_others(self) -> None:
        async def main(clock: VirtualClock) -> list[int]:
            loop = asyncio.get_running_loop()
            called: list[int] = []
            timers = [loop.call_at(1.0 + index // 7, called.append, index) for index in range(1000)]
            for index, timer in enumerate(timers):
                if index % 5:
                    timer.cancel()
            assert len(timers_of(loop)) < 500
            await clock.sleep_until(1e6)
            return called

        assert run_virtual(main) == list(range(0, 1000, 5))


class TestWhatVirtualTimeRefuses:
    @pytest.mark.parametrize(
        "attempt",
        [
            lambda loop: loop.run_in_executor(None, time.monotonic),
            lambda loop: loop.create_connection(asyncio.Protocol, "localhost", 1),
            lambda loop: loop.create_server(asyncio.Protocol, "localhost", 0),
            lambda loop: loop.add_reader(0, print),
            lambda loop: loop.add_writer(1, print),
            lambda loop: loop.add_signal_handler(signal.SIGTERM, print),
            lambda loop: loop.getaddrinfo("localhost", 80),
            lambda loop: loop.sock_recv(None, 1),
            lambda loop: loop.subprocess_exec(asyncio.SubprocessProtocol, "true"),
            lambda loop: loop.set_default_executor(None),
        ],
    )
    def test_what_takes_real_time(self, attempt: Callable[[asyncio.AbstractEventLoop], Any]) -> None:
        async def main(_: VirtualClock) -> None:
            attempt(asyncio.get_running_loop())

        with pytest.raises(VirtualTimeError, match="no threads, sockets"):
            run_virtual(main)

    def test_threads(self) -> None:
        async def main(_: VirtualClock) -> None:
            await asyncio.to_thread(time.monotonic)

        with pytest.raises(VirtualTimeError, match="run_in_executor is refused"):
            run_virtual(main)

    def test_calls_from_another_thread(self) -> None:
        errors: list[BaseException] = []

        async def main(_: VirtualClock) -> None:
            loop = asyncio.get_running_loop()

            def intrude() -> None:
                try:
                    loop.call_soon_threadsafe(print)
                except VirtualTimeError as error:
                    errors.append(error)

            thread = threading.Thread(target=intrude)
            thread.start()
            thread.join()

        run_virtual(main)

        assert "another" in str(errors[0])

    def test_a_virtual_clock_on_another_loop(self) -> None:
        async def main() -> None:
            VirtualClock()

        with pytest.raises(VirtualTimeError, match="needs a VirtualLoop"):
            asyncio.run(main())

    def test_a_deadlock_is_named_rather_than_waited_for(self) -> None:
        async def main(clock: VirtualClock) -> None:
            await clock.sleep_until(2.5)
            waiter = asyncio.create_task(asyncio.Event().wait(), name="the one that waits")
            await waiter

        with pytest.raises(DeadlockError, match=r"deadlock at 2\.5 s .* 2 tasks wait: .*the one that waits"):
            run_virtual(main)

    def test_waiting_for_infinity_is_a_deadlock(self) -> None:
        async def main(clock: VirtualClock) -> None:
            await clock.sleep_until(math.inf)

        with pytest.raises(DeadlockError, match=r"deadlock at 0\.0 s"):
            run_virtual(main)
