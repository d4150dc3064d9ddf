"""Filler text of an exact token count: what stands where nobody reads the words.

Every word is one cl100k_base token with its leading space, so ``n`` words are ``n`` tokens wherever the text is
put, and the ids are known without tokenising.
"""

from __future__ import annotations

import functools
import itertools
import random
import re
from collections.abc import Callable

from mockserver.tokens import TOKEN_BYTES, TokenText, pack, ranks

_POOL_WORDS = 1 << 16
_NUM_KNOWN_PIECES = 40_000
_WORD = re.compile(rb" [a-z]{3,9}").fullmatch
_NUM_UNIQUE_WORDS = 3  # 3 words of about 5,000: one chance in 10^11 that two fillers start alike


@functools.cache
def _words() -> list[tuple[bytes, str]]:
    """Lower-case English-looking words of 3 to 9 letters that are one token with their leading space: id and text."""
    pieces = itertools.islice(ranks().items(), _NUM_KNOWN_PIECES)
    return [(pack([token_id]), piece.decode("ascii")) for piece, token_id in pieces if _WORD(piece)]


@functools.cache
def _pool() -> tuple[bytes, str, list[int]]:
    """A fixed run of words: their ids, their text, and where each word starts in the text."""
    random_bits = random.Random("replayrig/filler").getrandbits
    words = _words()
    chosen = [words[_below(random_bits, len(words))] for _ in range(_POOL_WORDS)]
    starts = list(itertools.accumulate((len(word) for _, word in chosen), initial=0))
    return b"".join(token_id for token_id, _ in chosen), "".join(word for _, word in chosen), starts


def _below(random_bits: Callable[[int], int], limit: int) -> int:
    """As ``random.Random`` draws for ``choice`` and ``randrange``, without what they ask first: most of a filler."""
    num_bits = limit.bit_length()
    drawn = random_bits(num_bits)
    while drawn >= limit:
        drawn = random_bits(num_bits)
    return drawn


def filler(seed: str | random.Random, num_tokens: int) -> TokenText:
    """Text of exactly ``num_tokens`` tokens, the same for the same ``seed`` in every process.

    It starts with a few words drawn from ``seed`` (so that two fillers share no prefix) and goes on with a slice
    of a fixed run of words, because slicing costs nothing and drawing 7 million words does. A generator in place of
    a seed goes on from its state, which saves the seeding (half the cost of a short filler).
    """
    if num_tokens < 0:
        raise ValueError(f"num_tokens must be at least 0, got {num_tokens}")
    rng = random.Random(seed) if isinstance(seed, str) else seed
    random_bits = rng.getrandbits
    words = _words()
    ids: list[bytes] = []
    text: list[str] = []
    num_unique = min(num_tokens, _NUM_UNIQUE_WORDS)
    for _ in range(num_unique):
        token_id, word = words[_below(random_bits, len(words))]
        ids.append(token_id)
        text.append(word)
    pool_ids, pool_text, starts = _pool()
    missing = num_tokens - num_unique
    while missing > 0:
        first = _below(random_bits, _POOL_WORDS)
        last = min(first + missing, _POOL_WORDS)
        ids.append(pool_ids[first * TOKEN_BYTES : last * TOKEN_BYTES])
        text.append(pool_text[starts[first] : starts[last]])
        missing -= last - first
    return TokenText("".join(text), b"".join(ids))
