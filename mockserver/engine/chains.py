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


class _Chain:
    """Blocks that follow each other, and the chains that branch off."""

    __slots__ = ("chain_id", "children", "parent", "start", "tokens")

    def __init__(self, chain_id: int, start: int, tokens: bytes, parent: _Chain | None) -> None:
        self.chain_id = chain_id
        self.start = start
        self.tokens = bytearray(tokens)
        self.parent = parent
        self.children: dict[tuple[int, bytes], _Chain] = {}


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
        width = self._block_bytes
        num_blocks = len(token_ids) // width
        chain = self._root_by_salt.get(salt)
        if chain is None:
            chain = self._root_by_salt[salt] = _Chain(-1, 0, b"", None)
        runs: list[ChainRun] = []
        used: list[_Chain] = []
        depth = 0
        while depth < num_blocks:
            offset = depth * width
            child = chain.children.get((depth, token_ids[offset : offset + width]))
            if child is not None:
                chain = child
                depth += self._num_equal_blocks(chain, token_ids, depth, num_blocks)
                at_tip = depth - chain.start == len(chain.tokens) // width
                if at_tip and depth < num_blocks:
                    self._extend(chain, token_ids[depth * width : num_blocks * width])
                    depth = num_blocks
            else:
                chain = self._branch(chain, depth, token_ids[offset : num_blocks * width])
                depth = num_blocks
            used.append(chain)
            runs.append(ChainRun(chain.chain_id, chain.start, depth))
        for chain in reversed(used):
            self._chains.move_to_end(chain.chain_id)
        if self._num_bytes > self._max_bytes:
            self._forget(keep=len(used))
        return tuple(runs)

    def fresh_path(self, num_tokens: int) -> BlockPath:
        """The path of ``num_tokens`` tokens that equal nothing else: for workloads of which only lengths matter."""
        num_blocks = num_tokens // self.block_size
        self._next_chain_id += 1
        return (ChainRun(self._next_chain_id - 1, 0, num_blocks),) if num_blocks else ()

    def _num_equal_blocks(self, chain: _Chain, token_ids: bytes, depth: int, num_blocks: int) -> int:
        """How many blocks of ``token_ids`` from ``depth`` on are the chain's own, from its start; at least one."""
        width = self._block_bytes
        offset = depth * width
        longest = min(len(chain.tokens) // width, num_blocks - depth)
        if longest * width == len(chain.tokens):
            if token_ids.startswith(chain.tokens, offset):
                return longest
        elif chain.tokens.startswith(token_ids[offset : offset + longest * width]):
            return longest
        equal, differing = 1, longest
        while differing - equal > 1:  # the first differing block lies in (equal, differing]
            middle = (equal + differing) // 2
            first, last = equal * width, middle * width
            if chain.tokens[first:last] == token_ids[offset + first : offset + last]:
                equal = middle
            else:
                differing = middle
        return equal

    def _extend(self, chain: _Chain, tokens: bytes) -> None:
        chain.tokens += tokens
        self._num_bytes += len(tokens)

    def _branch(self, parent: _Chain, depth: int, tokens: bytes) -> _Chain:
        chain = _Chain(self._next_chain_id, depth, tokens, parent)
        self._next_chain_id += 1
        self._num_bytes += len(tokens)
        parent.children[depth, tokens[: self._block_bytes]] = chain
        self._chains[chain.chain_id] = chain
        return chain

    def _forget(self, keep: int) -> None:
        while self._num_bytes > self._max_bytes and len(self._chains) > keep:
            _, chain = self._chains.popitem(last=False)
            assert not chain.children, "a chain is more recent than its children"
            self._num_bytes -= len(chain.tokens)
            if chain.parent is not None:
                del chain.parent.children[chain.start, bytes(chain.tokens[: self._block_bytes])]
        if len(self._root_by_salt) > len(self._chains) + 1:
            self._root_by_salt = {salt: root for salt, root in self._root_by_salt.items() if root.children}
