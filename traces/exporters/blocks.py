"""Prompts as lists of block ids, as serving traces have them: equal ids stand for equal starts of prompts."""

from __future__ import annotations

from collections.abc import Iterator

from mockserver.tokens import TOKEN_BYTES, num_tokens
from traces.history import agent_prompts
from traces.jsonl import TraceError
from traces.trajectory import Subagent, Trajectory, Turn


class BlockIds:
    """Gives out ids for blocks, the same for the same block after the same blocks."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._id_by_block: dict[tuple[int, bytes | str], int] = {}

    def agent(self, agent: Trajectory | Subagent) -> Iterator[tuple[Turn, int, list[int]]]:
        """(turn, prompt tokens, block ids) of each call of ``agent``, its subagents' left out."""
        recorded: tuple[int, ...] = ()
        for turn, prompt in agent_prompts(agent):
            if prompt is not None:
                size = self.block_size * TOKEN_BYTES
                blocks: list[bytes | str] = [prompt[start : start + size] for start in range(0, len(prompt), size)]
                yield turn, num_tokens(prompt), self._ids(blocks)
                continue
            assert turn.prompt is not None
            recorded = turn.prompt.hashes_after(recorded)
            if self.block_size % turn.prompt.block_size:
                raise TraceError(
                    f"blocks of {turn.prompt.block_size} tokens do not make up blocks of {self.block_size}"
                )
            step = self.block_size // turn.prompt.block_size
            groups: list[bytes | str] = [
                f"{turn.prompt.scope}/{recorded[start : start + step]}" for start in range(0, len(recorded), step)
            ]
            yield turn, turn.prompt.num_tokens, self._ids(groups)
            if turn.spawns:
                recorded = ()

    def _ids(self, blocks: list[bytes | str]) -> list[int]:
        ids = []
        before = 0
        for block in blocks:
            before = self._id_by_block.setdefault((before, block), len(self._id_by_block) + 1)
            ids.append(before)
        return ids


def recorded_block_size(agent: Trajectory | Subagent) -> int | None:
    """The block size of the recorded prompts of ``agent`` and its subagents; None where there are none."""
    for turn in agent.turns:
        if turn.prompt is not None:
            return turn.prompt.block_size
        for spawn in turn.spawns:
            size = recorded_block_size(spawn)
            if size is not None:
                return size
    return None
