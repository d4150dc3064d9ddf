"""Log probabilities of tokens that nobody sampled: plausible, seeded by the token, in the shapes vLLM has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mockserver.api.replies import whole_piece
from mockserver.tokens import decode, pack, unpack

_FIRST_RANK_LOGPROB = -0.25


def chat_logprobs(token_ids: Sequence[int], num_top: int, *, as_ids: bool) -> dict[str, Any]:
    """``choices[].logprobs`` of a chat answer."""
    content = []
    for token_id in token_ids:
        entry = _chat_entry(token_id, 0, as_ids=as_ids)
        entry["top_logprobs"] = [
            _chat_entry(one, rank, as_ids=as_ids) for rank, one in enumerate(_alternatives(token_id, num_top))
        ]
        content.append(entry)
    return {"content": content}


def completion_logprobs(
    token_ids: Sequence[int], num_top: int, *, as_ids: bool, offset: int = 0, num_unknown: int = 0
) -> dict[str, Any]:
    """``choices[].logprobs`` of a plain completion; the first ``num_unknown`` tokens have none."""
    tokens = [_shown(token_id, as_ids=as_ids) for token_id in token_ids]
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token)
    known = [position >= num_unknown for position in range(len(tokens))]
    return {
        "text_offset": offsets,
        "token_logprobs": [
            _logprob(one, 0) if is_known else None for one, is_known in zip(token_ids, known, strict=True)
        ],
        "tokens": tokens,
        "top_logprobs": [
            {
                _shown(one, as_ids=as_ids): _logprob(one, rank)
                for rank, one in enumerate(_alternatives(token_id, max(1, num_top)))
            }
            if is_known
            else None
            for token_id, is_known in zip(token_ids, known, strict=True)
        ],
    }


def token_logprobs(token_ids: Sequence[int], num_top: int) -> dict[str, Any]:
    """``choices[].logprobs`` where tokens have no text: ``/inference/v1/generate``."""
    rows = [
        [_token_entry(one, rank) for rank, one in enumerate(_alternatives(token_id, num_top))] for token_id in token_ids
    ]
    return {"content": [{**row[0], "top_logprobs": row} for row in rows]}


def prompt_logprobs(prompt: bytes, num_top: int) -> list[dict[str, Any] | None]:
    """``prompt_logprobs``: nothing for the first token, then the token itself and ``num_top`` likelier ones."""
    rows: list[dict[str, Any] | None] = [None]
    for token_id in unpack(prompt)[1:]:
        row = {str(token_id): {"logprob": _logprob(token_id, 1), "rank": 2, "decoded_token": _text(token_id)}}
        likelier = [_neighbour(token_id, step) for step in range(1, num_top + 1)]
        for rank, one in enumerate(likelier, start=1):
            row.setdefault(str(one), {"logprob": _logprob(one, 0), "rank": rank, "decoded_token": _text(one)})
        rows.append(row)
    return rows


def _alternatives(token_id: int, count: int) -> list[int]:
    """The token and others that might have been: its neighbours in the vocabulary."""
    return [token_id, *(_neighbour(token_id, step) for step in range(1, count))][: max(0, count)]


def _neighbour(token_id: int, step: int) -> int:
    return (token_id + 97 * step) % 100_000


def _logprob(token_id: int, rank: int) -> float:
    return round(_FIRST_RANK_LOGPROB - rank * 1.5 - (token_id * 2_654_435_761 % 1000) / 2000, 6)


def _chat_entry(token_id: int, rank: int, *, as_ids: bool) -> dict[str, Any]:
    token = _shown(token_id, as_ids=as_ids)
    return {"token": token, "logprob": _logprob(token_id, rank), "bytes": list(_text(token_id).encode())}


def _token_entry(token_id: int, rank: int) -> dict[str, Any]:
    return {"token_id": token_id, "logprob": _logprob(token_id, rank), "rank": rank + 1}


def _shown(token_id: int, *, as_ids: bool) -> str:
    return f"token_id:{token_id}" if as_ids else _text(token_id)


def _text(token_id: int) -> str:
    text = whole_piece(token_id)
    return decode(pack([token_id])) if text is None else text
