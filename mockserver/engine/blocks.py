"""The KV block pool and the prefix cache: what is cached, what is handed out next, what is evicted.

The rules are vLLM V1's (``v1/core/block_pool.py``, ``v1/core/single_type_kv_cache_manager.py``):

* A freed block keeps its content and waits in the free queue; it is evicted only when it is handed out.
* A request's blocks are freed tail first, so a chain loses its tail before its head. Blocks without a content address
  (a partial tail, or caching off) go to the front of the queue, all others to its back.
* A hit takes a block out of the queue. Equal blocks computed twice stay two blocks; a hit takes the older.

One block at a time would cost a thousand steps for a long prompt, so blocks that behave alike are one object: a *span*
is a run of blocks of one chain, held by the same requests, or free and neighbours in the queue. What makes this simple
is that a chain is always cached from its start without a hole: whoever holds block d holds block d-1, and frees it
after d.
"""

from __future__ import annotations

from mockserver.engine.chains import BlockPath
from mockserver.engine.spans import CachedChain, Span, link_before, unlink


class BlockTable:
    """The blocks of one request: the first ``num_cached`` have a content address, the others do not yet."""

    __slots__ = ("duplicates", "num_blocks", "num_cached", "path")

    def __init__(self, path: BlockPath) -> None:
        self.path = path
        self.num_blocks = 0
        self.num_cached = 0
        self.duplicates: dict[int, Span] = {}
        """This request's own copies of blocks that another copy stands for in the cache, by depth."""


