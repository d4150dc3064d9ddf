"""What one run measured. Pure data; instants are seconds of simulated time from the run's start."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

SCHEMA_VERSION = 1


# Records are values that nobody changes. These two are made by the hundred thousand, and a frozen dataclass takes twice
# as long to make.
@dataclass(slots=True, kw_only=True)
class CallRecord:
    """One model call, as the client saw it."""

    call_id: str
    """``{agent_id}#{index}``, unique in the run."""
    task_id: str
    agent_id: str
    """``{task_id}/{role}``: role is ``react``, ``orchestrator``, or a subagent's tool domain."""
    index: int
    """Position among this agent's calls."""
    due_at: float
    """When it should have been sent: its predecessor was done and its delay over, or its schedule said so."""
    sent_at: float
    first_token_at: float | None
    last_token_at: float | None
    num_prompt_tokens: int | None
    """From the server's usage, as are the two below."""
    num_cached_tokens: int | None
    num_output_tokens: int | None
    expected_output_tokens: int | None
    """What the trace asked for."""
    finish_reason: str | None
    error: str | None = None
    """None where the call succeeded, else one line; its metrics are then not used."""
    status: int | None = None
    """HTTP status; None in process."""
    scheduled_at: float | None = None
    """First scheduled by the server; known in process only."""
    num_preemptions: int | None = None
    num_retries: int = 0
    lag_s: float | None = None
    """How late the last token was delivered against the server's own time, where the server says so."""
    chunk_at: tuple[float, ...] = ()
    """Arrival of every token chunk (kept with --save-detailed)."""
    expected_prompt_tokens: int | None = None
    """What the trace has, counted as we count, where the prompt was made to have as many on this server."""


@dataclass(slots=True, kw_only=True)
class ToolRecord:
    """One tool execution."""

    task_id: str
    agent_id: str
    call_id: str
    """The model call that asked for it."""
    name: str
    domain: str
    started_at: float
    ended_at: float
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """One task from its first call due to its last answer."""

    task_id: str
    started_at: float
    ended_at: float
    num_calls: int
    num_tool_calls: int
    num_subagents: int
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSample:
    """The server at one instant: gauges, and counters since it started. None where the server does not say."""

    at: float
    num_running: int
    num_waiting: int
    num_waiting_tokens: int | None
    """Prompt tokens of waiting and running requests that are still to be computed: the prefill queue."""
    num_blocks: int | None
    num_used_blocks: int | None
    """Held by live requests."""
    num_cached_blocks: int | None
    """Free, but their content can still be hit."""
    num_steps: int | None
    busy_s: float | None
    """Time in steps."""
    occupancy_s: float | None
    """Integral of sequences per step over busy time; divided by busy_s and max_num_seqs: batch occupancy."""
    num_computed_prompt_tokens: int | None
    num_cached_prompt_tokens: int | None
    num_generated_tokens: int | None
    num_evicted_blocks: int | None
    num_preemptions: int | None
    num_finished_requests: int | None
    evicted_by_agent: dict[str, int] | None = None
    """Blocks evicted since the sample before, by the agent whose prompts first held them; servers of ours say so."""


SERVER_COUNTS = tuple(one.name for one in fields(ServerSample) if one.name not in ("at", "evicted_by_agent"))
"""The gauges and counters of a sample, which are plain numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How late things happened against the time they were due, in simulated seconds."""

    p50_s: float
    p99_s: float
    max_s: float
    num_samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHeader:
    """What was run, against what, and whether to believe it."""

    run_id: str
    architecture: str
    workload: str
    workload_digest: str
    num_tasks: int
    target: str
    """``in-process``, or the server's base URL."""
    clock: str
    """``virtual`` or ``wall``."""
    time_scale: float | None
    """Simulated seconds per real second; None in virtual time."""
    profile: str | None
    prefix_caching: bool | None
    max_num_seqs: int | None
    block_size: int | None
    seed: int
    settings: dict[str, Any]
    """Every resolved setting of the run; no secrets."""
    version: str
    schema_version: int = SCHEMA_VERSION
    started_on: str = ""
    """Calendar time, ISO 8601; not part of the digest."""
    elapsed_s: float | None = None
    """Real seconds the run took; not part of the digest."""
    cpu_s: float | None = None
    """CPU seconds of this process; not part of the digest."""
    complete: bool = False
    """False in a run that was interrupted or killed."""
    server_lag: Lag | None = None
    send_lag: Lag | None = None
    invalid_reasons: tuple[str, ...] = ()
    """Empty: the run is valid."""
    digest: str | None = None
    """sha256 over all records; equal for equal inputs in virtual time."""
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def is_in_process(self) -> bool:
        """Whether the server was an engine in the load generator's own process."""
        return self.target == "in-process"
