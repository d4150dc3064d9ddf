"""vLLM's endpoints around completions: batches of conversations, rendering, tokens in and out, aborting by id."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Annotated, Any

import orjson
from aiohttp import web
from pydantic import Field

from mockserver.api.bodies import Usage, chat_body, dumped
from mockserver.api.chat import ChatCall, checked, run_to_end, whole_choice
from mockserver.api.choices import Choice, bursts, running, together
from mockserver.api.completions import checked as checked_completion
from mockserver.api.completions import count, started
from mockserver.api.completions import run_to_end as run_completion
from mockserver.api.errors import ApiError, BadParameter
from mockserver.api.http import DONE, EventStream, json_response, read_body
from mockserver.api.machine import Machine
from mockserver.api.messages import SomeMessages
from mockserver.api.sampling import Sampling
from mockserver.api.schema import ChatRequest, CompletionRequest, RequestModel, StreamOptions
from mockserver.tokens import TOKEN_BYTES, num_tokens, unpack


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


class GenerateRequest(RequestModel):
    """``POST /inference/v1/generate``."""

    request_id: str | None = None
    token_ids: Annotated[list[int], Field(min_length=1)]
    sampling_params: dict[str, Any]
    model: str | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    cache_salt: str | None = None
    priority: int = 0


async def generate(request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """Tokens in, tokens out."""
    body = await read_body(request, GenerateRequest.parse)
    data = {
        **body.sampling_params,
        "model": body.model,
        "prompt": body.token_ids,
        "request_id": body.request_id,
        "cache_salt": body.cache_salt,
        "priority": body.priority,
    }
    call = checked_completion(data, request.headers, machine)
    request_id = f"generate-tokens-{body.request_id or secrets.token_hex(8)}"
    if body.stream:
        with running(machine, lambda: started(call, machine, watch=True)) as choices:
            async with machine.event_stream(request) as stream:
                await _stream_tokens(stream, body, request_id, choices, machine)
                count(call, choices, machine)
        return stream
    choices = await run_completion(call, machine)
    answer = {
        "request_id": request_id,
        "model": machine.model_names[0],
        "created": call.envelope.created,
        "usage": _generate_usage(body, choices, machine).whole(),
        "prompt_logprobs": None,
        "prompt_token_id_logprobs": None,
        "prompt_token_ids": body.token_ids if body.return_token_ids else None,
        "mm_placeholders": None,
        "metrics": None,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "output_mode": "tokens",
        "choices": [_token_choice(choice, unpack(choice.reply.token_ids), is_final=True) for choice in choices],
    }
    return json_response(dumped(answer))


async def _stream_tokens(
    stream: EventStream, body: GenerateRequest, request_id: str, choices: list[Choice], machine: Machine
) -> None:
    """One event for each token, then the usage if it is wanted."""
    options = body.stream_options or StreamOptions()
    on_every_chunk = options.include_usage and options.continuous_usage_stats

    def event(choice: Choice, position: int, *, is_final: bool) -> bytes:
        usage = None
        if on_every_chunk:
            usage = Usage(num_prompt_tokens=len(body.token_ids), num_output_tokens=position).whole()
        chunk: dict[str, Any] = {"request_id": request_id, "usage": usage}
        if body.return_token_ids and position == 1 and choice is choices[0]:
            chunk["prompt_token_ids"] = body.token_ids
        chunk["output_mode"] = "tokens"
        token = unpack(choice.reply.token_ids[(position - 1) * TOKEN_BYTES : position * TOKEN_BYTES])
        chunk["choices"] = [_token_choice(choice, token, is_final=is_final)]
        return b"data: %b\n\n" % dumped(chunk)

    async def send_choice(choice: Choice) -> None:
        async for burst in bursts(choice, machine):
            last = choice.num_sent_tokens + burst.num_tokens
            await stream.send(
                *(
                    event(choice, position, is_final=burst.finished and position == last)
                    for position in range(choice.num_sent_tokens + 1, last + 1)
                )
            )
            choice.num_sent_tokens = last

    await together([lambda choice=choice: send_choice(choice) for choice in choices])  # type: ignore[misc]
    final = []
    if options.include_usage:
        usage = _generate_usage(body, choices, machine).final_chunk()
        final = [
            b"data: %b\n\n" % dumped({"request_id": request_id, "usage": usage, "output_mode": "tokens", "choices": []})
        ]
    await stream.send(*final, DONE)


def _token_choice(choice: Choice, token_ids: Sequence[int], *, is_final: bool) -> dict[str, Any]:
    spans = [{"version": "default", "start": 0, "end": num_tokens(choice.reply.token_ids)}]
    return {
        "index": choice.index,
        "finish_reason": choice.finish_reason if is_final else None,
        "stop_reason": choice.reply.stop_reason if is_final else None,
        "token_ids": token_ids,
        "routed_experts": None,
        "sampling_mask": None,
        "weight_versions": spans if is_final else None,
        "logprobs": None,
    }


def _generate_usage(body: GenerateRequest, choices: Sequence[Choice], machine: Machine) -> Usage:
    num_cached_tokens = choices[0].generation.num_cached_tokens
    return Usage(
        num_prompt_tokens=len(body.token_ids),
        num_output_tokens=sum(choice.generation.num_output_tokens for choice in choices),
        num_cached_tokens=num_cached_tokens if machine.settings.enable_prompt_tokens_details else None,
    )


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
