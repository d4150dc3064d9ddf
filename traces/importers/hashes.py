"""Block hashes of recorded prompts: as whole numbers, and without what a prompt has from the one before it."""

from __future__ import annotations

import hashlib
from typing import Any

from traces.importers.fields import kind_of
from traces.importers.log import BadRecord
from traces.trajectory import RecordedPrompt

_LARGEST = 2**63


def block_hashes(values: list[Any]) -> list[int]:
    """Hashes as a trace has them (numbers, or any strings) as whole numbers that JSON can hold."""
    if set(map(type, values)) <= {int}:
        if not values or (max(values) < _LARGEST and min(values) >= 0):
            return values
        return [value % _LARGEST for value in values]
    return [_as_number(value) for value in values]


def hash_of(content: bytes) -> int:
    """A hash of a block's content."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little") % _LARGEST


class KeptBlocks:
    """Recorded prompts of one agent, each without the blocks that it has from the one before."""

    def __init__(self, *, block_size: int, scope: str) -> None:
        if not 1 <= block_size <= 1_000_000:
            raise BadRecord("a block size that cannot be")
        self._block_size = block_size
        self._scope = scope
        self._before: list[int] = []

    def forget(self) -> None:
        """The next prompt is written out whole."""
        self._before = []

    def prompt(self, num_tokens: int, hashes: list[int]) -> RecordedPrompt:
        """A prompt of ``num_tokens`` tokens whose blocks are ``hashes``."""
        max_blocks = -(-num_tokens // self._block_size)
        if len(hashes) > max_blocks:
            hashes = hashes[:max_blocks]
        num_kept = num_common(self._before, hashes)
        self._before = hashes
        return RecordedPrompt(
            num_tokens=num_tokens,
            block_size=self._block_size,
            block_hashes=tuple(hashes[num_kept:]),
            num_kept_blocks=num_kept,
            scope=self._scope,
        )


def num_common(one: list[int], other: list[int]) -> int:
    """How many items at the start both have."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _as_number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise BadRecord(f"a block's hash must be a number or a string, got {kind_of(value)}")
    return value % _LARGEST if isinstance(value, int) else hash_of(value.encode())
