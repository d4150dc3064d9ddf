"""How long a step takes, from what is in its batch.

Everyone in a batch waits for the whole of it, so a step's cost depends on the batch and on nothing else. ``StepCost``
is a seam: constant rates, tables, a roofline from public figures, or coefficients fitted to a live server.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(eq=False, slots=True)
class BatchShape:
    """What a step's duration depends on."""

    num_prefill_tokens: int = 0
    num_prefill_seqs: int = 0
    prefill_attention: float = 0.0
    """Sum over prefill chunks of tokens times the mean context they attend to."""
    num_prefill_context_tokens: int = 0
    """KV tokens that were there before the prefill chunks that attend to them, all together."""
    num_decode_seqs: int = 0
    num_decode_context_tokens: int = 0
    """KV tokens that the decoding sequences read, all together."""
    num_guided_seqs: int = 0
    """Decoding sequences that a grammar guides."""

    def add(self, num_computed: int, num_new: int, *, is_decode: bool) -> None:
        """Count a request with ``num_new`` tokens after ``num_computed`` of context; negative: take it out again."""
        sign = 1 if num_new > 0 else -1
        if is_decode:
            self.num_decode_seqs += sign
            self.num_decode_context_tokens += sign * num_computed
        else:
            self.num_prefill_tokens += num_new
            self.num_prefill_seqs += sign
            self.prefill_attention += num_new * (num_computed + abs(num_new) / 2)
            self.num_prefill_context_tokens += sign * num_computed


class StepCost(Protocol):
    """A batch's duration in seconds."""

    def __call__(self, shape: BatchShape) -> float:
        """Seconds the step takes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantRates:
    """Prefill at a constant rate; decode at a floor, or as fast as its KV can be read."""

    prefill_tokens_per_s: float
    decode_floor_s: float
    """A decode step's duration while it is bound by reading the weights."""
    kv_bytes_per_token: float
    memory_bytes_per_s: float

    def __post_init__(self) -> None:
        require_positive(self, "prefill_tokens_per_s", "decode_floor_s", "kv_bytes_per_token", "memory_bytes_per_s")

    def __call__(self, shape: BatchShape) -> float:
        """Prefill and decode take turns on the GPU: the sum of both."""
        duration_s = shape.num_prefill_tokens / self.prefill_tokens_per_s
        if shape.num_decode_seqs:
            read_s = shape.num_decode_context_tokens * self.kv_bytes_per_token / self.memory_bytes_per_s
            duration_s += max(self.decode_floor_s, read_s)
        return duration_s


def require_positive(owner: object, *names: str) -> None:
    """Raise ValueError for the first attribute that is not a positive number."""
    for name in names:
        value = getattr(owner, name)
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")


