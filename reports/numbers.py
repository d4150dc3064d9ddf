"""What a run's records come down to: the shapes of the numbers (``reports.measure`` computes)."""

from __future__ import annotations

from dataclasses import dataclass

from reports.window import Window
from traces.record import Lag


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """What is said about many values of one metric."""

    num: int
    mean: float
    std: float
    min: float
    p50: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """What a call must meet to count as goodput; None: not asked for."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    @property
    def any(self) -> bool:
        """Whether anything is asked for at all."""
        return not (self.ttft_s is None and self.tpot_s is None and self.e2e_s is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathShares:
    """Where the time of a critical path went, in seconds. The parts add up to the task's time."""

    queue_s: float = 0.0
    """Waiting in the server before the first step, where the server says when that was."""
    prefill_s: float = 0.0
    """From first scheduled (or sent, where that is not known) to the first token."""
    decode_s: float = 0.0
    """From the first token to the last."""
    tool_s: float = 0.0
    """Tools running or waiting for a free slot."""
    harness_s: float = 0.0
    """The rest: the agent's own delays and the load generator's lateness."""

    @property
    def total_s(self) -> float:
        """The whole path."""
        return self.queue_s + self.prefill_s + self.decode_s + self.tool_s + self.harness_s


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskShape:
    """Each over all tasks of a run, or over all agents."""

    calls: Distribution | None
    agents: Distribution | None
    tokens: Distribution | None
    """Prompt and output tokens of all its calls: what is sent, cached or not."""
    parallelism: Distribution | None
    """Calls in flight, on average over the time in which there is one."""
    context: Distribution | None
    """The longest prompt of an agent, with the answer to it."""
    kv_bytes: Distribution | None
    """KV of that context, where the header says what a token takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Every number of one run. Durations in seconds, rates per second; None where the records lack it."""

    run_id: str
    invalid_reasons: tuple[str, ...]
    """Empty: the run is valid."""
    window: Window | None
    """The part of the run that was measured; None: all of it."""
    num_calls_measured: int
    """Calls whose latencies these are: due in the window. What ended in it are ``num_calls``."""
    num_tasks: int
    num_tasks_succeeded: int
    num_calls: int
    num_calls_succeeded: int
    duration_s: float | None
    makespan_s: float | None
    ttft: Distribution | None
    tpot: Distribution | None
    itl: Distribution | None
    e2e: Distribution | None
    latency_from_schedule: Distribution | None
    dispatch_delay: Distribution | None
    predecessor_wait: Distribution | None
    send_lateness: Distribution | None
    queue_time: Distribution | None
    task_time: Distribution | None
    prompt_length: Distribution | None
    output_length: Distribution | None
    num_prompts_off: int | None
    """Prompts of another length than the trace's, where they were made to have it."""
    num_outputs_off: int | None
    """Answers of another length than the trace's, where they were asked to have it."""
    num_prompt_tokens: int
    num_cached_tokens: int | None
    num_computed_tokens: int | None
    num_output_tokens: int
    hit_rate: float | None
    reusable_hit_rate: float | None
    """What a cache that forgets nothing could have served at least: see ``measure.num_reusable_tokens``."""
    request_throughput: float | None
    output_throughput: float | None
    input_throughput: float | None
    cached_input_throughput: float | None
    computed_input_throughput: float | None
    tasks_per_hour: float | None
    goodput: float | None
    goodput_attainment: float | None
    max_concurrent_calls: int
    path_shares: PathShares | None
    """Mean over the tasks."""
    num_calls_of_longest_chain: int | None
    """Calls on the critical path of the task that took longest."""
    tool_share: float | None
    gpu_busy_share: float | None
    batch_occupancy: float | None
    num_server_computed_tokens: int | None
    """By the server's own counter: recomputation after a preemption counts again."""
    num_evicted_blocks: int | None
    num_preemptions: int | None
    shape: TaskShape
    lag: Lag | None
    send_lag: Lag | None
