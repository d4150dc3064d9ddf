"""How well a calibrated mock predicts a real vLLM: fit one half of recorded timings, predict the other half.

    python -m benchmarks.accuracy FOLDER [--less-waits]

FOLDER holds rows.jsonl, one request of a real server a line.
The recording says how long the server's worker waited for a processor that others used; ``--less-waits`` takes that
share out of the times of requests that were alone, which leaves what a machine of its own would have shown.

Each error stands beside the floor: what the same requests differ by when the real server answers them again; and
beside what the median of the fitted half's answers to the very same request would have predicted.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One request of the recording, or what the mock makes of it."""

    ttft_s: float
    e2e_s: float
    tpot_s: float | None


def main() -> int:
    """Print the fit and the table of errors."""
    rows = [json.loads(line) for line in (Path(sys.argv[1]) / "rows.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "ttft_s" in row and row["exp"] != "warmup"]
    if "--less-waits" in sys.argv[2:]:
        rows = [_less_waits(row) for row in rows if row["conc"] == 1]
    halves = _halves(rows)
    for fitted, predicted in ((0, 1), (1, 0)):
        calibration = calibrate([[_call(row) for row in halves[fitted]]], LIMITS)
        print(f"fitted to half {'AB'[fitted]}, {len(halves[fitted])} requests:")
        for one in calibration.fit.coefficients:
            scale, unit = UNITS[one.name]
            print(f"  {one.name:28s} {one.value * scale:9.4g} ({one.low * scale:.4g} to {one.high * scale:.4g}) {unit}")
        _print_errors(halves[predicted], calibration)
        _print_best(halves[fitted], halves[predicted])
    _print_floor(*halves)
    return 0


def _halves(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Every other request of a kind that was sent alone; every other repetition of one sent in a group."""
    seen: dict[object, int] = defaultdict(int)
    halves: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for row in rows:
        if row["conc"] == 1:
            kind = _kind(row)
            halves[seen[kind] % 2].append(row)
            seen[kind] += 1
        else:
            halves[row.get("rep", 0) % 2].append(row)
    return halves


def _less_waits(row: dict[str, Any]) -> dict[str, Any]:
    waited_s = row["worker_runq_wait_s"] + row.get("api_engine_runq_wait_s", 0.0)
    share = max(0.1, 1 - waited_s / row["end_s"])
    return row | {"ttft_s": row["ttft_s"] * share, "event_t_s": [at * share for at in row["event_t_s"]]}


def _kind(row: dict[str, Any]) -> tuple[object, ...]:
    return (row["exp"], row["conc"], row["prompt_tokens"], row["cached_tokens"], row["completion_tokens"])


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

    async def run(clock: VirtualClock) -> list[Timing]:
        def frontend_delay_s(num_prompt_tokens: int) -> float:
            return 0.0 if clock.now() < _PRIME_S else calibration.frontend_delay_s(num_prompt_tokens)

        driver = Driver(
            Engine(config, calibration.step_cost),
            clock,
            frontend_delay_s=frontend_delay_s,
            frontend_latency_s=calibration.frontend_latency_s,
            wakeup_s=calibration.wakeup_s,
            arrival_s=calibration.arrival_s,
        )

        async def send(number: int, row: dict[str, Any], wait_s: float) -> Timing:
            sent_at = row["send_wall"] - start + wait_s
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
            await clock.sleep_until(sent_at + _PRIME_S)
            request = Request(
                request_id=str(number),
                num_prompt_tokens=row["prompt_tokens"],
                num_output_tokens=row["completion_tokens"],
                path=path,
            )
            generation = driver.submit(request)
            await generation.wait()
            assert generation.first_token_at is not None
            assert generation.last_token_at is not None
            first, last = (at - _PRIME_S - sent_at for at in (generation.first_token_at, generation.last_token_at))
            gaps = row["completion_tokens"] - 1
            return Timing(ttft_s=first, e2e_s=last, tpot_s=(last - first) / gaps if gaps else None)

        running = asyncio.create_task(driver.run())
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(send(number, row, waits_s[number])) for number, row in enumerate(rows)]
        running.cancel()
        return [task.result() for task in tasks]

    return run_virtual(run)


_PRIME_S = 3600.0
"""The mock's cache is filled in an hour of simulated time before the first request."""


def _print_errors(rows: list[dict[str, Any]], calibration: Calibration) -> None:
    predicted = _predict(rows, calibration)
    pairs = [(_timing(row), timing) for row, timing in zip(rows, predicted, strict=True)]
    for name, is_alone in (("alone", True), ("in groups", False)):
        kept = [pair for row, pair in zip(rows, pairs, strict=True) if (row["conc"] == 1) == is_alone]
        if kept:
            print(f"  predicting the other half, {len(kept)} requests {name}: {_errors(kept)}")


def _print_best(fitted: list[dict[str, Any]], predicted: list[dict[str, Any]]) -> None:
    """A reference that knows no model: the median answer to the very same requests in the other half."""
    by_kind: dict[object, list[Timing]] = defaultdict(list)
    for row in fitted:
        by_kind[_kind(row)].append(_timing(row))
    for name, is_alone in (("alone", True), ("in groups", False)):
        pairs = [
            (_timing(row), _median(by_kind[_kind(row)]))
            for row in predicted
            if (row["conc"] == 1) == is_alone and by_kind[_kind(row)]
        ]
        if pairs:
            print(f"  the other half's median of the same request, {len(pairs)} requests {name}: {_errors(pairs)}")


def _median(timings: list[Timing]) -> Timing:
    tpots = [one.tpot_s for one in timings if one.tpot_s is not None]
    return Timing(
        ttft_s=float(np.median([one.ttft_s for one in timings])),
        e2e_s=float(np.median([one.e2e_s for one in timings])),
        tpot_s=float(np.median(tpots)) if tpots else None,
    )


def _print_floor(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    by_kind: dict[object, list[Timing]] = defaultdict(list)
    for row in other:
        by_kind[_kind(row)].append(_timing(row))
    pairs: dict[bool, list[tuple[Timing, Timing]]] = {True: [], False: []}
    for row in one:
        if by_kind[_kind(row)]:
            pairs[row["conc"] == 1].append((_timing(row), by_kind[_kind(row)].pop(0)))
    for name, is_alone in (("alone", True), ("in groups", False)):
        if pairs[is_alone]:
            print(f"the real server against itself, {len(pairs[is_alone])} requests {name}: {_errors(pairs[is_alone])}")


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
