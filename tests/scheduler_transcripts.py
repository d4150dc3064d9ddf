"""Hold the scheduler to recorded decisions of a real vLLM: ``python -m tests.scheduler_transcripts FILE...``.

Prints ``N transcripts, M steps, K mismatching`` and, for the first mismatch, what was expected and what came.
Exit 1 if K > 0. The file format is told by ``shared/vllm/README.md``.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mockserver.engine.batch import Batch
from mockserver.engine.chains import ChainTable
from mockserver.engine.config import EngineConfig
from mockserver.engine.request import Request
from mockserver.engine.scheduler import Scheduler
from mockserver.tokens import pack

Row = dict[str, Any]
COMPARED = (
    "step",
    "scheduled",
    "computed_at_admission",
    "resumed",
    "preempted",
    "emitted",
    "finished",
    "running",
    "waiting",
    "free_blocks",
)


class Replay:
    """One recorded run, driven through our scheduler."""

    def __init__(self, transcript: dict[str, Any], *, check: bool = False) -> None:
        config = transcript["config"]
        self.is_async = transcript.get("mode") == "async"
        self.scheduler = Scheduler(
            EngineConfig(
                num_blocks=config["num_blocks"] - 1,
                block_size=config["block_size"],
                max_num_seqs=config["max_num_seqs"],
                max_num_batched_tokens=config["max_num_batched_tokens"],
                max_model_len=config["max_model_len"],
                enable_prefix_caching=config["prefix_caching"],
                enable_chunked_prefill=config.get("chunked_prefill", True),
                long_prefill_token_threshold=config.get("long_prefill_token_threshold", 0),
                scheduling_policy=config.get("policy", "fcfs"),
                async_scheduling=self.is_async,
            )
        )
        self.check = check
        chains = ChainTable(block_size=config["block_size"])
        self.arrivals: list[tuple[int, Request]] = []
        for sequence, row in enumerate(transcript["requests"]):
            ids = pack(row["prompt"] + row["out"])
            request = Request(
                request_id=row["id"],
                num_prompt_tokens=len(row["prompt"]),
                num_output_tokens=len(row["out"]),
                path=chains.path(ids, salt=row.get("salt") or ""),
                max_tokens=row.get("max_tokens"),
                priority=row.get("priority", 0),
            )
            request.sequence = row.get("arrival", sequence)
            self.arrivals.append((row["arrive_step"], request))
        self.aborts = [(row["step"], row["id"]) for row in transcript["aborts"]]
        self.alive: dict[str, Request] = {}

    def rows(self) -> Iterator[Row]:
        """What our scheduler did, in the transcript's shape."""
        step = 0
        in_flight: list[tuple[Batch, Row]] = []
        depth = 2 if self.is_async else 1
        while self.arrivals or self.alive or in_flight:
            self._arrive_and_abort(step)
            if self.alive or not self.is_async:
                batch = self.scheduler.schedule()
                in_flight.append((batch, self._scheduled_row(step, batch)))
                step += 1
                self._check()
                if len(in_flight) < depth and (not batch.is_empty or self.alive):
                    continue
            elif not in_flight:
                if not self.arrivals:
                    return
                step = max(step + 1, min(at for at, _ in self.arrivals))
                continue
            batch, row = in_flight.pop(0)
            self._process(batch, row)
            if not self.is_async and not row["scheduled"] and self.arrivals:
                step = max(step, min(at for at, _ in self.arrivals))
            yield row

    def _arrive_and_abort(self, step: int) -> None:
        for _, request in [item for item in self.arrivals if item[0] <= step]:
            self.scheduler.add(request)
            self.alive[request.request_id] = request
        self.arrivals = [item for item in self.arrivals if item[0] > step]
        for _, request_id in [item for item in self.aborts if item[0] <= step]:
            if request_id in self.alive:
                self.scheduler.abort(self.alive.pop(request_id))
        self.aborts = [item for item in self.aborts if item[0] > step]

    def _scheduled_row(self, step: int, batch: Batch) -> Row:
        return {
            "step": step,
            "scheduled": {request.request_id: num for request, num in batch.scheduled().items()},
            "computed_at_admission": {request.request_id: request.num_cached_tokens for request in batch.admitted},
            "resumed": sorted(request.request_id for request in batch.resumed),
            "preempted": [request.request_id for request in batch.preempted],
        }

    def _process(self, batch: Batch, row: Row) -> None:
        emitted = {request.request_id: 1 for request in batch.sampling if not request.is_finished}
        finished = self.scheduler.update(batch)
        for request in finished:
            del self.alive[request.request_id]
        if self.is_async:
            row["emitted"] = emitted
        row["finished"] = [request.request_id for request in finished]
        row["running"] = len(self.scheduler.running)
        row["waiting"] = len(self.scheduler.waiting)
        row["free_blocks"] = self.scheduler.pool.num_free
        self._check()

    def _check(self) -> None:
        if self.check:
            self.scheduler.pool.check_invariants([request.table for request in self.alive.values()])


def mismatches(transcript: dict[str, Any], *, check: bool = False) -> Iterator[tuple[Row | None, Row | None]]:
    """Pairs (expected, got) of the steps that differ."""
    expected_rows = transcript["steps"]
    replay = Replay(transcript, check=check).rows()
    for expected in expected_rows:
        got = next(replay, None)
        if got is None or _comparable(expected) != _comparable(got):
            yield expected, got
            if got is None:
                return
    extra = next(replay, None)
    if extra is not None:
        yield None, extra


def _comparable(row: Row) -> list[Any]:
    values = [row.get(key) for key in COMPARED]
    # The order in which one step's requests were scheduled is a decision too.
    return [list(value.items()) if isinstance(value, dict) else value for value in values]


def read_transcripts(path: Path) -> Iterator[dict[str, Any]]:
    """The recorded runs of a file, one a line."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def main(arguments: list[str]) -> int:
    """Replay files; the exit code."""
    num_transcripts = num_steps = num_mismatching = 0
    first: tuple[str, Row | None, Row | None] | None = None
    for argument in arguments:
        for transcript in read_transcripts(Path(argument)):
            num_transcripts += 1
            num_steps += len(transcript["steps"])
            for expected, got in mismatches(transcript):
                num_mismatching += 1
                if first is None:
                    first = (f"{transcript['family']}, seed {transcript['seed']}", expected, got)
    print(f"{num_transcripts} transcripts, {num_steps} steps, {num_mismatching} mismatching")
    if first is not None:
        name, expected, got = first
        print(f"first mismatch: {name}\nexpected: {expected}\ngot:      {got}")
    return 1 if num_mismatching else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
