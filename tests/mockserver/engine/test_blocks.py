"""The block pool: eviction order, hits, duplicates; and that spans behave as single blocks do."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mockserver.engine.blocks import BlockPool, BlockTable
from mockserver.engine.chains import ChainTable
from mockserver.tokens import pack
from tests.mockserver.engine.plain import PlainBlock, PlainPool, plain_hashes

BLOCK_SIZE = 2


class Twin:
    """One history, told to the pool and to its plain twin; every answer must agree."""

    def __init__(self, num_blocks: int) -> None:
        self.pool = BlockPool(num_blocks=num_blocks, enable_prefix_caching=True)
        self.pool.evicted_by_chain = {}
        self.plain = PlainPool(num_blocks)
        self.chains = ChainTable(block_size=BLOCK_SIZE)
        self.held: list[tuple[BlockTable, list[PlainBlock], list[int]]] = []

    def start(self, tokens: list[int], *, first_chunk: int, read_cache: bool = True) -> bool:
        """Admit a sequence with ``first_chunk`` tokens beyond its hits; False if it does not fit."""
        ids = pack(tokens)
        table = BlockTable(self.chains.path(ids))
        hashes = plain_hashes(ids, BLOCK_SIZE)
        limit = (len(tokens) - 1) // BLOCK_SIZE if read_cache else 0
        num_hits = self.pool.num_hit_blocks(table.path, limit)
        assert num_hits == self.plain.num_hit_blocks(hashes, limit)
        num_free_hits = self.pool.num_free_among_hits(table.path, num_hits)
        assert num_free_hits == self.plain.num_free_among_hits(hashes, num_hits)
        end = min(num_hits * BLOCK_SIZE + first_chunk, len(tokens))
        num_more = -(-end // BLOCK_SIZE) - num_hits
        if num_more + num_free_hits > self.pool.num_free:
            return False
        plain_held: list[PlainBlock] = []
        self.pool.touch(table, num_hits)
        self.plain.touch(plain_held, hashes, num_hits)
        self.held.append((table, plain_held, hashes))
        self._take_and_cache(len(self.held) - 1, num_more, end // BLOCK_SIZE)
        return True

    def grow(self, index: int, num_more: int) -> None:
        """Compute further blocks of a held sequence."""
        table, _, hashes = self.held[index]
        num_more = min(num_more, len(hashes) - table.num_blocks, self.pool.num_free)
        if num_more > 0:
            self._take_and_cache(index, num_more, table.num_blocks + num_more)

    def free(self, index: int) -> None:
        table, plain_held, _ = self.held.pop(index)
        self.pool.free(table)
        self.plain.free(plain_held)
        self.check()

    def _take_and_cache(self, index: int, num_more: int, num_full: int) -> None:
        table, plain_held, hashes = self.held[index]
        self.pool.take(table, num_more)
        self.plain.take(plain_held, num_more)
        self.pool.cache(table, num_full)
        self.plain.cache(plain_held, hashes, min(num_full, len(hashes)))
        self.check()

    def check(self) -> None:
        self.pool.check_invariants([table for table, _, _ in self.held])
        assert self.pool.num_free == len(self.plain.queue)
        assert self.pool.num_free_cached == self.plain.num_free_cached
        assert self.pool.num_evicted == self.plain.num_evicted
        assert self.pool.evicted_by_chain is not None
        assert sum(self.pool.evicted_by_chain.values()) == self.pool.num_evicted


# A small alphabet and short sequences, so that prefixes are shared, diverge and recur all the time.
sequences = st.lists(st.integers(0, 1), min_size=1, max_size=24)
operations = st.one_of(
    st.tuples(st.just("start"), sequences, st.integers(1, 24), st.booleans()),
    st.tuples(st.just("grow"), st.integers(0, 7), st.integers(1, 6), st.booleans()),
    st.tuples(st.just("free"), st.integers(0, 7), st.integers(0, 0), st.booleans()),
)


@settings(max_examples=400, deadline=None)
@given(num_blocks=st.integers(1, 30), history=st.lists(operations, max_size=40))
def test_spans_behave_as_single_blocks_do(num_blocks: int, history: list[tuple[str, object, int, bool]]) -> None:
    """Hits, free counts, evictions and cached content agree with the plain pool after every operation."""
    twin = Twin(num_blocks)
    for kind, subject, amount, read_cache in history:
        if kind == "start":
            assert isinstance(subject, list)
            twin.start(subject, first_chunk=amount, read_cache=read_cache)
        elif twin.held:
            assert isinstance(subject, int)
            index = subject % len(twin.held)
            if kind == "grow":
                twin.grow(index, amount)
            else:
                twin.free(index)
    for _ in range(len(twin.held)):
        twin.free(0)
    assert twin.pool.num_free == num_blocks


def make_pool(num_blocks: int) -> tuple[BlockPool, ChainTable]:
    return BlockPool(num_blocks=num_blocks, enable_prefix_caching=True), ChainTable(block_size=BLOCK_SIZE)


def hold(pool: BlockPool, chains: ChainTable, tokens: list[int]) -> BlockTable:
    """Compute and cache all full blocks of a sequence that hits nothing."""
    table = BlockTable(chains.path(pack(tokens)))
    pool.take(table, len(tokens) // BLOCK_SIZE)
    pool.cache(table, len(tokens) // BLOCK_SIZE)
    return table


def test_a_chain_loses_its_tail_first_and_the_earliest_freed_chain_goes_first() -> None:
    pool, chains = make_pool(5)
    first, second = [1, 1, 2, 2, 3, 3], [7, 7, 8, 8]
    a, b = hold(pool, chains, first), hold(pool, chains, second)
    pool.free(a)
    pool.free(b)

    taker = BlockTable(())
    pool.take(taker, 2)

    assert pool.num_hit_blocks(chains.path(pack(first)), 9) == 1
    assert pool.num_hit_blocks(chains.path(pack(second)), 9) == 2


def test_evictions_are_counted_by_chain_where_somebody_takes_note() -> None:
    pool, chains = make_pool(5)
    first, second = [1, 1, 2, 2, 3, 3], [7, 7, 8, 8]
    pool.evicted_by_chain = {}
    for tokens in (first, second):
        pool.free(hold(pool, chains, tokens))

    pool.take(BlockTable(()), 4)

    (first_run,), (second_run,) = chains.path(pack(first)), chains.path(pack(second))
    assert pool.evicted_by_chain == {first_run.chain_id: 3, second_run.chain_id: 1}


def test_a_hit_moves_a_chain_behind_those_freed_before() -> None:
    pool, chains = make_pool(4)
    first, second = [1, 1, 2, 2], [7, 7, 8, 8]
    a, b = hold(pool, chains, first), hold(pool, chains, second)
    pool.free(a)
    pool.free(b)
    again = BlockTable(chains.path(pack(first)))
    pool.touch(again, 2)
    pool.free(again)

    pool.take(BlockTable(()), 2)

    assert pool.num_hit_blocks(chains.path(pack(first)), 9) == 2
    assert pool.num_hit_blocks(chains.path(pack(second)), 9) == 0


def test_blocks_without_content_are_handed_out_before_any_cached_one() -> None:
    pool, chains = make_pool(3)
    table = BlockTable(chains.path(pack([1, 1, 2, 2, 3])))
    pool.take(table, 3)
    pool.cache(table, 2)
    pool.free(table)

    pool.take(BlockTable(()), 1)

    assert pool.num_evicted == 0
    assert pool.num_free_cached == 2


def test_a_copy_stands_in_when_the_older_block_is_evicted() -> None:
    """Equal blocks computed twice stay two blocks; evicting one leaves the other hittable."""
    pool, chains = make_pool(4)
    tokens = [1, 1, 2, 2]
    a, b = hold(pool, chains, tokens), hold(pool, chains, tokens)
    pool.free(a)
    taker = BlockTable(())

    pool.take(taker, 2)

    assert pool.num_evicted == 2
    assert pool.num_hit_blocks(chains.path(pack(tokens)), 9) == 2
    pool.check_invariants([b, taker])


def test_reset_is_refused_while_blocks_are_held() -> None:
    pool, chains = make_pool(2)
    table = hold(pool, chains, [1, 1])

    assert not pool.reset()
    pool.free(table)
    assert pool.reset()

    assert pool.num_hit_blocks(chains.path(pack([1, 1])), 9) == 0


def test_without_prefix_caching_nothing_is_ever_hit() -> None:
    pool = BlockPool(num_blocks=2, enable_prefix_caching=False)
    chains = ChainTable(block_size=BLOCK_SIZE)
    pool.free(hold(pool, chains, [1, 1, 2, 2]))

    assert pool.num_hit_blocks(chains.path(pack([1, 1, 2, 2])), 9) == 0
    assert pool.num_free_cached == 0
