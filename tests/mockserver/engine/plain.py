"""The slow and obvious twin of the block pool and the chain table: one object a block, real hashes, no spans.

It follows vLLM's own structure (a dict of hashes, a free queue of single blocks), so that the fast pool can be held
to it on random histories.
"""

from __future__ import annotations

from mockserver.engine.chains import TOKEN_BYTES


class PlainBlock:
    """One KV block."""

    def __init__(self) -> None:
        self.num_holders = 0
        self.block_hash: int | None = None


class PlainPool:
    """All blocks, one by one."""

    def __init__(self, num_blocks: int) -> None:
        self.queue: list[PlainBlock] = [PlainBlock() for _ in range(num_blocks)]
        self.blocks_by_hash: dict[int, list[PlainBlock]] = {}
        self.num_evicted = 0

    def num_hit_blocks(self, hashes: list[int], max_blocks: int) -> int:
        num_hits = 0
        while num_hits < min(max_blocks, len(hashes)) and hashes[num_hits] in self.blocks_by_hash:
            num_hits += 1
        return num_hits

    def num_free_among_hits(self, hashes: list[int], num_hits: int) -> int:
        return sum(self.blocks_by_hash[hashes[i]][0].num_holders == 0 for i in range(num_hits))

    def touch(self, held: list[PlainBlock], hashes: list[int], num_hits: int) -> None:
        for block_hash in hashes[:num_hits]:
            block = self.blocks_by_hash[block_hash][0]
            if block.num_holders == 0:
                self.queue.remove(block)
            block.num_holders += 1
            held.append(block)

    def take(self, held: list[PlainBlock], num_new: int) -> None:
        for _ in range(num_new):
            block = self.queue.pop(0)
            if block.block_hash is not None:
                copies = self.blocks_by_hash[block.block_hash]
                copies.remove(block)
                if not copies:
                    del self.blocks_by_hash[block.block_hash]
                block.block_hash = None
                self.num_evicted += 1
            block.num_holders = 1
            held.append(block)

    def cache(self, held: list[PlainBlock], hashes: list[int], num_full: int) -> None:
        for block, block_hash in zip(held[:num_full], hashes[:num_full], strict=True):
            if block.block_hash is None:
                block.block_hash = block_hash
                self.blocks_by_hash.setdefault(block_hash, []).append(block)

    def free(self, held: list[PlainBlock]) -> None:
        for block in reversed(held):
            block.num_holders -= 1
            if block.num_holders == 0:
                if block.block_hash is None:
                    self.queue.insert(0, block)
                else:
                    self.queue.append(block)
        held.clear()

    @property
    def num_free_cached(self) -> int:
        return sum(block.block_hash is not None for block in self.queue)


def plain_hashes(token_ids: bytes, block_size: int, salt: str = "") -> list[int]:
    """Chained hashes of all full blocks."""
    width = block_size * TOKEN_BYTES
    hashes: list[int] = []
    parent = hash(("root", salt))
    for start in range(0, len(token_ids) - width + 1, width):
        parent = hash((parent, token_ids[start : start + width]))
        hashes.append(parent)
    return hashes
