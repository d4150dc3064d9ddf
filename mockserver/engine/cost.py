"""How long a step takes, from what is in its batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(eq=False, slots=True)
class BatchShape:
    """What a step's duration depends on."""

    num_prefill_tokens: int = 0
    num_prefill_seqs: int = 0
    prefill_attention: float = 0.0
    """Sum over prefill chunks of tokens times the mean context they attend to."""
    num_decode_seqs: int = 0
    num_decode_context_tokens: int = 0
    """KV tokens that the decoding sequences read, all together."""


class StepCost(Protocol):
    """A batch's duration in seconds."""

    def __call__(self, shape: BatchShape) -> float:
        """Seconds the step takes."""
        ...
