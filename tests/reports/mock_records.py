"""Records of requests that ran on an engine of known step cost, as a client behind a front end sees them."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass

from mockserver.clock import VirtualClock, run_virtual
from mockserver.driver import Driver
from mockserver.engine.chains import ChainRun
from mockserver.engine.config import EngineConfig
from mockserver.engine.cost import StepCost
from mockserver.engine.engine import Engine
from mockserver.engine.front_end import FrontEnd
from mockserver.engine.request import Request
from reports.probes import Probe as ListedProbe
from traces.record import CallRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One request: when it reaches the engine, and how long it is."""

    at: float
    num_prompt_tokens: int
    num_output_tokens: int
    prompt: str | None = None
    """Probes with the same one begin alike, so that the server has it in its cache; None: like no other."""


def probes(seed: int, *, spacing_s: float) -> list[Probe]:
    """Prompts alone, decodes alone at several contexts, groups of decodes together, then a mixture."""
    draw = random.Random(f"{seed}/probes")
    found: list[Probe] = []
    at = 0.0
    for num_prompt in (64, 256, 1000, 3000, 8000, 16_000, 30_000):
        found.append(Probe(at=at, num_prompt_tokens=num_prompt, num_output_tokens=30))
        at += spacing_s
    for group in (2, 5, 8, 20, 48):
        for _ in range(group):
            found.append(Probe(at=at, num_prompt_tokens=draw.randint(50, 2000), num_output_tokens=60))
        at += spacing_s
    for _ in range(60):
        found.append(Probe(at=at, num_prompt_tokens=draw.randint(20, 6000), num_output_tokens=draw.randint(1, 80)))
        at += draw.expovariate(20 / spacing_s)
    return found


def in_turn(listed: Iterable[ListedProbe]) -> list[Probe]:
    """A list of probes, a group every four seconds."""
    groups = itertools.groupby(listed, key=lambda one: one.group)
    return [
        Probe(
            at=4.0 * number + one.delay_s,
            num_prompt_tokens=one.num_prompt_tokens,
            num_output_tokens=one.num_output_tokens,
            prompt=one.prompt,
        )
        for number, (_, group) in enumerate(groups)
        for one in group
    ]


def records_of(
    requests: list[Probe],
    cost: StepCost,
    *,
    frontend_s: float = 0.0,
    front_end: FrontEnd = FrontEnd(),
    max_num_batched_tokens: int = 2048,
    keep_chunks: bool = True,
) -> list[CallRecord]:
    """What a client saw that sent each request ``frontend_s`` before it reached the server and its ``front_end``."""
    config = EngineConfig(num_blocks=100_000, max_num_batched_tokens=max_num_batched_tokens)
    chains = {prompt: number for number, prompt in enumerate(dict.fromkeys(probe.prompt for probe in requests))}

    async def main(clock: VirtualClock) -> list[CallRecord]:
        driver = Driver(Engine(config, cost), clock, front_end=front_end)
        records: list[CallRecord] = []

        async def send(number: int, probe: Probe) -> None:
            await clock.sleep_until(probe.at)
            num_blocks = probe.num_prompt_tokens // config.block_size
            path = (ChainRun(chains[probe.prompt], 0, num_blocks),) if num_blocks and probe.prompt is not None else ()
            request = Request(
                request_id=str(number),
                num_prompt_tokens=probe.num_prompt_tokens,
                num_output_tokens=probe.num_output_tokens,
                path=path,
            )
            token_at: list[float] = []
            generation = driver.submit(request, watch=True)
            async for burst in generation:
                token_at += [burst.at] * burst.num_tokens
            sent_at = probe.at - frontend_s
            records.append(
                CallRecord(
                    call_id=str(number),
                    task_id=str(number),
                    agent_id=str(number),
                    index=0,
                    due_at=sent_at,
                    sent_at=sent_at,
                    first_token_at=token_at[0],
                    last_token_at=token_at[-1],
                    num_prompt_tokens=probe.num_prompt_tokens,
                    num_cached_tokens=generation.num_cached_tokens,
                    num_output_tokens=probe.num_output_tokens,
                    expected_output_tokens=probe.num_output_tokens,
                    finish_reason="length",
                    chunk_at=tuple(token_at) if keep_chunks else (),
                )
            )

        running = asyncio.create_task(driver.run())
        async with asyncio.TaskGroup() as group:
            for number, probe in enumerate(requests):
                group.create_task(send(number, probe))
        running.cancel()
        return sorted(records, key=lambda record: (record.sent_at, int(record.call_id)))

    return run_virtual(main)
