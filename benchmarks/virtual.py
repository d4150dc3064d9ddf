"""What virtual time costs: calls per second of CPU, and memory. ``python -m benchmarks.virtual [SCENARIO ...]``.

Each scenario runs in a process of its own. ``reference`` is the whole reference experiment as ``loadgen experiment``
runs it, texts, records and reports included; the others drive the engine with prompts that are known by their lengths
only. CPU seconds are those of the simulation itself; with ``reference``, of the whole command in the last line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mockserver import huge_pages
from mockserver.clock import VirtualClock, run_virtual
from mockserver.driver import Driver, Generation
from mockserver.engine.chains import BlockPath, ChainRun, ChainTable
from mockserver.engine.request import Request
from mockserver.node import build_driver
from mockserver.node_settings import NodeSettings

BLOCK_SIZE = 16
HEADINGS = ("scenario", "calls", "CPU s", "calls/CPU s", "output tokens/CPU s", "simulated/CPU", "peak MB")


@dataclass(eq=False)
class Load:
    """What a scenario has asked of the machine so far."""

    driver: Driver
    clock: VirtualClock
    chains: ChainTable
    num_calls: int = 0
    num_output_tokens: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0

    async def call(self, path: BlockPath, num_prompt_tokens: int, num_output_tokens: int, session: str) -> Generation:
        """One call, awaited to its last token."""
        request = Request(
            request_id=str(self.num_calls),
            num_prompt_tokens=num_prompt_tokens,
            num_output_tokens=num_output_tokens,
            path=path,
        )
        self.num_calls += 1
        generation = self.driver.submit(request, session_id=session)
        await generation.wait()
        self.num_output_tokens += num_output_tokens
        self.num_prompt_tokens += num_prompt_tokens
        self.num_cached_tokens += generation.num_cached_tokens
        return generation

    async def session(self, name: str, first: int, growths: list[tuple[int, int]], waits: list[float]) -> None:
        """An agent whose prompt starts with ``first`` tokens and grows by each (output, new) pair."""
        (whole,) = self.chains.fresh_path(first + sum(output + new for output, new in growths))
        num_tokens = first
        for (output, new), wait_s in zip(growths, waits, strict=True):
            path = (ChainRun(whole.chain_id, 0, (num_tokens + output) // BLOCK_SIZE),)
            await self.call(path, num_tokens, output, name)
            num_tokens += output + new
            await self.clock.sleep_until(self.clock.now() + wait_s)


Scenario = Callable[[Load], Coroutine[Any, Any, None]]


async def requests(load: Load) -> None:
    """2,000 requests of 5,000 prompt and 500 output tokens, nothing shared, 100 at a time."""
    numbers = iter(range(2000))

    async def worker() -> None:
        for number in numbers:
            await load.call(load.chains.fresh_path(5500), 5000, 500, str(number))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(100):
            tasks.create_task(worker())


async def sessions(load: Load) -> None:
    """200 sessions of 20 turns at once: prompts grow from 1,000 tokens by 200 a turn, so 91 % of them are cached."""
    async with asyncio.TaskGroup() as tasks:
        for number in range(200):
            tasks.create_task(load.session(str(number), 1000, [(100, 100)] * 20, [0.6] * 20))


def react(num_tasks: int) -> Scenario:
    """The reference workload's lengths as ReAct loops, ``num_tasks`` at once."""

    async def run(load: Load) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(num_tasks):
                rng = random.Random(f"benchmark/{number}")
                num_calls = min(100, max(2, round(rng.lognormvariate(3.26, 0.5))))
                first = round(rng.lognormvariate(8.85, 0.4)) + 133 + round(rng.lognormvariate(4.83, 0.5))
                growths = [
                    (
                        min(4096, max(1, round(rng.lognormvariate(3.97, 1.2)))),
                        min(8000, round(rng.lognormvariate(4.79, 1.6))) + 8,
                    )
                    for _ in range(num_calls)
                ]
                waits = [rng.expovariate(1 / 0.6) for _ in growths]
                tasks.create_task(load.session(str(number), first, growths, waits))

    return run


async def fleet(load: Load) -> None:
    """100,000 agents of 10 calls over 100 nodes, each agent staying on its node."""
    async with asyncio.TaskGroup() as tasks:
        for number in range(100_000):
            tasks.create_task(load.session(str(number), 1500, [(50, 150)] * 10, [0.6] * 10))


