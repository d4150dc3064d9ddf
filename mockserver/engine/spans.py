"""Runs of KV blocks that behave alike, and the ring that free ones wait in."""

from __future__ import annotations


class Span:
    """Blocks ``start`` (inclusive) to ``end`` (exclusive) of one chain, all in the same state."""

    __slots__ = ("chain", "end", "is_duplicate", "newer", "num_holders", "older", "start")

    def __init__(self, chain: CachedChain | None, start: int, end: int, num_holders: int) -> None:
        self.chain = chain
        self.start = start
        self.end = end
        self.num_holders = num_holders
        self.is_duplicate = False
        # Neighbours in the free queue; meaningful while nobody holds the span.
        self.older: Span = self
        self.newer: Span = self


_NO_DUPLICATES: dict[int, list[Span]] = {}
"""Shared by the chains that have none, nearly all of them; nothing is ever put into it."""


class CachedChain:
    """What is cached of one chain: spans in order, without a hole from ``start`` to ``end``."""

    __slots__ = ("chain_id", "duplicates", "end", "spans", "start")

    def __init__(self, chain_id: int, start: int) -> None:
        self.chain_id = chain_id
        self.start = start
        self.end = start
        self.spans: list[Span] = []
        self.duplicates = _NO_DUPLICATES
        """Further copies of a block, by depth, oldest first; each is a span of one block."""

    def add_duplicate(self, span: Span) -> None:
        """One more copy of a block."""
        if self.duplicates is _NO_DUPLICATES:
            self.duplicates = {}
        self.duplicates.setdefault(span.start, []).append(span)


def unlink(span: Span) -> None:
    """Take a span out of the free queue."""
    span.older.newer = span.newer
    span.newer.older = span.older


def link_before(newer: Span, span: Span) -> None:
    """Put ``span`` into the free queue so that it is evicted just before ``newer``."""
    span.newer = newer
    span.older = newer.older
    newer.older.newer = span
    newer.older = span
