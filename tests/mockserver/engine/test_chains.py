"""Content addresses: equal prefixes get equal runs, whoever asks, in whatever order and pieces."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mockserver.engine.chains import BlockPath, ChainTable
from mockserver.tokens import pack
from tests.mockserver.engine.plain import plain_hashes

tokens = st.lists(st.integers(0, 2), max_size=30)


def addresses(path: BlockPath) -> list[tuple[int, int]]:
    """The path block by block."""
    return [(chain_id, depth) for chain_id, start, end in path for depth in range(start, end)]


@settings(max_examples=300, deadline=None)
@given(
    sequences=st.lists(st.tuples(tokens, st.sampled_from(["", "salt"])), min_size=1, max_size=12),
    block_size=st.integers(1, 4),
)
def test_two_blocks_have_one_address_exactly_when_all_tokens_up_to_their_ends_are_equal(
    sequences: list[tuple[list[int], str]], block_size: int
) -> None:
    table = ChainTable(block_size=block_size)
    hash_by_address: dict[tuple[int, int], int] = {}
    address_by_hash: dict[int, tuple[int, int]] = {}

    for numbers, salt in sequences:
        ids = pack(numbers)
        path = table.path(ids, salt=salt)
        hashes = plain_hashes(ids, block_size, salt)

        assert len(addresses(path)) == len(hashes)
        for address, block_hash in zip(addresses(path), hashes, strict=True):
            assert hash_by_address.setdefault(address, block_hash) == block_hash
            assert address_by_hash.setdefault(block_hash, address) == address


@settings(max_examples=300, deadline=None)
@given(
    sequences=st.lists(st.tuples(tokens, st.integers(0, 30)), min_size=1, max_size=10),
    block_size=st.integers(1, 4),
)
def test_extending_a_path_gives_the_path_of_the_whole(sequences: list[tuple[list[int], int]], block_size: int) -> None:
    """Whatever else is in the table, and wherever the sequence is cut."""
    table = ChainTable(block_size=block_size)

    for numbers, cut in sequences:
        start = table.path(pack(numbers[:cut]))
        rest = pack(numbers[start[-1].end * block_size if start else 0 :])

        extended = table.extend(start, rest)

        assert extended == (table.path(pack(numbers)) if start else None)


def test_a_forgotten_path_cannot_be_extended() -> None:
    table = ChainTable(block_size=4, max_tokens=100)
    path = table.path(pack([1] * 40))
    for number in range(10):
        table.path(pack([2 + number] * 40))

    assert table.extend(path, pack([1] * 4)) is None


def test_a_conversation_that_grows_stays_on_one_run() -> None:
    table = ChainTable(block_size=16)
    ids = pack(list(range(16 * 10)))

    paths = [table.path(ids[: 4 * 16 * n]) for n in (3, 7, 10)]

    assert [len(path) for path in paths] == [1, 1, 1]
    assert [path[0].end for path in paths] == [3, 7, 10]
    assert table.num_tokens == 160


def test_paths_need_full_blocks_only() -> None:
    table = ChainTable(block_size=16)

    assert table.path(pack(list(range(15)))) == ()
    assert table.path(b"") == ()


def test_memory_is_bounded_and_what_is_in_use_is_kept() -> None:
    """The chains used longest ago are forgotten; one that is used all the time keeps its address."""
    table = ChainTable(block_size=4, max_tokens=400)
    kept = pack([9] * 40)
    first = table.path(kept)

    for number in range(200):
        table.path(pack([10 + number] * 40))
        assert table.path(kept) == first
        assert table.num_tokens <= 400

    assert table.path(pack([10] * 40)) != table.path(pack([11] * 40))


def test_salts_that_are_no_longer_used_are_forgotten_too() -> None:
    table = ChainTable(block_size=4, max_tokens=100)

    for number in range(300):
        table.path(pack([1] * 20), salt=f"tenant {number}")

    for number in range(300):
        table.path(pack([1] * 3), salt=f"tenant with little to say {number}")

    assert table.num_tokens <= 100
    assert len(table._root_by_salt) <= 20


def test_fresh_paths_share_nothing() -> None:
    table = ChainTable(block_size=16)

    assert not {*addresses(table.fresh_path(64))} & {*addresses(table.fresh_path(64))}
    assert table.fresh_path(15) == ()
