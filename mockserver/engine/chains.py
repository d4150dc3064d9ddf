"""Content addresses of KV blocks: which prompts share which blocks.

vLLM gives every full block the hash of (parent's hash, its tokens). What matters of that hash is equality only: two
blocks are equal when all tokens up to their ends are. Here equality is found exactly, without hashing, in a radix tree
whose edges are *chains*: runs of blocks that follow each other. Block ``depth`` of a prompt is addressed as
``(chain_id, depth)``, and a prompt is a handful of runs however long it is:

    system prompt + task A + turns   ->  (chain 0, blocks 0..8) (chain 1, blocks 8..1100)
    system prompt + task B + turns   ->  (chain 0, blocks 0..8) (chain 2, blocks 8..970)
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

TOKEN_BYTES = 4


class ChainRun(NamedTuple):
    """Blocks ``start`` (inclusive) to ``end`` (exclusive) of a prompt; ``start`` is where the chain begins."""

    chain_id: int
    start: int
    end: int


BlockPath = tuple[ChainRun, ...]
"""The full blocks of a token sequence, in order; each run starts where the one before it ends."""


_NO_CHILDREN: dict[bytes, _Chain] = {}
"""Shared by the chains that have none, most of them; nothing is ever put into it."""


class _Chain:
    """Blocks that follow each other, and the chains that branch off."""

    __slots__ = ("chain_id", "children", "parent", "start", "tokens")

    def __init__(self, chain_id: int, start: int, tokens: bytes, parent: _Chain | None) -> None:
        self.chain_id = chain_id
        self.start = start
        self.tokens = bytearray(tokens)
        self.parent = parent
        self.children: dict[bytes, _Chain] = _NO_CHILDREN


class ChainTable:
    """Gives token sequences their block paths. Equal prefixes get equal runs, whoever asks and in whatever pieces.

    Memory is bounded by ``max_tokens``: the chains used longest ago are forgotten. A pool cannot hold a block that was
    last used before ``max_tokens`` other distinct tokens were, so with ``max_tokens`` well above the pool's size
    forgetting changes no hit.
    """

    def __init__(self, *, block_size: int, max_tokens: int = 16_000_000) -> None:
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1, got {block_size}")
        self.block_size = block_size
        self._block_bytes = block_size * TOKEN_BYTES
        self._max_bytes = max_tokens * TOKEN_BYTES
        self._num_bytes = 0
        self._next_chain_id = 0
        self._root_by_salt: dict[str, _Chain] = {}
        # Least recently used first; a chain is always more recent than its children, so the first has none.
        self._chains: OrderedDict[int, _Chain] = OrderedDict()

    @property
    def num_tokens(self) -> int:
        """Distinct tokens remembered."""
        return self._num_bytes // TOKEN_BYTES

    def path(self, token_ids: bytes, *, salt: str = "") -> BlockPath:
        """The path of all full blocks of ``token_ids`` (4 bytes a token). Different salts share nothing."""
        root = self._root_by_salt.get(salt) or _Chain(-1, 0, b"", None)
        path = self._follow(root, 0, token_ids, [], [])
        if root.children:
            self._root_by_salt[salt] = root
        return path

    def extend(self, path: BlockPath, token_ids: bytes) -> BlockPath | None:
        """The path of a sequence that starts with ``path`` and goes on with ``token_ids``: only those are looked at.

        None where the path is empty or has been forgotten: ask for the path of the whole sequence then.
        """
        passed = [self._chains.get(run.chain_id) for run in path]
        last = passed.pop() if passed else None
        used = [chain for chain in passed if chain is not None]
        if last is None or len(used) < len(passed):
            return None
        return self._follow(last, path[-1].end, token_ids, list(path[:-1]), used)

    def fresh_path(self, num_tokens: int) -> BlockPath:
        """The path of ``num_tokens`` tokens that equal nothing else: for workloads of which only lengths matter."""
        num_blocks = num_tokens // self.block_size
        self._next_chain_id += 1
        return (ChainRun(self._next_chain_id - 1, 0, num_blocks),) if num_blocks else ()

    def _follow(
        self, chain: _Chain, depth: int, token_ids: bytes, runs: list[ChainRun], used: list[_Chain]
    ) -> BlockPath:
        """Go on from block ``depth`` of ``chain`` with ``token_ids``, growing the tree where they are new to it."""
        width = self._block_bytes
        first = depth
        last = first + len(token_ids) // width
        while True:
            depth += self._num_equal_blocks(chain, depth, token_ids, (depth - first) * width, last - depth)
            rest = token_ids[(depth - first) * width : (last - first) * width]
            is_root = chain.parent is None
            if rest and not is_root and depth - chain.start == len(chain.tokens) // width:
                chain.tokens += rest
                self._num_bytes += len(rest)
                depth, rest = last, b""
            if not is_root:
                used.append(chain)
                runs.append(ChainRun(chain.chain_id, chain.start, depth))
            if not rest:
                break
            chain = chain.children.get(_key(depth, rest[:width])) or self._branch(chain, depth, rest)
        for chain in reversed(used):
            self._chains.move_to_end(chain.chain_id)
        if self._num_bytes > self._max_bytes:
            self._forget(keep=len(used))
        return tuple(runs)

    def _num_equal_blocks(self, chain: _Chain, depth: int, token_ids: bytes, offset: int, at_most: int) -> int:
        """How many blocks of the chain from ``depth`` on are those of ``token_ids`` from byte ``offset`` on."""
        width = self._block_bytes
        tokens = chain.tokens
        here = (depth - chain.start) * width
        longest = min(len(tokens) // width - (depth - chain.start), at_most)
        if here == 0 and longest * width == len(tokens):
            if token_ids.startswith(tokens, offset):  # the whole chain, compared where it lies
                return longest
        elif tokens.startswith(token_ids[offset : offset + longest * width], here):
            return longest
        equal, differing = 0, longest
        while differing - equal > 1:  # those before `equal` are equal, one before `differing` is not
            middle = (equal + differing) // 2
            first, last = equal * width, middle * width
            if tokens[here + first : here + last] == token_ids[offset + first : offset + last]:
                equal = middle
            else:
                differing = middle
        return equal

    def _branch(self, parent: _Chain, depth: int, tokens: bytes) -> _Chain:
        chain = _Chain(self._next_chain_id, depth, tokens, parent)
        self._next_chain_id += 1
        self._num_bytes += len(tokens)
        if parent.children is _NO_CHILDREN:
            parent.children = {}
        parent.children[_key(depth, tokens[: self._block_bytes])] = chain
        self._chains[chain.chain_id] = chain
        return chain

    def _forget(self, keep: int) -> None:
        while self._num_bytes > self._max_bytes and len(self._chains) > keep:
            _, chain = self._chains.popitem(last=False)
            assert not chain.children, "a chain is more recent than its children"
            self._num_bytes -= len(chain.tokens)
            if chain.parent is not None:
                del chain.parent.children[_key(chain.start, chain.tokens[: self._block_bytes])]
        if len(self._root_by_salt) > len(self._chains) + 1:
            self._root_by_salt = {salt: root for salt, root in self._root_by_salt.items() if root.children}


def _key(depth: int, block: bytes | bytearray) -> bytes:
    """What tells a chain from its siblings: the depth it begins at, and its first block."""
    return depth.to_bytes(4, "little") + block
