"""How many sleeps per second virtual time carries: ``python benchmarks/clock.py``."""

from __future__ import annotations

import asyncio
import random

from mockserver.clock import VirtualClock, cpu_seconds, run_virtual

NUM_SLEEPS = 400_000


def sleeps_per_second(num_tasks: int) -> float:
    """Sleeps per CPU second while ``num_tasks`` tasks sleep at the same time."""

    async def sleeper(clock: VirtualClock, period_s: float) -> None:
        for index in range(NUM_SLEEPS // num_tasks):
            await clock.sleep_until((index + 1) * period_s)

    async def main(clock: VirtualClock) -> None:
        rng = random.Random("benchmarks/clock")
        async with asyncio.TaskGroup() as tasks:
            for _ in range(num_tasks):
                tasks.create_task(sleeper(clock, rng.uniform(0.1, 1.0)))

    started = cpu_seconds()
    run_virtual(main)
    return NUM_SLEEPS / (cpu_seconds() - started)


if __name__ == "__main__":
    for num_tasks in (1_000, 100_000):
        print(f"{num_tasks:7,} tasks: {sleeps_per_second(num_tasks):9,.0f} sleeps per CPU second")