class BlockPool:
    """All KV blocks of one scheduler."""

    def __init__(self, *, num_blocks: int, enable_prefix_caching: bool) -> None:
        self.num_blocks = num_blocks
        self.enable_prefix_caching = enable_prefix_caching
        self.num_free = num_blocks
        self.num_evicted = 0
        """Cached blocks that were handed out for other content, since the start."""
        self.evicted_by_chain: dict[int, int] | None = None
        """Of which chains they were, since somebody last took note of it; None while nobody does."""
        self._num_blank = num_blocks
        """Free blocks without content; they are the front of the free queue."""
        self._queue = Span(None, 0, 0, 0)
        """Sentinel of the ring of free spans: ``newer`` is the next to be evicted, ``older`` the last freed."""
        self._chain_by_id: dict[int, CachedChain] = {}

    @property
    def num_used(self) -> int:
        """Blocks that requests hold."""
        return self.num_blocks - self.num_free

    @property
    def num_free_cached(self) -> int:
        """Free blocks whose content can still be hit."""
        return self.num_free - self._num_blank

    def num_hit_blocks(self, path: BlockPath, max_blocks: int) -> int:
        """How many leading blocks of ``path`` are cached, at most ``max_blocks``."""
        num_hits = 0
        chain_by_id = self._chain_by_id
        for chain_id, _, end in path:
            chain = chain_by_id.get(chain_id)
            if chain is None:
                break
            if chain.end < end:
                num_hits = chain.end
                break
            num_hits = end
            if num_hits >= max_blocks:
                break
        return min(num_hits, max_blocks)

    def num_free_among_hits(self, path: BlockPath, num_hits: int) -> int:
        """How many of the first ``num_hits`` blocks nobody holds: touching them takes them out of the free queue."""
        num_free = 0
        for chain_id, start, end in path:
            if start >= num_hits:
                break
            last = min(end, num_hits)
            for span in self._chain_by_id[chain_id].spans:
                if span.start >= last:
                    break
                if span.num_holders == 0:
                    num_free += min(span.end, last) - span.start
        return num_free

    def touch(self, table: BlockTable, num_hits: int) -> None:
        """Give the first ``num_hits`` blocks of its path, which are cached, to a request that holds none yet."""
        for chain_id, start, end in table.path:
            if start >= num_hits:
                break
            chain = self._chain_by_id[chain_id]
            last = min(end, num_hits)
            for index, span in enumerate(chain.spans):
                if span.start >= last:
                    break
                if span.end > last:
                    self._split(chain, index, last)
                if span.num_holders == 0:
                    unlink(span)
                    self.num_free -= span.end - span.start
                span.num_holders += 1
        table.num_blocks = num_hits
        table.num_cached = num_hits

    def take(self, table: BlockTable, num_new: int) -> None:
        """Hand ``num_new`` free blocks to a request, evicting what they held. The caller has checked ``num_free``."""
        assert num_new <= self.num_free, "blocks are checked before they are taken"
        table.num_blocks += num_new
        self.num_free -= num_new
        num_blank = min(num_new, self._num_blank)
        self._num_blank -= num_blank
        missing = num_new - num_blank
        while missing:
            missing -= self._evict(self._queue.newer, missing)

    def cache(self, table: BlockTable, num_full: int) -> None:
        """Make a request's first ``num_full`` blocks hittable; those that are already are left as they are."""
        if not self.enable_prefix_caching:
            return
        depth = table.num_cached
        for chain_id, start, end in table.path:
            if depth >= num_full:
                break
            if end <= depth:
                continue
            chain = self._chain_by_id.get(chain_id)
            if chain is None:
                chain = self._chain_by_id[chain_id] = CachedChain(chain_id, start)
            last = min(end, num_full)
            while depth < last and depth < chain.end:
                self._add_duplicate(chain, table, depth)
                depth += 1
            if depth < last:
                self._append(chain, table, depth, last)
                depth = last
        table.num_cached = depth

    def free(self, table: BlockTable) -> None:
        """Take all blocks back from a request, its tail first."""
        num_blank = table.num_blocks - table.num_cached
        self._num_blank += num_blank
        self.num_free += num_blank
        for chain_id, start, end in reversed(table.path):
            last = min(end, table.num_cached)
            if start >= last:
                continue
            chain = self._chain_by_id[chain_id]
            if table.duplicates:
                self._free_one_by_one(chain, table, start, last)
                continue
            for index in range(len(chain.spans) - 1, -1, -1):
                span = chain.spans[index]
                if span.start < last:
                    assert span.end <= last, "a span ends where a holder's blocks end"
                    self._release(chain, index, span)
        table.num_blocks = table.num_cached = 0
        table.duplicates = {}

    def reset(self) -> bool:
        """Forget all cached content; refused (False) while a request holds blocks."""
        if self.num_free < self.num_blocks:
            return False
        self._num_blank = self.num_blocks
        self._queue.newer = self._queue.older = self._queue
        self._chain_by_id.clear()
        return True

    def _append(self, chain: CachedChain, table: BlockTable, start: int, end: int) -> None:
        """Blocks ``start`` to ``end``, held by this request alone, become the chain's new tail."""
        spans = chain.spans
        # Its last span is this request's too; if nobody else holds it, the two behave alike.
        if spans and spans[-1].num_holders == 1 and start - 1 not in table.duplicates:
            spans[-1].end = end
        else:
            spans.append(Span(chain, start, end, 1))
        chain.end = end

    def _add_duplicate(self, chain: CachedChain, table: BlockTable, depth: int) -> None:
        span = Span(chain, depth, depth + 1, 1)
        span.is_duplicate = True
        chain.add_duplicate(span)
        table.duplicates[depth] = span

    def _split(self, chain: CachedChain, index: int, at: int) -> None:
        """Cut a span in two; the head keeps its identity, the tail is the sooner to be evicted."""
        head = chain.spans[index]
        tail = Span(chain, at, head.end, head.num_holders)
        head.end = at
        chain.spans.insert(index + 1, tail)
        if head.num_holders == 0:
            link_before(head, tail)

    def _release(self, chain: CachedChain, index: int, span: Span) -> None:
        """One holder less; the last one puts the span at the back of the free queue."""
        span.num_holders -= 1
        if span.num_holders:
            return
        self.num_free += span.end - span.start
        last = self._queue.older
        if (
            last.chain is chain
            and last.start == span.end
            and not (last.is_duplicate or span.is_duplicate)
            and chain.spans[index + 1] is last
        ):
            last.start = span.start  # evicted one after the other, tail first: one span again
            del chain.spans[index]
        else:
            link_before(self._queue, span)

    def _free_one_by_one(self, chain: CachedChain, table: BlockTable, start: int, end: int) -> None:
        """Free blocks of a chain some of which are this request's own copies of blocks that are cached already."""
        spans = chain.spans
        depth = end
        while depth > start:
            own = table.duplicates.get(depth - 1)
            if own is not None and own.is_duplicate:
                depth -= 1
                own.num_holders -= 1
                self.num_free += 1
                link_before(self._queue, own)
                continue
            index = next(i for i in range(len(spans) - 1, -1, -1) if spans[i].start < depth)
            span = spans[index]
            assert span.end == depth, "a span ends where a holder's blocks end"
            depth = span.start
            self._release(chain, index, span)

    def _evict(self, span: Span, wanted: int) -> int:
        """Take up to ``wanted`` blocks from a free span's tail; how many were taken."""
        chain = span.chain
        assert chain is not None, "the free queue holds as many blocks as are counted"
        if span.is_duplicate:
            copies = chain.duplicates[span.start]
            copies.remove(span)
            if not copies:
                del chain.duplicates[span.start]
            unlink(span)
            num_taken = 1
        elif chain.duplicates:
            self._evict_original(chain, span)
            num_taken = 1
        else:
            num_taken = min(wanted, span.end - span.start)
            assert chain.spans[-1] is span, "a chain loses its tail first"
            span.end -= num_taken
            chain.end = span.end
            if span.end == span.start:
                unlink(span)
                chain.spans.pop()
        self.num_evicted += num_taken
        if self.evicted_by_chain is not None:
            self.evicted_by_chain[chain.chain_id] = self.evicted_by_chain.get(chain.chain_id, 0) + num_taken
        if not chain.spans and not chain.duplicates:
            del self._chain_by_id[chain.chain_id]
        return num_taken

    def _evict_original(self, chain: CachedChain, span: Span) -> None:
        """Evict the last block of a span of a chain that has copies; the oldest copy takes the block's place."""
        span.end -= 1
        depth = span.end
        position = chain.spans.index(span) + 1
        if span.end == span.start:
            unlink(span)
            position -= 1
            del chain.spans[position]
        copies = chain.duplicates.get(depth)
        if copies is None:
            assert chain.end == depth + 1, "a chain loses its tail first"
            chain.end = depth
            return
        heir = copies.pop(0)
        if not copies:
            del chain.duplicates[depth]
        heir.is_duplicate = False
        chain.spans.insert(position, heir)

    def check_invariants(self, tables: list[BlockTable]) -> None:
        """Assert what is always true of the pool, given the tables of all live requests. For tests."""
        num_free = self._num_blank
        span = self._queue.newer
        while span is not self._queue:
            assert span.num_holders == 0
            assert span.end > span.start
            assert span.newer.older is span
            num_free += span.end - span.start
            span = span.newer
        assert num_free == self.num_free, f"{num_free} free blocks in the queue, {self.num_free} counted"
        num_blank_held = sum(table.num_blocks - table.num_cached for table in tables)
        num_held = num_blank_held
        for chain in self._chain_by_id.values():
            depth = chain.start
            for span in chain.spans:
                assert span.start == depth, "a chain is cached without a hole"
                assert not span.is_duplicate
                depth = span.end
                num_held += (span.end - span.start) * (span.num_holders > 0)
            assert depth == chain.end
            for copies in chain.duplicates.values():
                assert copies
                assert all(copy.is_duplicate for copy in copies)
                num_held += sum(copy.num_holders > 0 for copy in copies)
        assert num_held + self.num_free == self.num_blocks, "every block is held or free"