SCENARIOS: dict[str, tuple[Scenario, NodeSettings]] = {
    "requests": (requests, NodeSettings()),
    "sessions": (sessions, NodeSettings()),
    "react-295": (react(295), NodeSettings()),
    "react-2950": (react(2950), NodeSettings()),
    "react-29500": (react(29_500), NodeSettings()),
    "fleet": (fleet, NodeSettings(data_parallel_size=100, routing_policy="session-affinity")),
}


def measure(name: str) -> dict[str, Any]:
    """Run one scenario in this process; its figures."""
    scenario, settings = SCENARIOS[name]

    async def main(clock: VirtualClock) -> tuple[Load, float]:
        load = Load(build_driver(settings, clock), clock, ChainTable(block_size=BLOCK_SIZE))
        loop = asyncio.create_task(load.driver.run())
        await scenario(load)
        loop.cancel()
        return load, clock.now()

    started = time.process_time()
    load, simulated_s = run_virtual(main)
    return {
        "scenario": name,
        "calls": load.num_calls,
        "cpu_s": time.process_time() - started,
        "output_tokens": load.num_output_tokens,
        "simulated_s": simulated_s,
        "hit_rate": load.num_cached_tokens / load.num_prompt_tokens,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def measure_reference() -> list[dict[str, Any]]:
    """The reference experiment as its command runs it: a row for each of its runs, one for the command."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "loadgen", "experiment", "--clock", "virtual", "--no-live", "--out", folder]
        # As a package that was installed: its modules are compiled, whatever this shell says of bytecode.
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        subprocess.run([sys.executable, "-c", "import loadgen.commands, reports.terminal"], check=True, env=environ)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environ)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        for directory in sorted(path.parent for path in Path(folder).glob("*/summary.json")):
            header = json.loads((directory / "run.json").read_text())
            summary = json.loads((directory / "summary.json").read_text())
            rows.append(
                {
                    "scenario": f"reference: {directory.name}",
                    "calls": summary["completed"],
                    "cpu_s": header["cpu_s"],
                    "output_tokens": summary["total_output_tokens"],
                    "simulated_s": summary["makespan_s"],
                    "hit_rate": summary["hit_rate"],
                    "peak_mb": 0.0,
                }
            )
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    total = {key: sum(row[key] for row in rows) for key in ("calls", "output_tokens", "simulated_s")}
    rows.append({"scenario": "reference: all", "cpu_s": cpu_s, "peak_mb": after.ru_maxrss / 1024, **total})
    return rows


def show(row: dict[str, Any]) -> None:
    """One line of the table."""
    cpu_s = row["cpu_s"]
    cells = (
        row["scenario"],
        f"{row['calls']:,}",
        f"{cpu_s:.2f}",
        f"{row['calls'] / cpu_s:,.0f}",
        f"{row['output_tokens'] / cpu_s:,.0f}",
        f"{row['simulated_s'] / cpu_s:,.0f}",
        f"{row['peak_mb']:,.0f}" if row["peak_mb"] else "",
    )
    print("  ".join(cell.ljust(32) if index == 0 else cell.rjust(19) for index, cell in enumerate(cells)), flush=True)


def main() -> None:
    """Run the scenarios asked for, each in its own process, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", help=f"of: reference, {', '.join(SCENARIOS)}; default: all")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    names = arguments.scenarios or ["reference", *SCENARIOS]
    unknown = [name for name in names if name != "reference" and name not in SCENARIOS]
    if unknown:
        parser.error(f"unknown scenario {unknown[0]!r}: known are reference, {', '.join(SCENARIOS)}")
    if arguments.here:
        print(json.dumps(measure(names[0])))
        return
    print("  ".join(head.ljust(32) if index == 0 else head.rjust(19) for index, head in enumerate(HEADINGS)))
    for name in names:
        if name == "reference":
            for row in measure_reference():
                show(row)
            continue
        command = huge_pages.command("benchmarks.virtual", "--here", name)
        done = subprocess.run(command, check=True, env=huge_pages.environ(), stdout=subprocess.PIPE, text=True)
        row = json.loads(done.stdout)
        show(row)


if __name__ == "__main__":
    main()
