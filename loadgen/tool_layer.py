"""What a tool call goes through beneath the model call: parsing, a worker, execution, serialising, injection.

    asked    parsed        a worker is free               answered
      |--1-5 ms--|--- queue ---|--- execution, retries ---|--1-3 ms--|--< 1 ms--|  in the history

Every time is drawn from the seed, the task and the call, so a task meets the same ones under every architecture;
only the queue is the architecture's doing.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Collection
from dataclasses import dataclass, field

from loadgen.tools import ToolTimes
from traces.trajectory import ToolCall

PARSE_S = (0.001, 0.005)
SERIALISE_S = (0.001, 0.003)
INJECT_S = (0.0001, 0.001)


def failure_text(call: ToolCall) -> str:
    """What the model is told of a tool that was given up."""
    return f"Error: {call.name} did not answer. Call it again."


class WorkerPool:
    """Workers who take calls in the order they come, one at a time each."""

    def __init__(self, num_workers: int) -> None:
        if num_workers < 1:
            raise ValueError(f"a pool needs at least 1 worker, got {num_workers}")
        self._free_at = [0.0] * num_workers

    def start(self, at: float, duration_s: float) -> float:
        """When a call that comes ``at`` is begun; its worker is busy for ``duration_s`` from then on."""
        started_at = max(at, self._free_at[0])
        heapq.heapreplace(self._free_at, started_at + duration_s)
        return started_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One tool call, from being asked for to standing in the history."""

    answered_at: float
    started_at: float
    """When a worker began."""
    ended_at: float
    """When the worker had done, or had given up."""
    is_failed: bool


@dataclass(eq=False, slots=True)
class ToolTotals:
    """Sums over all tool calls of a run."""

    num_calls: int = 0
    num_timeouts: int = 0
    num_failures: int = 0
    num_retries: int = 0
    num_given_up: int = 0
    parse_s: float = 0.0
    queue_s: float = 0.0
    execution_s: float = 0.0
    serialise_s: float = 0.0
    inject_s: float = 0.0

    def text(self) -> str:
        """One line."""
        return (
            f"{self.num_calls:,} tool calls: parsing {self.parse_s:,.1f} s, waiting for a worker {self.queue_s:,.1f} s,"
            f" execution {self.execution_s:,.1f} s, serialising {self.serialise_s:,.1f} s, injecting"
            f" {self.inject_s:,.1f} s; {self.num_timeouts:,} timed out, {self.num_failures:,} failed,"
            f" {self.num_retries:,} retried, {self.num_given_up:,} given up and asked for again"
        )


@dataclass(eq=False, slots=True, kw_only=True)
class ToolLayer:
    """The tools of one run, with the workers that they share."""

    times: ToolTimes
    has_overheads: bool = False
    """Whether parsing, serialising and injecting take time."""
    cpu_pool: WorkerPool | None = None
    """None: as many workers as calls."""
    gpu_pool: WorkerPool | None = None
    gpu_domains: Collection[str] = ()
    """Domains whose tools run on a GPU."""
    timeout_s: float | None = None
    failure_rate: float = 0.0
    """Share of executions that fail."""
    num_retries: int = 0
    """How often a worker tries again before it gives up."""
    totals: ToolTotals = field(default_factory=ToolTotals)

    def __post_init__(self) -> None:
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise ValueError(f"a tool's timeout must be more than 0 s, got {self.timeout_s}")
        if not 0.0 <= self.failure_rate < 1.0:
            raise ValueError(f"the failure rate of tools must be in [0, 1), got {self.failure_rate}")
        if self.num_retries < 0:
            raise ValueError(f"the number of retries must be at least 0, got {self.num_retries}")

    def run(self, task_id: str, call: ToolCall, *, asked_at: float, is_last_chance: bool = False) -> Execution:
        """What becomes of ``call``. ``is_last_chance``: it was given up before, and now goes well."""
        rng = random.Random(f"{self.times.seed}/layer/{task_id}/{call.call_id}")
        parse_s, serialise_s, inject_s = (
            (rng.uniform(*PARSE_S), rng.uniform(*SERIALISE_S), rng.uniform(*INJECT_S))
            if self.has_overheads
            else (0.0, 0.0, 0.0)
        )
        duration_s, is_failed = self._worked(task_id, call, rng, is_last_chance=is_last_chance)
        parsed_at = asked_at + parse_s
        pool = self._pool(call.domain)
        started_at = parsed_at if pool is None else pool.start(parsed_at, duration_s)
        ended_at = started_at + duration_s
        totals = self.totals
        totals.num_calls += 1
        totals.parse_s += parse_s
        totals.queue_s += started_at - parsed_at
        totals.execution_s += duration_s
        totals.serialise_s += serialise_s
        totals.inject_s += inject_s
        totals.num_given_up += is_failed
        return Execution(
            answered_at=ended_at + serialise_s + inject_s,
            started_at=started_at,
            ended_at=ended_at,
            is_failed=is_failed,
        )

    def _worked(self, task_id: str, call: ToolCall, rng: random.Random, *, is_last_chance: bool) -> tuple[float, bool]:
        """How long a worker is at it, all its tries together, and whether it gave up.

        The worker that has a call tries again itself, at once.
        """
        duration_s = 0.0
        for number in range(self.num_retries + 1):
            self.totals.num_retries += number > 0
            attempt_s = self.times.latency_s(task_id, call, attempt=number)
            timed_out = self.timeout_s is not None and attempt_s > self.timeout_s
            failed = not timed_out and rng.random() < self.failure_rate
            if is_last_chance or not (timed_out or failed):
                return duration_s + attempt_s, False
            self.totals.num_timeouts += timed_out
            self.totals.num_failures += failed
            duration_s += self.timeout_s if timed_out and self.timeout_s is not None else attempt_s
        return duration_s, True

    def _pool(self, domain: str) -> WorkerPool | None:
        if domain in self.gpu_domains:
            return self.gpu_pool
        return None if self.times.is_remote(domain) else self.cpu_pool
