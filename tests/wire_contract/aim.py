"""Requests that speak of the model's own output or vocabulary, re-aimed at this server's.

A client that sends ``stop: ["ome"]`` has seen the recorded model say "ome", and ``logit_bias: {"2": 100}`` names that
model's end of text. Sent to another model as they are, such requests would ask for something else. Each change is made
here, by one of the rules below, and nothing else of a request is touched.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from mockserver.api.sampling import VOCABULARY_SIZE
from mockserver.tokens import SPECIAL_TOKENS
from tests.wire_contract.exchange import Answer, Exchange

RECORDED_EOS = "2"
RECORDED_VOCABULARY = 8192
RECORDED_UNKNOWN_TOKEN = 99_999
OUR_UNKNOWN_TOKEN = 199_999
_ENOUGH_TOKENS = 2000
_UNSAID = "\x01"
_SHORTEST_CALL = 8
_SIGNS_OF_A_CUT = ('"finish_reason":"length"', '"reason":"max_output_tokens"', '"stop_reason":"max_tokens"')

Ask = Callable[[dict[str, Any]], Awaitable[Answer]]


async def aimed(exchange: Exchange, ask: Ask) -> Any:
    """The body to send for ``exchange``; ``ask`` sends a trial request."""
    body = exchange.sent.body
    if not isinstance(body, dict):
        return body
    body = copy.deepcopy(body)
    _name_our_tokens(body)
    if exchange.sent.path.endswith("/render"):
        return body
    if exchange.answer.status != 200 or not body.keys() & {"messages", "prompt", "input"}:
        return body
    if body.get("stop") or body.get("stop_token_ids"):
        await _stop_at_our_words(exchange, body, ask)
    elif _is_constrained(body) and any(sign in _text(exchange) for sign in _SIGNS_OF_A_CUT):
        await _cut_our_reply(body, ask)
    elif _is_constrained(body) and (limit := _limit(body)):
        body[limit] = max(_ENOUGH_TOKENS, body[limit])  # it came to its end there: ours may as well
    return body


def unaimed(answer: Answer) -> Answer:
    """An answer with our vocabulary's numbers replaced by the recorded one's, where error texts show them."""
    body, lines = answer.body, answer.lines
    if answer.status != 200 and body is not None:
        body = _with_recorded_numbers(body)
    if lines is not None:
        lines = tuple(_with_recorded_numbers(line) if '"error"' in line else line for line in lines)
    return replace(answer, body=body, lines=lines)


def _with_recorded_numbers(text: str) -> str:
    text = text.replace(str(OUR_UNKNOWN_TOKEN), str(RECORDED_UNKNOWN_TOKEN))
    for size_of in ("Vocabulary size: {}", "logprobs of {}", "value={}"):
        text = text.replace(size_of.format(VOCABULARY_SIZE), size_of.format(RECORDED_VOCABULARY))
    return text


def _name_our_tokens(body: dict[str, Any]) -> None:
    """Token ids: the end of text by its id here, and an id that is unknown there by one that is unknown here."""
    bias = body.get("logit_bias")
    if isinstance(bias, str):  # the recording shortened it: a ban on whitespace
        del body["logit_bias"]
    elif isinstance(bias, dict):
        names = {RECORDED_EOS: str(SPECIAL_TOKENS["<|im_end|>"]), str(RECORDED_UNKNOWN_TOKEN): str(OUR_UNKNOWN_TOKEN)}
        body["logit_bias"] = {names.get(key, key): value for key, value in bias.items()}
    for field in ("prompt", "allowed_token_ids", "stop_token_ids", "token_ids", "tokens"):
        if isinstance(body.get(field), list):
            body[field] = [OUR_UNKNOWN_TOKEN if one == RECORDED_UNKNOWN_TOKEN else one for one in body[field]]


async def _stop_at_our_words(exchange: Exchange, body: dict[str, Any], ask: Ask) -> None:
    """A stop string or token that the recorded reply ran into: one that ours runs into."""
    if '"finish_reason":"stop"' not in _text(exchange):
        if body.get("stop"):  # nothing that the recorded reply said: nothing that ours says
            body["stop"] = [_UNSAID for _ in body["stop"]] if isinstance(body["stop"], list) else _UNSAID
        return
    free = {
        key: value for key, value in body.items() if key not in ("stop", "stop_token_ids", "stream", "stream_options")
    }
    trial = await ask({**free, "return_token_ids": True})
    if trial.status != 200:
        return  # the comparison will tell
    choice = json.loads(trial.body or "{}")["choices"][0]
    text = choice["text"] if "text" in choice else choice["message"]["content"]
    middle = len(text) // 2
    if body.get("stop"):
        stop = text[middle : middle + 3]
        body["stop"] = [stop] if isinstance(body["stop"], list) else stop
    else:
        body["stop_token_ids"] = [choice["token_ids"][len(choice["token_ids"]) // 2]]


def _is_constrained(body: dict[str, Any]) -> bool:
    response_format = body.get("response_format") or {}
    return bool(
        body.get("structured_outputs")
        or response_format.get("type") in ("json_object", "json_schema")
        or body.get("text")
        or (body.get("tools") and body.get("tool_choice") not in (None, "none", "auto"))
        or (body.get("tools") and "tool_choice" not in body)
    )


def _text(exchange: Exchange) -> str:
    return exchange.answer.body or "".join(exchange.answer.lines or ())


async def _cut_our_reply(body: dict[str, Any], ask: Ask) -> None:
    """A constrained reply that the recorded model could not bring to its end within max_tokens: ours is cut as well.

    A random model pads JSON with whitespace for ever; how many tokens an answer takes is the model's doing.
    """
    free = {key: value for key, value in body.items() if key not in ("stream", "stream_options")}
    trial = await ask(free)
    if trial.status != 200:
        return
    usage = json.loads(trial.body or "{}")["usage"]
    num_tokens = usage.get("completion_tokens", usage.get("output_tokens")) // (body.get("n") or 1)
    limit = _limit(body)
    if limit and num_tokens < body[limit]:
        is_repeated = (body.get("n") or 1) == 1 and (body.get("temperature") == 0 or body.get("seed") is not None)
        body[limit] = max(1, num_tokens - 6 if is_repeated else min(num_tokens - 6, _SHORTEST_CALL))


def _limit(body: dict[str, Any]) -> str | None:
    """The name of the field that limits the output."""
    return next((name for name in ("max_completion_tokens", "max_tokens", "max_output_tokens") if body.get(name)), None)
