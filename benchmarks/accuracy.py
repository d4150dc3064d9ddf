"""How well a calibrated mock predicts a real vLLM: fit one half of recorded timings, predict the other half.

    python -m benchmarks.accuracy FOLDER [SEED]

FOLDER holds rows.jsonl, one request of a real server a line. The server was started anew for each of several
recordings, hours apart on a shared machine, so each is fitted by itself, as a run of a live server is; the errors are
of the requests of all. Groups were sent by a client that keeps so many requests in flight: the mock's get theirs when
one has ended there, as the real server's did.

Without SEED the halves are every other request; with one they are drawn.

Each error stands beside the floor: what the same requests differ by when the real server answers them again; and
beside what the median of the fitted half's answers to the very same request would have predicted.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mockserver.clock import VirtualClock, run_virtual
from mockserver.driver import Driver
from mockserver.engine.chains import BlockPath, ChainRun
from mockserver.engine.config import EngineConfig
from mockserver.engine.engine import Engine
from mockserver.engine.request import Request
from reports.calibrate import UNITS, Calibration, calibrate
from reports.observations import SchedulerLimits
from reports.resend import later_s
from traces.record import CallRecord

LIMITS = SchedulerLimits(max_num_batched_tokens=2048)
BLOCK_SIZE = 32
_SEED_PLACE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One request of the recording, or what the mock makes of it."""

    ttft_s: float
    e2e_s: float
    tpot_s: float | None


def main() -> int:
    """Print the fits and the table of errors."""
    rows = _recorded(Path(sys.argv[1]) / "rows.jsonl")
    halves = _halves(rows) if len(sys.argv) <= _SEED_PLACE else _drawn_halves(rows, sys.argv[_SEED_PLACE])
    for fitted, predicted in ((0, 1), (1, 0)):
        pairs: list[tuple[dict[str, Any], Timing]] = []
        for recording in sorted({row["recording"] for row in rows}):
            of_it = [[row for row in half if row["recording"] == recording] for half in halves]
            calibration = calibrate([[_call(row) for row in of_it[fitted]]], LIMITS)
            print(f"recording {recording + 1} fitted to half {'AB'[fitted]}, {len(of_it[fitted])} requests:")
            for one in calibration.fit.coefficients:
                scale, unit = UNITS[one.name]
                value, low, high = (number * scale for number in (one.value, one.low, one.high))
                print(f"  {one.name:28s} {value:9.4g} ({low:.4g} to {high:.4g}) {unit}")
            pairs += zip(of_it[predicted], _predict(of_it[predicted], calibration), strict=True)
        print(f"half {'AB'[predicted]} from half {'AB'[fitted]}:")
        _print_errors("mock", [(_kind(row), _timing(row), timing) for row, timing in pairs])
        _print_errors("median of the same request", _medians(halves[fitted], halves[predicted]))
    print("the real server against itself:")
    _print_errors("half B", _again(*halves))
    return 0


def _recorded(path: Path) -> list[dict[str, Any]]:
    """The requests that were answered, each with the number of its recording: the server was warmed up for each."""
    rows = [row for line in path.read_text().splitlines() if "ttft_s" in (row := json.loads(line))]
    recording, is_warm = -1, True
    for row in sorted(rows, key=lambda row: float(row["send_wall"])):
        recording += is_warm and row["exp"] == "warmup"
        is_warm = row["exp"] != "warmup"
        row["recording"] = recording
    return [row for row in rows if row["exp"] != "warmup"]


