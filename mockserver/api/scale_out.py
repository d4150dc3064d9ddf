"""vLLM's endpoints around completions: batches of conversations, rendering, aborting by id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import orjson
from aiohttp import web
from pydantic import Field

from mockserver.api.bodies import Usage, chat_body, dumped
from mockserver.api.chat import ChatCall, checked, run_to_end, whole_choice
from mockserver.api.completions import checked as checked_completion
from mockserver.api.errors import ApiError, BadParameter
from mockserver.api.http import json_response, read_body
from mockserver.api.machine import Machine
from mockserver.api.messages import SomeMessages
from mockserver.api.sampling import Sampling
from mockserver.api.schema import ChatRequest, CompletionRequest, RequestModel
from mockserver.tokens import num_tokens, unpack


class BatchChatRequest(RequestModel):
    """``POST /v1/chat/completions/batch``; the other fields are the chat endpoint's."""

    messages: Annotated[list[SomeMessages], Field(min_length=1)]
    n: int | None = 1


async def batch(request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """Several conversations in one request: a choice for each."""
    data = await read_body(request, _checked_batch)
    rest = {key: value for key, value in data.items() if key != "messages"}
    calls = [checked({**rest, "messages": one}, request.headers, machine) for one in data["messages"]]
    ended = [(await run_to_end(call, machine))[0] for call in calls]
    rows = []
    for index, (call, choice) in enumerate(zip(calls, ended, strict=True)):
        row = whole_choice(call, choice, machine)
        row["index"] = index
        rows.append(row)
    usage = Usage(
        num_prompt_tokens=sum(num_tokens(call.prompt) for call in calls),
        num_output_tokens=sum(choice.generation.num_output_tokens for choice in ended),
    )
    return json_response(chat_body(calls[0].envelope, rows, usage))


def _checked_batch(data: Any) -> dict[str, Any]:
    if isinstance(data, dict) and data.get("n", 1) not in (None, 1):
        raise BadParameter(
            "Batch chat completions do not support `n > 1`. Please set `n` to 1.", parameter="n", value=data["n"]
        )
    if isinstance(data, dict) and data.get("use_beam_search"):
        raise BadParameter(
            "Batch chat completions do not support beam search. Please set `use_beam_search` to False.",
            parameter="use_beam_search",
        )
    BatchChatRequest.parse(data)
    return dict(data)


async def derender(_request: web.BaseRequest, _machine: Machine) -> web.StreamResponse:
    """Text for tokens: not served."""
    raise ApiError("Derendering is not served by this mock", status=501, type="NotImplementedError")


async def disabled(_request: web.BaseRequest, _machine: Machine) -> web.StreamResponse:
    """What the endpoints below answer unless the server was told to serve them."""
    raise ApiError(
        "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.",
        status=403,
        type="PermissionDeniedError",
    )


async def render_chat(request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """The prompt that a chat request becomes."""
    call = await read_body(request, lambda data: checked(data, request.headers, machine))
    return json_response(dumped(_rendered_chat(call, machine)))


async def render_completion(request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """The prompts that a completion request becomes."""
    call = await read_body(request, lambda data: checked_completion(data, request.headers, machine))
    rows = []
    for number, (prompt, sampling) in enumerate(zip(call.prompts, call.samplings, strict=True)):
        request_id = call.request_id if len(call.prompts) == 1 else f"{call.request_id}-{number}"
        rows.append(_rendered(request_id, prompt, sampling, call.body))
    return json_response(dumped(rows))


def _rendered_chat(call: ChatCall, machine: Machine) -> dict[str, Any]:
    row = _rendered(call.request_id, call.prompt, call.sampling, call.body)
    if machine.settings.reasoning_parser:
        row["reasoning_ended"] = False
        kwargs = {
            "cohere_format": "cmd4",
            "add_generation_prompt": call.body.add_generation_prompt,
            "continue_final_message": call.body.continue_final_message,
        }
        row["reasoning_parser_kwargs"] = {"chat_template_kwargs": kwargs}
    return row


def _rendered(
    request_id: str, prompt: bytes, sampling: Sampling, body: ChatRequest | CompletionRequest
) -> dict[str, Any]:
    return {
        "request_id": request_id,
        "token_ids": unpack(prompt),
        "token_offsets": None,
        "features": None,
        "content_parts": None,
        "sampling_params": _shown_sampling(sampling, body),
        "model": body.model,
        "reasoning_ended": None,
        "reasoning_parser_kwargs": None,
        "return_token_ids": None,
        "output_mode": "tokens",
        "stream": bool(body.stream),
        "stream_options": None if body.stream_options is None else body.stream_options.model_dump(),
        "cache_salt": body.cache_salt,
        "priority": body.priority,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
    }


def _shown_sampling(sampling: Sampling, body: ChatRequest | CompletionRequest) -> dict[str, Any]:
    """vLLM's parameters in their order; some that have their default are left out, as there."""
    limits = sampling.limits
    shown: dict[str, Any] = {} if sampling.num_choices == 1 else {"n": sampling.num_choices}
    shown |= {
        "presence_penalty": body.presence_penalty or 0.0,
        "frequency_penalty": body.frequency_penalty or 0.0,
        "repetition_penalty": 1.0 if body.repetition_penalty is None else body.repetition_penalty,
        "temperature": 1.0 if body.temperature is None else body.temperature,
    }
    if not sampling.is_greedy:
        shown["top_p"] = 1.0 if body.top_p is None else body.top_p
        if body.top_k:
            shown["top_k"] = body.top_k
        shown["min_p"] = body.min_p or 0.0
    if sampling.seed is not None:
        shown["seed"] = sampling.seed
    shown |= {"stop": list(limits.stop), "stop_token_ids": sorted(limits.stop_token_ids)}
    if limits.ignore_eos:
        shown["ignore_eos"] = True
    if limits.max_tokens != _DEFAULT_MAX_TOKENS:
        shown["max_tokens"] = limits.max_tokens
    if limits.min_tokens:
        shown["min_tokens"] = limits.min_tokens
    if sampling.num_top_logprobs is not None:
        shown["logprobs"] = sampling.num_top_logprobs
    if isinstance(body, ChatRequest):
        shown["skip_special_tokens"] = False
    kind = _DELTAS if body.stream else _WHOLE
    return shown | {"output_kind": kind, "skip_clone": True, "bad_words": [], "skip_reading_prefix_cache": False}


_DEFAULT_MAX_TOKENS = 16
_DELTAS, _WHOLE = 1, 2


async def abort_requests(request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """``/abort_requests``: abort requests by the ids that their answers carry; all of them if none is named."""
    named = await _named_requests(request)
    aborted = _abort(named or [""], machine)
    return json_response(orjson.dumps({"status": "aborted", "aborted": len(named) if named else aborted}))


async def abort_generations(request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """``/inference/v1/abort_requests``: abort requests by their ids."""
    named = await _named_requests(request)
    if not named:
        raise ApiError("Missing 'request_ids' in request body", type="Bad Request")
    _abort(named, machine)
    return web.Response(body=b"")


async def _named_requests(request: web.BaseRequest) -> list[str]:
    try:
        data = orjson.loads(await request.read())
    except orjson.JSONDecodeError:
        raise ApiError("Invalid JSON format", type="Bad Request") from None
    if not isinstance(data, dict):
        raise ApiError("Request body must be a JSON object", type="Bad Request")
    names = data.get("request_ids")
    return [str(name) for name in names] if isinstance(names, list) else []


def _abort(prefixes: Sequence[str], machine: Machine) -> int:
    found = [request_id for request_id in machine.live_request_ids if request_id.startswith(tuple(prefixes))]
    for request_id in found:
        machine.driver.abort(request_id)
    return len(found)


async def kv_event_sources(_request: web.BaseRequest, _machine: Machine) -> web.StreamResponse:
    """Where KV events are published: nowhere."""
    return json_response(b"{}")
