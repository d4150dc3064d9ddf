"""A prompt's text as hashes of token blocks, for prompts that are replayed as filler."""

from __future__ import annotations

from mockserver import tokens
from traces.importers.hashes import hash_of
from traces.importers.log import BadRecord
from traces.reuse import num_common_bytes

BLOCK_SIZE = 16
_BLOCK_BYTES = BLOCK_SIZE * tokens.TOKEN_BYTES
_NUM_RECENT = 8


class PromptBlocks:
    """Hashes of one agent run's prompts; what a prompt has from a recent one is not worked out again."""

    def __init__(self) -> None:
        self._ids_by_text: dict[str, bytes] = {}
        self._recent: list[tuple[bytes, list[int]]] = []  # token ids and hashes of the last few prompts

    def blocks_of(self, texts: list[str]) -> tuple[int, list[int]]:
        """(number of tokens, hash of each block) of a prompt made of ``texts``."""
        ids = b"".join(map(self._ids_of, texts))
        if not ids:
            raise BadRecord("an empty prompt")
        hashes: list[int] = []
        for known_ids, known_hashes in self._recent:
            num_blocks = num_common_bytes(ids, known_ids) // _BLOCK_BYTES
            if num_blocks > len(hashes):
                hashes = known_hashes[:num_blocks]
        done = len(hashes) * _BLOCK_BYTES
        hashes += [hash_of(ids[start : start + _BLOCK_BYTES]) for start in range(done, len(ids), _BLOCK_BYTES)]
        self._recent = [*self._recent[-_NUM_RECENT + 1 :], (ids, hashes)]
        return tokens.num_tokens(ids), hashes

    def _ids_of(self, text: str) -> bytes:
        ids = self._ids_by_text.get(text)
        if ids is None:
            ids = self._ids_by_text[text] = tokens.encode(text)
        return ids
