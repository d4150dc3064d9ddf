"""What is counted while requests are served, cheaply; ``metrics.py`` shows it.

Durations are simulated seconds, read off the model's own time: a scaled server reports what the machine it pretends to
be would have.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from mockserver.driver import Generation
from mockserver.engine.engine import StepResult

LATENCY_BUCKETS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
TTFT_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
ITL_BUCKETS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0),
)
ITERATION_BUCKETS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
COUNT_BUCKETS = (1, 2, 5, 10, 20)
PREEMPTION_BUCKETS = (1, 2, 3, 4, 5, 10, 20)
HTTP_BUCKETS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5),
    *(5.0, 7.5, 10.0, 30.0, 60.0),
)
HTTP_COARSE_BUCKETS = (0.1, 0.5, 1.0)


class Histogram:
    """Counts of values by bucket, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, num_times: int = 1) -> None:
        """Count ``value``."""
        self.counts[bisect_left(self.bounds, value)] += num_times
        self.total += value * num_times


def one_two_five(largest: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20 ... up to ``largest``."""
    bounds: list[int] = []
    scale = 1
    while True:
        for mantissa in (1, 2, 5):
            if mantissa * scale > largest:
                return tuple(bounds)
            bounds.append(mantissa * scale)
        scale *= 10


class RequestBooks:
    """What vLLM counts about the requests of one rank."""

    def __init__(self, max_model_len: int) -> None:
        lengths = one_two_five(max_model_len)
        self.num_prompt_tokens = 0
        self.num_by_reason: Counter[str] = Counter()
        self.ttft = Histogram(TTFT_BUCKETS)
        self.itl = Histogram(ITL_BUCKETS)
        self.tpot = Histogram(ITL_BUCKETS)
        self.e2e = Histogram(LATENCY_BUCKETS)
        self.queue = Histogram(LATENCY_BUCKETS)
        self.inference = Histogram(LATENCY_BUCKETS)
        self.prefill = Histogram(LATENCY_BUCKETS)
        self.decode = Histogram(LATENCY_BUCKETS)
        self.iteration_tokens = Histogram(ITERATION_BUCKETS)
        self.prompt_tokens = Histogram(lengths)
        self.generation_tokens = Histogram(lengths)
        self.max_generation_tokens = Histogram(lengths)
        self.params_n = Histogram(COUNT_BUCKETS)
        self.params_max_tokens = Histogram(lengths)
        self.preemptions = Histogram(PREEMPTION_BUCKETS)
        self.computed_tokens = Histogram(lengths)

    def count_step(self, result: StepResult) -> None:
        """A step has ended: its tokens are those sampled, and the prompts that it was the last step of."""
        if result.sampled:
            at = result.at
            num_prompt_tokens = sum(
                request.num_prompt_tokens for request in result.sampled if request.first_token_at == at
            )
            self.iteration_tokens.observe(num_prompt_tokens + len(result.sampled))

    def count_first_token(self, generation: Generation) -> None:
        """A request has its first token."""
        self.num_prompt_tokens += generation.request.num_prompt_tokens
        first_token_at = generation.first_token_at
        assert first_token_at is not None
        self.ttft.observe(first_token_at - generation.arrived_at)

    def count_gaps(self, from_at: float, to_at: float, num_tokens: int) -> None:
        """``num_tokens`` more tokens came between two instants, seen together: their gaps are equal shares."""
        if num_tokens:
            self.itl.observe((to_at - from_at) / num_tokens, num_tokens)

    def count_finished(self, generation: Generation, *, num_choices: int, max_tokens: int) -> None:
        """A request has ended by itself; aborted ones are not counted here, as in vLLM."""
        scheduled_at, first_at, last_at = (
            generation.scheduled_at,
            generation.first_token_at,
            generation.last_token_at,
        )
        assert scheduled_at is not None
        assert first_at is not None
        assert last_at is not None
        arrived_at = generation.arrived_at
        num_output_tokens = generation.num_output_tokens
        self.num_by_reason[generation.finish_reason or "stop"] += 1
        self.e2e.observe(last_at - arrived_at)
        self.queue.observe(scheduled_at - arrived_at)
        self.prefill.observe(first_at - scheduled_at)
        self.decode.observe(last_at - first_at)
        self.inference.observe(last_at - scheduled_at)
        self.tpot.observe((last_at - first_at) / (num_output_tokens - 1) if num_output_tokens > 1 else 0.0)
        num_prompt_tokens = generation.request.num_prompt_tokens
        self.prompt_tokens.observe(num_prompt_tokens)
        self.computed_tokens.observe(num_prompt_tokens - generation.num_cached_tokens)
        self.generation_tokens.observe(num_output_tokens)
        self.max_generation_tokens.observe(num_output_tokens)
        self.params_n.observe(num_choices)
        self.params_max_tokens.observe(max_tokens)
        self.preemptions.observe(generation.num_preemptions)


class HttpBooks:
    """What the HTTP layer counts, by path and method, and what it makes of requests and answers."""

    def __init__(self) -> None:
        self.num_rejected = 0
        self.num_tool_parses: Counter[tuple[str, str]] = Counter()
        self.num_requests: Counter[tuple[str, str, str]] = Counter()
        self.request_bytes: dict[str, list[float]] = {}
        self.response_bytes: dict[str, list[float]] = {}
        self.durations = Histogram(HTTP_BUCKETS)
        self.durations_by_handler: dict[tuple[str, str], Histogram] = {}

    def count(
        self,
        *,
        handler: str,
        method: str,
        status: int,
        num_request_bytes: int,
        num_response_bytes: int,
        duration_s: float,
    ) -> None:
        """One exchange has ended."""
        self.num_requests[handler, method, f"{status // 100}xx"] += 1
        for table, size in ((self.request_bytes, num_request_bytes), (self.response_bytes, num_response_bytes)):
            row = table.setdefault(handler, [0, 0.0])
            row[0] += 1
            row[1] += size
        self.durations.observe(duration_s)
        histogram = self.durations_by_handler.get((handler, method))
        if histogram is None:
            histogram = self.durations_by_handler[handler, method] = Histogram(HTTP_COARSE_BUCKETS)
        histogram.observe(duration_s)