def interpolate(points: tuple[tuple[float, float], ...], at: float) -> float:
    """Piecewise linear through ``points`` (sorted by x); beyond the last two points their line goes on.

    Below the first point the value is the first one: a step has a floor.
    """
    first_x, first_y = points[0]
    if at <= first_x or len(points) == 1:
        return first_y
    index = min(max(bisect_left(points, (at,)), 1), len(points) - 1)
    (x0, y0), (x1, y1) = points[index - 1], points[index]
    return y0 + (y1 - y0) * (at - x0) / (x1 - x0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCost:
    """Measured step times with linear interpolation between them."""

    prefill_s: tuple[tuple[float, float], ...]
    """(prefill tokens in the step, seconds), ascending."""
    decode_s: tuple[tuple[float, float], ...]
    """(decode sequences, seconds) at ``decode_context_tokens`` of context each, ascending."""
    decode_context_tokens: int
    kv_bytes_per_token: float
    memory_bytes_per_s: float
    """What context beyond (or short of) the table's is read at."""

    def __post_init__(self) -> None:
        require_positive(self, "kv_bytes_per_token", "memory_bytes_per_s")
        for name in ("prefill_s", "decode_s"):
            points = getattr(self, name)
            if not points or list(points) != sorted(points) or min(y for _, y in points) <= 0:
                raise ValueError(f"{name} must hold ascending (count, positive seconds) pairs, got {points}")

    def __call__(self, shape: BatchShape) -> float:
        """A mixed step is its prefill, plus what its decodes add to a step that reads the weights anyway."""
        duration_s = 0.0
        if shape.num_decode_seqs:
            duration_s = interpolate(self.decode_s, shape.num_decode_seqs)
            extra_tokens = shape.num_decode_context_tokens - self.decode_context_tokens * shape.num_decode_seqs
            duration_s += extra_tokens * self.kv_bytes_per_token / self.memory_bytes_per_s
            duration_s = max(duration_s, self.decode_s[0][1])
        if shape.num_prefill_tokens:
            prefill_s = interpolate(((0.0, self.decode_s[0][1]), *self.prefill_s), shape.num_prefill_tokens)
            duration_s = prefill_s + max(0.0, duration_s - self.decode_s[0][1])
        return duration_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """A step as the slower of arithmetic and memory traffic, from a model's shape and a GPU's datasheet.

    arithmetic: 2 FLOP per active parameter and token, plus attention; memory: weights once, KV of every context.
    """

    num_active_params: float
    weight_bytes: float
    """Weights read per step. For a mixture of experts: those of the experts a batch touches."""
    kv_bytes_per_token: float
    attention_flops_per_pair: float
    """FLOP per (new token, context token) pair: 4 x heads x head size x layers."""
    flops_per_s: float
    """All GPUs together, as reached in practice (datasheet times efficiency)."""
    memory_bytes_per_s: float
    overhead_s: float
    """Launches, synchronisation and collective latency of one step."""

    def __post_init__(self) -> None:
        require_positive(self, "num_active_params", "weight_bytes", "kv_bytes_per_token", "flops_per_s")
        require_positive(self, "memory_bytes_per_s")

    def __call__(self, shape: BatchShape) -> float:
        """The larger of the two bounds, plus the step's overhead."""
        num_tokens = shape.num_prefill_tokens + shape.num_decode_seqs
        num_pairs = shape.prefill_attention + shape.num_decode_context_tokens
        flops = 2 * self.num_active_params * num_tokens + self.attention_flops_per_pair * num_pairs
        num_bytes = self.weight_bytes + self.kv_bytes_per_token * shape.num_decode_context_tokens
        return max(flops / self.flops_per_s, num_bytes / self.memory_bytes_per_s) + self.overhead_s


def padded_batch_size(num_seqs: int, ceiling: int) -> int:
    """The CUDA graph size a pure decode batch is padded to: 1, 2, 4, 8 .. 248 by 8, 256 .. ``ceiling`` by 16.

    Above the ceiling the batch runs eagerly, unpadded (vLLM ``config/compilation.py``).
    """
    if num_seqs > ceiling:
        return num_seqs
    if num_seqs <= 2:
        return min(num_seqs, ceiling)
    if num_seqs <= 4:
        return min(4, ceiling)
    step = 8 if num_seqs <= 248 else 16
    return min(-(-num_seqs // step) * step, ceiling)


FIRST_PREFILL_TOKENS = 512
"""Of a step: ``FittedCost`` can let each of them cost more than those beyond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedCost:
    """Coefficients of a live server, as ``reports calibrate`` finds them."""

    floor_s: float
    per_prefill_token_s: float
    per_first_prefill_token_s: float = 0.0
    """Per prompt token of a step up to the ``FIRST_PREFILL_TOKENS``-th, besides: few tokens keep a machine less well
    busy than many."""
    per_prefill_attention_s: float = 0.0
    """Per (chunk token x context token it attends to)."""
    mixed_step_s: float = 0.0
    """Per step that decodes and computes prompt tokens, besides what both cost: decoding alone takes a captured or
    compiled path, and finds its data in caches that a prompt's take over."""
    per_prefill_context_token_s: float = 0.0
    """Per token that was there before a chunk, however long the chunk is: its KV is read at least once."""
    per_decode_seq_s: float = 0.0
    """Per sequence of the padded batch (pure decode) or of the batch itself (mixed step)."""
    per_decode_context_token_s: float = 0.0
    cpu_overhead_s: float = 0.0
    """Per step, where scheduling does not hide behind the GPU."""
    graph_ceiling: int = 512
    """Largest captured batch; 0: no padding."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if not self.floor_s + self.cpu_overhead_s + self.per_prefill_token_s > 0:
            raise ValueError("a step must take time: floor_s, cpu_overhead_s and per_prefill_token_s are all 0")

    def __call__(self, shape: BatchShape) -> float:
        """The floor and what each part of the batch adds to it."""
        num_seqs = shape.num_decode_seqs
        if num_seqs and not shape.num_prefill_tokens and self.graph_ceiling:
            num_seqs = padded_batch_size(num_seqs, self.graph_ceiling)
        return (
            self.floor_s
            + (self.mixed_step_s if num_seqs and shape.num_prefill_tokens else 0.0)
            + self.per_prefill_token_s * shape.num_prefill_tokens
            + self.per_first_prefill_token_s * min(shape.num_prefill_tokens, FIRST_PREFILL_TOKENS)
            + self.per_prefill_attention_s * shape.prefill_attention
            + self.per_prefill_context_token_s * shape.num_prefill_context_tokens
            + self.per_decode_seq_s * num_seqs
            + self.per_decode_context_token_s * shape.num_decode_context_tokens
            + self.cpu_overhead_s
        )


@dataclass(frozen=True, slots=True)
class RankShare:
    """A node's step cost as one of ``num_ranks`` data-parallel ranks sees it: it has that share of the node.

    A rank's batch takes what the node takes when every rank has such a batch.
    """

    step_cost: StepCost
    num_ranks: int

    def __call__(self, shape: BatchShape) -> float:
        """The node's cost of ``num_ranks`` such batches."""
        return self.step_cost(
            BatchShape(
                num_prefill_tokens=shape.num_prefill_tokens * self.num_ranks,
                num_prefill_seqs=shape.num_prefill_seqs * self.num_ranks,
                prefill_attention=shape.prefill_attention * self.num_ranks,
                num_prefill_context_tokens=shape.num_prefill_context_tokens * self.num_ranks,
                num_decode_seqs=shape.num_decode_seqs * self.num_ranks,
                num_decode_context_tokens=shape.num_decode_context_tokens * self.num_ranks,
            )
        )


@dataclass(frozen=True, slots=True)
class GuidedDecoding:
    """A step cost where a grammar masks the tokens of some sequences: ``overhead`` of the decode where it does so for
    all of them, and its share of that otherwise (the masks are made one after the other, and everyone waits).
    """

    step_cost: StepCost
    overhead: float

    def __call__(self, shape: BatchShape) -> float:
        """The cost, and what the masks add to the decoding part of the step."""
        duration_s = self.step_cost(shape)
        if not shape.num_guided_seqs:
            return duration_s
        decode_s = duration_s
        if shape.num_prefill_tokens:
            decode_s = self.step_cost(
                BatchShape(
                    num_decode_seqs=shape.num_decode_seqs, num_decode_context_tokens=shape.num_decode_context_tokens
                )
            )
        return duration_s + self.overhead * decode_s * shape.num_guided_seqs / shape.num_decode_seqs


@dataclass(frozen=True, slots=True)
class Jittered:
    """A step cost with heavy-tailed noise: each duration is multiplied by a draw of mean near 1.

    The draws come from outside (``random.Random(seed).lognormvariate`` bound to its parameters): the engine itself
    draws nothing.
    """

    step_cost: StepCost
    draw: Callable[[], float]

    def __call__(self, shape: BatchShape) -> float:
        """The cost times one draw."""
        return self.step_cost(shape) * self.draw()
