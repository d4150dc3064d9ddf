"""The machine: requests in, steps out, tokens at the end of each step. Time is an argument.

    step = engine.begin_step(at=2.0)      # decides the batch and how long it takes
    result = engine.finish_step(step)     # its tokens, stamped step.ends_at

Requests come and go while a step runs, which is why it has two halves. Steps are anchored: one starts where the one
before it ended by the model's own time, however late the process is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from mockserver.engine.batch import Batch
from mockserver.engine.config import EngineConfig
from mockserver.engine.cost import BatchShape, StepCost
from mockserver.engine.quiet import max_quiet_steps, take_quiet_steps
from mockserver.engine.request import Request
from mockserver.engine.scheduler import Scheduler


class RequestTooLongError(ValueError):
    """Whoever sends a request that could never run meets this; the text is vLLM's."""


@dataclass(eq=False, slots=True)
class Step:
    """One forward pass of the model."""

    batch: Batch
    starts_at: float
    ends_at: float


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step brought."""

    at: float
    sampled: list[Request]
    """Requests that got a token, unless they had ended before the step did."""
    finished: list[Request]
    """Those that ended with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The machine at one instant: gauges, and counters since its start."""

    num_running: int
    num_waiting: int
    num_waiting_tokens: int
    """Prompt tokens that are still to be computed, of waiting and running requests: the prefill queue."""
    num_blocks: int
    num_used_blocks: int
    num_cached_blocks: int
    """Free blocks whose content can still be hit."""
    num_steps: int
    busy_s: float
    occupancy_s: float
    """Sequences per step, integrated over the time in steps."""
    num_computed_prompt_tokens: int
    """By the steps that have ended; what a preempted request computes again counts again."""
    num_cached_prompt_tokens: int
    num_admitted_prompt_tokens: int
    """Of requests that were admitted so far, the cached ones among them: what the prefix cache was asked for."""
    num_generated_tokens: int
    num_evicted_blocks: int
    num_preemptions: int
    num_finished_requests: int


def add_snapshots(snapshots: Sequence[Snapshot]) -> Snapshot:
    """Several ranks as one machine: gauges and counters summed, the time in steps averaged."""
    if len(snapshots) == 1:
        return snapshots[0]
    sums = {field.name: sum(getattr(snapshot, field.name) for snapshot in snapshots) for field in fields(Snapshot)}
    return Snapshot(**(sums | {"busy_s": sums["busy_s"] / len(snapshots)}))


class Engine:
    """One scheduler, its pool, and the time its steps take."""

    def __init__(self, config: EngineConfig, step_cost: StepCost) -> None:
        self.config = config
        self.scheduler = Scheduler(config)
        self.max_steps_in_flight = 2 if config.async_scheduling else 1
        self._step_cost = step_cost
        self._busy_until = 0.0
        self._last_duration_s = 0.0
        self._next_duration_s: float | None = None
        """Of the step that begins next, where ``skip`` found it out already."""
        self._request_by_id: dict[str, Request] = {}
        self._num_arrived = 0
        self._num_guided = 0
        self._num_in_flight = 0
        self._num_steps = 0
        self._num_prefilled_tokens = 0
        self._busy_s = 0.0
        self._occupancy_s = 0.0
        self._num_finished = 0

    @property
    def num_requests(self) -> int:
        """Waiting and running requests."""
        return len(self._request_by_id)

    def num_cached_tokens_of(self, request: Request) -> int:
        """Prompt tokens that the cache would save a request that came now."""
        return self.scheduler.num_cached_tokens_of(request)

    def request(self, request_id: str) -> Request | None:
        """A live request by its id."""
        return self._request_by_id.get(request_id)

    def add(self, request: Request, at: float) -> None:
        """Queue a request. RequestTooLongError if it could never run, ValueError if its id is taken."""
        self.check(request)
        if request.request_id in self._request_by_id:
            raise ValueError(f"request_id {request.request_id!r} is in use")
        request.arrived_at = at
        request.sequence = self._num_arrived
        self._num_arrived += 1
        self._request_by_id[request.request_id] = request
        self._num_guided += request.guided
        self.scheduler.add(request)

    def check(self, request: Request) -> None:
        """RequestTooLongError, in vLLM's words, for a request that could never run."""
        config = self.config
        # The last token's KV is never written, so it needs no room.
        limit = min(config.max_model_len, config.num_kv_tokens + 1)
        if request.num_prompt_tokens >= limit:
            raise RequestTooLongError(
                f"This model's maximum context length is {limit} tokens. However, your prompt contains at least "
                f"{request.num_prompt_tokens} input tokens, which exceeds this limit even without any output tokens. "
                f"Please reduce the length of the input prompt. "
                f"(parameter=input_tokens, value={request.num_prompt_tokens})"
            )
        if request.final_num_tokens > limit:
            raise RequestTooLongError(
                f"max_tokens={request.num_output_tokens} cannot be greater than "
                f"max_model_len - prompt = {limit - request.num_prompt_tokens}. Please request fewer output tokens. "
                f"(parameter=max_tokens, value={request.num_output_tokens})"
            )

    def abort(self, request_id: str, at: float) -> Request | None:
        """Take a request out at once; the step it is in still takes its time. None if it has ended already."""
        request = self._request_by_id.pop(request_id, None)
        if request is not None:
            self.scheduler.abort(request)
            self._num_guided -= request.guided
            request.ended_at = at
        return request

    def begin_step(self, at: float) -> Step | None:
        """Decide the next batch at ``at``; it starts when the step before it ends. None if there is nothing to run."""
        batch = self.scheduler.schedule()
        if batch.is_empty and batch.preempted and not self._num_in_flight:
            batch = self.scheduler.schedule()  # everyone had to step back, and nobody is admitted in such a step
        if batch.is_empty:
            return None
        for request in batch.admitted:
            request.scheduled_at = at
        if self._num_guided:
            decoding = (request for request, num_new in batch.scheduled().items() if num_new == 1)
            num_guided = sum(request.guided for request in decoding)
            batch.shape.num_guided_seqs = min(num_guided, batch.shape.num_decode_seqs)
        starts_at = max(at, self._busy_until)
        ends_at = starts_at + self._count_step(batch.shape)
        self._busy_until = ends_at
        self._num_in_flight += 1
        return Step(batch, starts_at, ends_at)

    def stretch(self, step: Step, ends_at: float) -> None:
        """Let the last step begun end later, as it does where it waits for the slowest of several ranks."""
        step.ends_at = self._busy_until = ends_at

    def hold_up(self, in_flight: Iterable[Step], extra_s: float) -> None:
        """Let all steps that have begun, first come first, end ``extra_s`` later."""
        for place, step in enumerate(in_flight):
            if place:
                step.starts_at += extra_s
            self.stretch(step, step.ends_at + extra_s)

    def finish_step(self, step: Step) -> StepResult:
        """Hand out the step's tokens."""
        at = step.ends_at
        self._num_in_flight -= 1
        self._num_prefilled_tokens += step.batch.shape.num_prefill_tokens
        finished = self.scheduler.update(step.batch)
        _note_first_tokens(step.batch.prompts_done, at)
        for request in finished:
            request.last_token_at = request.ended_at = at
            del self._request_by_id[request.request_id]
            self._num_guided -= request.guided
        self._num_finished += len(finished)
        return StepResult(at, step.batch.sampling, finished)

    def reset_prefix_cache(self) -> bool:
        """Forget all cached blocks; refused (False) while a request holds some, as vLLM does."""
        return self.scheduler.pool.reset()

    def take_evictions(self) -> dict[int, int]:
        """Blocks evicted since this was last asked, by chain; they are counted from the first time on."""
        pool = self.scheduler.pool
        taken, pool.evicted_by_chain = pool.evicted_by_chain or {}, {}
        return taken

    def snapshot(self) -> Snapshot:
        """The machine as it stands."""
        scheduler = self.scheduler
        pool = scheduler.pool
        num_waiting_tokens = sum(request.num_tokens for request in scheduler.waiting)
        for request in scheduler.running:
            num_waiting_tokens += max(0, request.num_prompt_tokens - request.num_computed_tokens)
        return Snapshot(
            num_running=len(scheduler.running),
            num_waiting=len(scheduler.waiting),
            num_waiting_tokens=num_waiting_tokens,
            num_blocks=pool.num_blocks,
            num_used_blocks=pool.num_used,
            num_cached_blocks=pool.num_free_cached,
            num_steps=self._num_steps,
            busy_s=self._busy_s,
            occupancy_s=self._occupancy_s,
            num_computed_prompt_tokens=self._num_prefilled_tokens,
            num_cached_prompt_tokens=scheduler.num_prompt_tokens_cached,
            num_admitted_prompt_tokens=scheduler.num_prompt_tokens_admitted,
            num_generated_tokens=scheduler.num_generated_tokens,
            num_evicted_blocks=pool.num_evicted,
            num_preemptions=scheduler.num_preemptions,
            num_finished_requests=self._num_finished,
        )

    def check_invariants(self) -> None:
        """Assert what is always true. For tests."""
        self.scheduler.check_invariants(list(self._request_by_id.values()))

    def skip(self, at: float, until: float, in_flight: Step | None = None) -> float:
        """Take at once all steps that end by ``until`` and in which nobody comes, goes or is seen.

        ``at`` is where the machine stands: nothing can happen to it before ``until``. With asynchronous scheduling,
        ``in_flight`` is the one step that runs, and it becomes the last of those taken. Returns where the machine
        stands then. Results are those of single steps, to the last bit.
        """
        scheduler = self.scheduler
        first_end = at + self._last_duration_s if in_flight is None else in_flight.ends_at
        if first_end > until:
            return at
        max_steps = max_quiet_steps(scheduler)
        if not max_steps:
            return at
        num_seqs = len(scheduler.running)
        shape = BatchShape(num_decode_seqs=num_seqs)
        shape.num_decode_context_tokens = sum(request.num_computed_tokens for request in scheduler.running)
        if self._num_guided:
            shape.num_guided_seqs = sum(request.guided for request in scheduler.running)
        num_taken = 0
        if in_flight is None:
            while num_taken < max_steps:
                duration_s = self._next_duration_s = self._step_cost(shape)
                if at + duration_s > until:
                    break  # begin_step will take this very step, and its duration
                at += self._count_step(shape)
                shape.num_decode_context_tokens += num_seqs
                num_taken += 1
            self._busy_until = max(self._busy_until, at)
            take_quiet_steps(scheduler, num_taken)
        else:
            while num_taken < max_steps and in_flight.ends_at <= until:
                at = in_flight.starts_at = in_flight.ends_at
                in_flight.ends_at += self._count_step(shape)
                shape.num_decode_context_tokens += num_seqs
                num_taken += 1
                if num_taken == 1:
                    first_end = at
            self._busy_until = in_flight.ends_at
            prompts_done = in_flight.batch.prompts_done
            self._num_prefilled_tokens += in_flight.batch.shape.num_prefill_tokens
            in_flight.batch = take_quiet_steps(scheduler, num_taken)
            _note_first_tokens(prompts_done, first_end)
        return at

    def _count_step(self, shape: BatchShape) -> float:
        duration_s = self._next_duration_s
        if duration_s is None:
            duration_s = self._step_cost(shape)
        self._next_duration_s = None
        self._last_duration_s = duration_s
        self._num_steps += 1
        self._busy_s += duration_s
        self._occupancy_s += duration_s * (shape.num_decode_seqs + shape.num_prefill_seqs)
        return duration_s


def _note_first_tokens(requests: list[Request], at: float) -> None:
    for request in requests:
        if request.first_token_at is None and request.num_tokens > request.num_prompt_tokens:
            request.first_token_at = at
