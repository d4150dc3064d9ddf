"""How much of a workload's prompts repeats: distinct tokens, and the best hit rate that any cache could reach.

An agent's history only grows: a prompt repeats its predecessor and the reply to it. What remains to be found is what
an agent's first prompt shares with those before it, and what recorded prompts share block by block.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from mockserver.tokens import TOKEN_BYTES
from traces.history import start_ids
from traces.prompt_size import CallSize, react_tools
from traces.trajectory import RecordedPrompt, Trajectory

_LONGEST_START = 32_768 * TOKEN_BYTES
"""Two tasks that share more than their first 32k tokens are taken to share that much."""


class Reuse:
    """Adds up what trajectories share, as if one were done after the other with a cache that forgets nothing."""

    def __init__(self) -> None:
        self.num_distinct_tokens = 0
        self.num_hit_tokens = 0
        self._starts: list[bytes] = []  # sorted, so the one that shares most with a new one is its neighbour
        self._blocks: set[int] = set()  # each as the hash of it and all before it
        self._path: list[int] = []  # the blocks of the last recorded prompt

    def add(self, trajectory: Trajectory, calls: Sequence[CallSize]) -> None:
        """One more task, and the sizes of its calls."""
        num_shared = self._add_start(trajectory)
        num_grown = 0  # what the previous call left behind
        for call in calls:
            if call.turn.prompt is not None:
                num_repeated = self._add_blocks(call.turn.prompt)
            else:
                num_repeated = min(max(num_grown, num_shared), call.num_prompt_tokens)
            self.num_distinct_tokens += call.num_prompt_tokens - num_repeated + call.num_output_tokens
            # A model has to run on a prompt's last token, cached or not.
            self.num_hit_tokens += max(min(num_repeated, call.num_prompt_tokens - 1), 0)
            num_grown = call.num_prompt_tokens + call.num_reply_tokens

    def _add_start(self, trajectory: Trajectory) -> int:
        """How many tokens of its history ``trajectory`` shares with one before it."""
        start = start_ids(trajectory.system_prompt, react_tools(trajectory), trajectory.user_prompt)[:_LONGEST_START]
        at = bisect_left(self._starts, start)
        neighbours = self._starts[max(at - 1, 0) : at + 1]
        self._starts.insert(at, start)
        return max((num_common_bytes(start, other) for other in neighbours), default=0) // TOKEN_BYTES

    def _add_blocks(self, prompt: RecordedPrompt) -> int:
        """How many tokens at the start of ``prompt`` an earlier prompt had."""
        path = self._path[: prompt.num_kept_blocks]
        num_known = len(path)
        before = path[-1] if path else hash(tuple(prompt.scope.encode()))
        for block_hash in prompt.block_hashes:
            before = hash((before, block_hash))  # of whole numbers: the same in every process
            if before in self._blocks and num_known == len(path):
                num_known += 1
            self._blocks.add(before)
            path.append(before)
        self._path = path
        return min(num_known * prompt.block_size, prompt.num_tokens)


def num_common_bytes(one: bytes, other: bytes) -> int:
    """How long the start is that both have."""
    low, high = 0, min(len(one), len(other))
    while low < high:  # they agree up to low
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
