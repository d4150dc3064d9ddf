"""The text of prompts that a recording knows by the hashes of their blocks: filler, equal where the hashes are.

A session's prompts repeat each other over a hundred thousand tokens, so each is made from the one before it.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

from mockserver.filler import filler
from mockserver.tokens import TOKEN_BYTES, TokenText
from traces.prompt_size import END_TOKENS, HEADER_TOKENS
from traces.trajectory import RecordedPrompt

_AROUND_A_USER_MESSAGE = HEADER_TOKENS + END_TOKENS + HEADER_TOKENS
"""What a prompt that is one user message holds beside its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedText:
    """What a user message has to say so that the prompt is the recorded one."""

    text: TokenText
    scope: str
    block_size: int
    block_hashes: tuple[int, ...]
    """All of the prompt's."""
    block_ends: list[int]
    """Where in the text each whole block ends."""

    def followed_by(self, prompt: RecordedPrompt) -> RecordedText:
        """The text of ``prompt``, whose first blocks are this one's."""
        size = prompt.block_size
        block_hashes = prompt.hashes_after(self.block_hashes)
        num_tokens = max(prompt.num_tokens - _AROUND_A_USER_MESSAGE, 0)
        num_whole = min(len(block_hashes), num_tokens // size)
        num_kept = min(self._num_same(prompt, block_hashes), len(self.block_ends), num_whole)
        blocks = [_block_text(prompt.scope, one, size) for one in block_hashes[num_kept:num_whole]]
        num_rest = num_tokens - num_whole * size
        if num_whole < len(block_hashes):  # the last block is cut: words are tokens, so it is cut at a word
            rest = _first_words(_block_text(prompt.scope, block_hashes[num_whole], size), min(num_rest, size))
        else:
            rest = filler(f"tail/{prompt.scope}/{block_hashes[-1:]}/{prompt.num_tokens}", num_rest)
        kept_until = self.block_ends[num_kept - 1] if num_kept else 0
        kept_ids = self.text.token_ids[: num_kept * size * TOKEN_BYTES]
        text = "".join([self.text[:kept_until], *blocks, rest])
        ids = b"".join([kept_ids, *(block.token_ids for block in blocks), rest.token_ids])
        ends = itertools.accumulate(map(len, blocks), initial=kept_until)
        return RecordedText(
            text=TokenText(text, ids),
            scope=prompt.scope,
            block_size=size,
            block_hashes=block_hashes,
            block_ends=self.block_ends[:num_kept] + list(ends)[1:],
        )

    def _num_same(self, prompt: RecordedPrompt, block_hashes: tuple[int, ...]) -> int:
        """How many blocks ``prompt`` has from this one, whether it says so or repeats their hashes."""
        if (prompt.scope, prompt.block_size) != (self.scope, self.block_size):
            return 0
        low, high = prompt.num_kept_blocks, min(len(self.block_hashes), len(block_hashes))
        while low < high:  # they are equal up to low
            middle = (low + high + 1) // 2
            if self.block_hashes[low:middle] == block_hashes[low:middle]:
                low = middle
            else:
                high = middle - 1
        return low


NO_TEXT = RecordedText(text=TokenText("", b""), scope="", block_size=0, block_hashes=(), block_ends=[])


def _first_words(text: TokenText, num_words: int) -> TokenText:
    words = text.split()[:num_words]
    return TokenText("".join(f" {word}" for word in words), text.token_ids[: num_words * TOKEN_BYTES])


@functools.lru_cache(maxsize=8192)  # other tasks' prompts may share blocks; at 512 tokens this is 40 MB
def _block_text(scope: str, block_hash: int, num_tokens: int) -> TokenText:
    return filler(f"block/{scope}/{block_hash}", num_tokens)