def _halves(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Every other request of a kind that was sent alone; every other repetition of one sent in a group."""
    seen: dict[object, int] = defaultdict(int)
    halves: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for row in rows:
        if row["conc"] == 1:
            kind = _kind(row)[1:]
            halves[seen[kind] % 2].append(row)
            seen[kind] += 1
        else:
            halves[row.get("rep", 0) % 2].append(row)
    return halves


def _drawn_halves(rows: list[dict[str, Any]], seed: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Half of a kind's requests of each recording; of those sent in groups, one or the other repetition."""
    draw = random.Random(seed)
    alone, grouped = ([row for row in rows if (row["conc"] == 1) == is_alone] for is_alone in (True, False))
    next_half: dict[object, int] = defaultdict(lambda: draw.randrange(2))
    halves: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for row in draw.sample(alone, len(alone)):
        halves[next_half[_kind(row)]].append(row)
        next_half[_kind(row)] ^= 1
    for row in grouped:
        halves[next_half[row["exp"], row["conc"]] ^ row["rep"] % 2].append(row)
    return halves


class _Kind(NamedTuple):
    """What the same requests have in common."""

    recording: int
    experiment: str
    concurrency: int
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int


def _kind(row: dict[str, Any]) -> _Kind:
    numbers = (row["prompt_tokens"], row["cached_tokens"], row["completion_tokens"])
    return _Kind(row["recording"], row["exp"], row["conc"], *numbers)


def _call(row: dict[str, Any]) -> CallRecord:
    sent_at = row["send_wall"]
    name = f"{sent_at:.6f}"
    return CallRecord(
        call_id=name,
        task_id=name,
        agent_id=name,
        index=0,
        due_at=sent_at,
        sent_at=sent_at,
        first_token_at=sent_at + row["ttft_s"],
        last_token_at=sent_at + row["event_t_s"][-1],
        num_prompt_tokens=row["prompt_tokens"],
        num_cached_tokens=row["cached_tokens"],
        num_output_tokens=row["completion_tokens"],
        expected_output_tokens=row["completion_tokens"],
        finish_reason="length",
        chunk_at=tuple(sent_at + at for at in row["event_t_s"]),
    )


def _timing(row: dict[str, Any]) -> Timing:
    gaps = row["completion_tokens"] - 1
    e2e_s = row["event_t_s"][-1]
    return Timing(ttft_s=row["ttft_s"], e2e_s=e2e_s, tpot_s=(e2e_s - row["ttft_s"]) / gaps if gaps else None)


def _group(row: dict[str, Any]) -> tuple[object, ...]:
    """Requests of one group were sent by one client, ``conc`` of them at a time."""
    return (row["exp"], row["conc"], row.get("rep"), row["send_wall"] if row["conc"] == 1 else None)


def _follows_s(rows: list[dict[str, Any]]) -> dict[int, float]:
    """Of each request (by its place) that waited for another of its group to end: how long after that it was sent."""
    groups: dict[object, list[int]] = defaultdict(list)
    for number in sorted(range(len(rows)), key=lambda number: float(rows[number]["send_wall"])):
        groups[_group(rows[number])].append(number)
    found: dict[int, float] = {}
    for group in groups.values():
        later = group[rows[group[0]]["conc"] :]
        ends = sorted(rows[number]["send_wall"] + rows[number]["event_t_s"][-1] for number in group)
        found |= {number: rows[number]["send_wall"] - ended for number, ended in zip(later, ends, strict=False)}
    return found


def _predict(rows: list[dict[str, Any]], calibration: Calibration) -> list[Timing]:
    """The same requests at the same instants on a mock with the fitted cost."""
    config = EngineConfig(
        num_blocks=200_000,
        block_size=BLOCK_SIZE,
        max_num_batched_tokens=LIMITS.max_num_batched_tokens,
        async_scheduling=LIMITS.is_async,
    )
    start = min(row["send_wall"] for row in rows) - 10
    order = sorted(range(len(rows)), key=lambda number: float(rows[number]["send_wall"]))
    waits_s = dict(zip(order, later_s([_call(rows[number]) for number in order]), strict=True))

    follows_s = _follows_s(rows)

    async def run(clock: VirtualClock) -> list[Timing]:
        ended: dict[object, asyncio.Queue[None]] = defaultdict(asyncio.Queue)
        driver = Driver(Engine(config, calibration.step_cost), clock, front_end=calibration.front_end)

        async def send(number: int, row: dict[str, Any], wait_s: float) -> Timing:
            num_cached_blocks = row["cached_tokens"] // BLOCK_SIZE
            num_blocks = (row["prompt_tokens"] + row["completion_tokens"]) // BLOCK_SIZE
            path: BlockPath = (ChainRun(2 * number, 0, num_cached_blocks),) if num_cached_blocks else ()
            if num_cached_blocks:
                prime = Request(
                    request_id=f"prime {number}",
                    num_prompt_tokens=num_cached_blocks * BLOCK_SIZE + 1,
                    num_output_tokens=1,
                    path=path,
                )
                await driver.submit(prime).wait()
            if num_blocks > num_cached_blocks:
                path += (ChainRun(2 * number + 1, num_cached_blocks, num_blocks),)
            if number in follows_s:
                await ended[_group(row)].get()
                await clock.sleep_until(clock.now() + follows_s[number])
            else:
                await clock.sleep_until(row["send_wall"] - start + wait_s + _PRIME_S)
            request = Request(
                request_id=str(number),
                num_prompt_tokens=row["prompt_tokens"],
                num_output_tokens=row["completion_tokens"],
                path=path,
            )
            sent_at = clock.now()
            generation = driver.submit(request)
            await generation.wait()
            ended[_group(row)].put_nowait(None)
            assert generation.first_token_at is not None
            assert generation.last_token_at is not None
            first, last = (at - sent_at for at in (generation.first_token_at, generation.last_token_at))
            gaps = row["completion_tokens"] - 1
            return Timing(ttft_s=first, e2e_s=last, tpot_s=(last - first) / gaps if gaps else None)

        running = asyncio.create_task(driver.run())
        async with asyncio.TaskGroup() as group:
            tasks = {number: group.create_task(send(number, rows[number], waits_s[number])) for number in order}
        running.cancel()
        return [tasks[number].result() for number in range(len(rows))]

    return run_virtual(run)


_PRIME_S = 3600.0
"""The mock's cache is filled in an hour of simulated time before the first request."""


def _print_errors(name: str, pairs: list[tuple[_Kind, Timing, Timing]]) -> None:
    """``pairs``: what the real server took, and what was predicted."""
    for where, is_alone in (("alone", True), ("in groups", False)):
        kept = [(real, other) for kind, real, other in pairs if (kind.concurrency == 1) == is_alone]
        if kept:
            print(f"  {name}, {len(kept)} requests {where}: {_errors(kept)}")


def _medians(fitted: list[dict[str, Any]], predicted: list[dict[str, Any]]) -> list[tuple[_Kind, Timing, Timing]]:
    """A reference that knows no model: the median answer to the very same requests in the other half."""
    by_kind = _by_kind(fitted)
    return [(_kind(row), _timing(row), _median(by_kind[_kind(row)])) for row in predicted if by_kind[_kind(row)]]


def _again(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> list[tuple[_Kind, Timing, Timing]]:
    """The same requests of the same recording, each with one of the other half."""
    by_kind = _by_kind(other)
    return [(_kind(row), _timing(row), by_kind[_kind(row)].pop(0)) for row in one if by_kind[_kind(row)]]


def _by_kind(rows: list[dict[str, Any]]) -> dict[_Kind, list[Timing]]:
    by_kind: dict[_Kind, list[Timing]] = defaultdict(list)
    for row in rows:
        by_kind[_kind(row)].append(_timing(row))
    return by_kind


def _median(timings: list[Timing]) -> Timing:
    tpots = [one.tpot_s for one in timings if one.tpot_s is not None]
    return Timing(
        ttft_s=float(np.median([one.ttft_s for one in timings])),
        e2e_s=float(np.median([one.e2e_s for one in timings])),
        tpot_s=float(np.median(tpots)) if tpots else None,
    )


def _errors(pairs: list[tuple[Timing, Timing]]) -> str:
    texts = []
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        both = [(getattr(a, name), getattr(b, name)) for a, b in pairs if getattr(a, name) and getattr(b, name)]
        values = np.asarray(both)
        relative = values[:, 1] / values[:, 0] - 1
        medians = np.median(values, axis=0)
        texts.append(
            f"{name.removesuffix('_s').upper()} {np.median(np.abs(relative)):.1%}"
            f" (of the medians {medians[1] / medians[0] - 1:+.1%})"
        )
    return "median error " + ", ".join(texts)


if __name__ == "__main__":
    sys.exit(main())
