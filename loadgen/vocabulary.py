"""Which token ids a server that is not ours knows, found out before a run that sends prompts of ids."""

from __future__ import annotations

import aiohttp
import orjson

from loadgen.server_view import NO_ANSWER, ServerView
from loadgen.target import Target, TargetError, one_line, refusal
from mockserver.filler import filler

_NUM_TEXTS = 8
_NUM_WORDS = 1000
_LEAST_IDS = 64
"""With fewer distinct ids the tokenizer is not one of words."""
_FIRST_ID = 1_000
"""Before it, vocabularies have control tokens and single bytes."""
_LAST_ID = 31_999
"""Vocabularies of language models have 32,000 ids or more."""
_REFUSED = (400, 422)


async def find_vocabulary(server: ServerView, target: Target) -> tuple[int, ...]:
    """Ids that stand for plain words there: what its /tokenize makes of words, else a range that it accepts."""
    ids: set[int] = set()
    for number in range(_NUM_TEXTS):
        text = filler(f"vocabulary/{number}", _NUM_WORDS)
        answer = await server.tokenize({"model": target.model, "prompt": text, "add_special_tokens": False})
        found = answer.get("tokens") if answer is not None else None
        if not isinstance(found, list) or not all(isinstance(one, int) for one in found):
            break
        ids.update(found)
    if len(ids) >= _LEAST_IDS:
        return tuple(sorted(ids))
    last = _LAST_ID
    while last >= _FIRST_ID + _LEAST_IDS:
        if await _accepts(server.session, target, last):
            return tuple(range(_FIRST_ID, last + 1))
        last //= 2
    raise TargetError(f"{target.base_url}: knows none of the token ids from {_FIRST_ID} on: use --endpoint chat")


async def _accepts(session: aiohttp.ClientSession, target: Target, token_id: int) -> bool:
    body = orjson.dumps({"model": target.model, "prompt": [token_id], "max_tokens": 1})
    url = f"{target.api_url}/completions"
    headers = {"content-type": "application/json", **target.headers}
    try:
        async with session.post(url, data=body, headers=headers) as response:
            answer = await response.read()
            if response.status not in (200, *_REFUSED):
                raise TargetError(f"{url}: {refusal(response.status, answer)}")
            return response.status == 200
    except NO_ANSWER as error:
        raise TargetError(f"{url}: {one_line(error)}") from None
