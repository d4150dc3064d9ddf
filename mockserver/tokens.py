"""Text to token ids and back: OpenAI's cl100k_base, from a file of this package, so it works with no network.

Token ids travel as ``bytes``, four little-endian bytes a token (``TOKEN_BYTES``): they join, slice and compare at
the speed of memory, which is what a server fed with 60 KB prompts needs.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
from array import array
from binascii import a2b_base64
from importlib import resources

import tiktoken

TOKEN_BYTES = 4
_SHA256 = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"  # as in tiktoken_ext.openai_public
_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
# The five specials of cl100k_base, and two that its id space leaves free, for the chat template (mockserver/prompt.py).
SPECIAL_TOKENS = {
    "<|endoftext|>": 100257,
    "<|fim_prefix|>": 100258,
    "<|fim_middle|>": 100259,
    "<|fim_suffix|>": 100260,
    "<|im_start|>": 100264,
    "<|im_end|>": 100265,
    "<|endofprompt|>": 100276,
}


class TokenText(str):
    """A text that carries its own token ids, so that nobody has to tokenise it again."""

    __slots__ = ("token_ids",)
    token_ids: bytes

    def __new__(cls, text: str, token_ids: bytes) -> TokenText:
        self = super().__new__(cls, text)
        self.token_ids = token_ids
        return self


@functools.cache
def ranks() -> dict[bytes, int]:
    """The id of every token that is not special, by its bytes, in the order of the ids."""
    packed = resources.files("mockserver").joinpath("data", "cl100k_base.tiktoken.gz").read_bytes()
    raw = gzip.decompress(packed)
    digest = hashlib.sha256(raw).hexdigest()
    if digest != _SHA256:
        raise ValueError(f"cl100k_base.tiktoken.gz is damaged: sha256 {digest}, expected {_SHA256}")
    return {a2b_base64(token): int(rank) for token, rank in map(bytes.split, raw.splitlines())}


@functools.cache
def encoding() -> tiktoken.Encoding:
    """The cl100k_base encoding, built once per process (about 0.25 s)."""
    return tiktoken.Encoding(
        name="cl100k_base", pat_str=_PATTERN, mergeable_ranks=ranks(), special_tokens=SPECIAL_TOKENS
    )


def encode(text: str) -> bytes:
    """Token ids of ``text``; special tokens in it are ordinary text, as they are for any user's input."""
    if isinstance(text, TokenText):
        return text.token_ids
    try:
        return array("I", encoding().encode_ordinary(text)).tobytes()
    except UnicodeEncodeError:  # lone surrogates, which JSON allows: tokenise what a UTF-8 reader would see
        return array("I", encoding().encode_ordinary(text.encode("utf-8", "replace").decode())).tobytes()


def num_tokens(token_ids: bytes) -> int:
    """How many tokens ``token_ids`` holds."""
    return len(token_ids) // TOKEN_BYTES


def count(text: str) -> int:
    """How many tokens ``text`` is."""
    return len(encode(text)) // TOKEN_BYTES


def remembered_count(text: str) -> int:
    """``count``, for texts that are asked about again and again."""
    return len(text.token_ids) // TOKEN_BYTES if isinstance(text, TokenText) else _remembered_count(text)


@functools.lru_cache(maxsize=65_536)
def _remembered_count(text: str) -> int:
    return count(text)


def unpack(token_ids: bytes) -> list[int]:
    """The ids as integers."""
    return array("I", token_ids).tolist()


def pack(token_ids: list[int]) -> bytes:
    """Integers as packed ids."""
    return array("I", token_ids).tobytes()


def decode(token_ids: bytes) -> str:
    """The text of ``token_ids``; bytes that are not UTF-8 become replacement characters."""
    return encoding().decode(unpack(token_ids))
