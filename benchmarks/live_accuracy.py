"""How well a calibrated mock predicts the real server it was fitted to, on requests it has not seen.

    python -m benchmarks.live_accuracy --base-url http://127.0.0.1:8000 --max-num-batched-tokens 2048 --out DIR

Sends the probes of a calibration and a load of agents three times: each group twice in turn, and once more half the
measurement later. An agent is a growing conversation with waits for tools between its calls; after the first time each
of its calls is sent at the instant of the first. The first answers to the probes are fitted; the others and the agents
are predicted, each call sent to the mock when the server got it. Agents left to themselves are predicted, too: there a
call goes out when the mock has answered the one before, so that soon other calls are there at the same time than were
on the server.
Beside each error stand the floors: what the real server's answers to the same requests differ by, one soon after the
other and half the measurement apart; and, of probes, what the medians of the fitted answers to the same request err by,
which is as good as a server without a memory of the time can be predicted.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import orjson

from loadgen.probe import Probe, Prober, new_session, read_probes
from mockserver.clock import Clock, VirtualClock, WallClock, run_virtual, run_wall
from mockserver.driver import Driver
from mockserver.engine.chains import BlockPath, ChainRun
from mockserver.engine.config import EngineConfig
from mockserver.engine.engine import Engine
from mockserver.engine.request import Request
from reports.calibrate import UNITS, Calibration, calibrate
from reports.observations import SchedulerLimits
from reports.probes import probe_lines, probes
from traces.record import CallRecord

Chain = list[tuple[Probe, float]]
"""Calls that follow each other, each with the wait before it."""
_NUM_RUNS = 3
_BETWEEN_S = 0.01
_TOOL_S = 0.1
"""Tools take so long, in the mean."""


def main() -> int:
    """Measure, fit, predict, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--max-num-batched-tokens", type=int, required=True)
    parser.add_argument("--max-model-len", type=int, default=9000)
    parser.add_argument("--max-num-seqs", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--block-size", type=int, default=32)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    listed = options.out / "probes.jsonl"
    listed.write_text(
        probe_lines(
            probes(max_model_len=options.max_model_len, max_num_seqs=options.max_num_seqs, repeats=options.repeats)
        )
    )
    loads = {"probes": _as_chains(read_probes(listed)), "agents": _agents()}
    # A server that was measured before has the prompts of that time in its cache.
    measured = run_wall(lambda: _measure(loads, options.base_url, seed=options.out.name))
    for name, both in measured.items():
        for number, calls in enumerate(both):
            lines = b"".join(orjson.dumps(call, option=orjson.OPT_APPEND_NEWLINE) for call in calls)
            (options.out / f"{name}-{number}.jsonl").write_bytes(lines)
    limits = SchedulerLimits(max_num_batched_tokens=options.max_num_batched_tokens)
    calibration = calibrate([measured["probes"][0]], limits)
    for one in calibration.fit.coefficients:
        scale, unit = UNITS[one.name]
        print(f"{one.name:28s} {one.value * scale:9.4g} ({one.low * scale:.4g} to {one.high * scale:.4g}) {unit}")
    shares = calibration.shares
    print(
        f"of frontend_s, {shares.work:.1%} is work that the next request waits for, {shares.wakeup:.1%} a wake-up,"
        f" {shares.arrival:.1%} holds others up"
    )
    for name, runs in measured.items():
        if name == "agents":
            predicted = _predict(loads[name], runs[0], calibration, options.block_size)
            print(f"{name}: mock, left to itself, against run 1: {_errors(runs[0], predicted)}")
        for number in range(0 if name == "agents" else 1, _NUM_RUNS):
            calls = runs[number]
            predicted = _predict(_as_sent(loads[name], calls), calls, calibration, options.block_size)
            print(f"{name}: mock against run {number + 1}: {_errors(calls, predicted)}")
            if name == "probes" and options.repeats > 1:
                known = _errors(calls, _medians(runs[0], options.repeats))
                print(f"{name}: medians of run 1 against run {number + 1}: {known}")
        print(f"{name}: the server's runs 1 and 2, soon after each other: {_errors(runs[0], _timings(runs[1]))}")
        for number in (0, 1):
            apart = _errors(runs[number], _timings(runs[2]))
            print(f"{name}: the server's runs {number + 1} and 3, half the measurement apart: {apart}")
    return 0


def _as_chains(listed: Sequence[Probe]) -> list[list[Chain]]:
    """Groups that follow each other; every probe is a chain of one."""
    groups = itertools.groupby(listed, key=lambda probe: probe.group)
    return [[[(probe, probe.delay_s)] for probe in group] for _, group in groups]


def _agents(num_groups: int = 9, num_tasks: int = 6, num_calls: int = 8) -> list[list[Chain]]:
    """Groups of agents that start together: their prompts grow, and tools take their time between calls."""
    return [_group_of_agents(f"replayrig/agents/{number}", num_tasks, num_calls) for number in range(num_groups)]


def _group_of_agents(seed: str, num_tasks: int, num_calls: int) -> list[Chain]:
    draw = random.Random(seed)
    chains: list[Chain] = []
    for task in range(num_tasks):
        num_prompt = draw.randint(300, 1500)
        chain: Chain = []
        for _ in range(num_calls):
            num_output = draw.randint(8, 48)
            probe = Probe(group=0, prompt=f"{seed} {task}", num_prompt_tokens=num_prompt, num_output_tokens=num_output)
            chain.append((probe, draw.expovariate(1 / _TOOL_S)))
            num_prompt += num_output + draw.randint(40, 500)
        chains.append(chain)
    return chains


def _as_sent(groups: list[list[Chain]], calls: Sequence[CallRecord]) -> list[list[Chain]]:
    """The same calls, each a chain of its own that waits as long as that call did from the start of its group."""
    found: list[list[Chain]] = []
    coming = iter(calls)
    for group in groups:
        pairs = [(probe, next(coming).sent_at) for chain in group for probe, _ in chain]
        began_at = min(sent_at for _, sent_at in pairs)
        found.append([[(probe, sent_at - began_at)] for probe, sent_at in pairs])
    return found


async def _measure(
    loads: dict[str, list[list[Chain]]], base_url: str, *, seed: str
) -> dict[str, list[list[CallRecord]]]:
    clock = WallClock()
    async with new_session() as session:
        async with session.get(f"{base_url}/v1/models") as response:
            model = (await response.json())["data"][0]["id"]
        prober = Prober(session, base_url, model, clock)
        await prober.learn()
        clock.start()
        found: dict[str, list[list[CallRecord]]] = {name: [[] for _ in range(_NUM_RUNS)] for name in loads}
        for name, number, group in _in_turns(loads):
            records = found[name][number]
            again = name == "agents" and number > 0
            [sent] = _as_sent([group], found[name][0][len(records) :]) if again else [group]
            records += await _send(sent, prober, clock, f"{seed} {name} {number} ", len(records))
            await clock.sleep_until(clock.now() + _BETWEEN_S)
        return found


def _in_turns(loads: dict[str, list[list[Chain]]]) -> Iterator[tuple[str, int, list[Chain]]]:
    """Which run each group is sent for next: a machine that gets slower meanwhile shall be told from a server that
    differs.

    Each group is sent for the first run and soon after for the second, of probes in turns which comes first, and for
    the third half the measurement later; the agents are spread over the time that the probes take.
    """
    turns = [
        (name, group, (place + 0.5) / len(groups))
        for name, groups in loads.items()
        for place, group in enumerate(groups)
    ]
    turns.sort(key=lambda turn: turn[2])
    for place, (name, group, _) in enumerate(turns):
        for number in (0, 1) if place % 2 or name == "agents" else (1, 0):
            yield name, number, group
        if place >= len(turns) // 2:
            earlier = turns[place - len(turns) // 2]
            yield earlier[0], 2, earlier[1]
    for name, group, _ in turns[-(len(turns) // 2) :]:
        yield name, 2, group


async def _send(group: list[Chain], prober: Prober, clock: Clock, prefix: str, first_number: int) -> list[CallRecord]:
    """A group's chains side by side; the records are in the order of the chains' calls."""

    async def follow(chain: Chain, number: int) -> list[CallRecord]:
        own = []
        for place, (probe, wait_s) in enumerate(chain):
            await clock.sleep_until(clock.now() + wait_s)
            renamed = replace(probe, prompt=prefix + probe.prompt)
            own.append(await prober.send(renamed, 1000 * number + place))
        return own

    chains = await asyncio.gather(*(follow(chain, first_number + k) for k, chain in enumerate(group)))
    return [record for own in chains for record in own]


Timing = tuple[float, float, float | None]
"""TTFT, E2E and TPOT in seconds."""


def _predict(
    groups: list[list[Chain]], live: Sequence[CallRecord], calibration: Calibration, block_size: int
) -> list[Timing]:
    """The same chains on a mock with the fitted cost; prompts are as long as the live server counted them."""
    config = EngineConfig(
        num_blocks=100_000,
        block_size=block_size,
        max_num_batched_tokens=calibration.limits.max_num_batched_tokens,
    )
    chain_by_prompt: dict[str, int] = {}

    async def run(clock: VirtualClock) -> list[Timing]:
        driver = Driver(Engine(config, calibration.step_cost), clock, front_end=calibration.front_end)
        running = asyncio.create_task(driver.run())
        timings: list[Timing] = []

        async def follow(chain: Chain, first: int, starts_at: float) -> list[Timing]:
            own = []
            for place, (probe, wait_s) in enumerate(chain):
                await clock.sleep_until(clock.now() + wait_s if place else starts_at)
                number = first + place
                num_prompt = live[number].num_prompt_tokens or probe.num_prompt_tokens
                shared = chain_by_prompt.setdefault(probe.prompt, len(chain_by_prompt))
                full = num_prompt // block_size
                end = (num_prompt + probe.num_output_tokens) // block_size
                path: BlockPath = (ChainRun(shared, 0, full),) if full else ()
                path += (ChainRun(1_000_000 + number, full, end),) if end > full else ()
                sent_at = clock.now()
                request = Request(
                    request_id=str(number),
                    num_prompt_tokens=num_prompt,
                    num_output_tokens=probe.num_output_tokens,
                    path=path,
                )
                generation = driver.submit(request)
                await generation.wait()
                assert generation.first_token_at is not None
                assert generation.last_token_at is not None
                ttft_s, e2e_s = generation.first_token_at - sent_at, generation.last_token_at - sent_at
                gaps = probe.num_output_tokens - 1
                own.append((ttft_s, e2e_s, (e2e_s - ttft_s) / gaps if gaps else None))
            return own

        for group in groups:
            firsts = [*itertools.accumulate((len(chain) for chain in group[:-1]), initial=len(timings))]
            # A client needs a moment for each that it sends "at once": they start as they did.
            began_at, now = min(live[first].sent_at for first in firsts), clock.now()
            starts = [now + live[first].sent_at - began_at for first in firsts]
            for own in await asyncio.gather(*map(follow, group, firsts, starts)):
                timings += own
            await clock.sleep_until(clock.now() + _BETWEEN_S)
        running.cancel()
        return timings

    return run_virtual(run)


def _timings(calls: Sequence[CallRecord]) -> list[Timing]:
    found: list[Timing] = []
    for call in calls:
        if call.error is not None or call.first_token_at is None or call.last_token_at is None:
            raise SystemExit(f"a call failed: {call.error}")
        gaps = (call.num_output_tokens or 1) - 1
        decode_s = call.last_token_at - call.first_token_at
        found.append(
            (call.first_token_at - call.sent_at, call.last_token_at - call.sent_at, decode_s / gaps if gaps else None)
        )
    return found


def _medians(calls: Sequence[CallRecord], num_repeats: int) -> list[Timing]:
    """For each call the medians of those to the same probe, whose repeats follow each other as a whole."""
    timings = _timings(calls)
    num_probes = len(timings) // num_repeats
    found: list[Timing] = []
    for place in range(num_probes):
        ttft_s, e2e_s, tpot_s = zip(*timings[place::num_probes], strict=True)
        decode_s = [one for one in tpot_s if one is not None]
        found.append((median(ttft_s), median(e2e_s), median(decode_s) if decode_s else None))
    return found * num_repeats


def _errors(live: Sequence[CallRecord], other: Sequence[Timing]) -> str:
    texts = []
    for place, name in enumerate(("TTFT", "E2E", "TPOT")):
        pairs = [(a[place], b[place]) for a, b in zip(_timings(live), other, strict=True) if a[place] and b[place]]
        values = np.asarray(pairs, dtype=np.float64)
        error = float(np.median(np.abs(values[:, 1] / values[:, 0] - 1)))
        medians = np.median(values, axis=0)
        texts.append(f"{name} {error:.1%} (medians {medians[1] / medians[0] - 1:+.1%})")
    return f"median error of {len(live)} calls: " + ", ".join(texts)


if __name__ == "__main__":
    sys.exit(main())
