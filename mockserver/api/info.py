"""The endpoints that tell about the server, its tokenizer and its cache."""

from __future__ import annotations

import dataclasses
import platform
import secrets
from typing import Any

import orjson
from aiohttp import web
from pydantic import ValidationError

from mockserver.api.bodies import dumped
from mockserver.api.checks import check_generation_prompt
from mockserver.api.errors import ApiError, InvalidBody, unknown_model
from mockserver.api.faults import show_faults
from mockserver.api.http import json_response, read_json
from mockserver.api.machine import VLLM_VERSION, Machine
from mockserver.api.metrics import CONTENT_TYPE
from mockserver.api.prompts import INCOMPATIBLE_ENDS, check_template, plain_messages, tool_texts
from mockserver.api.replies import whole_piece
from mockserver.api.sampling import VOCABULARY_SIZE
from mockserver.api.schema import DetokenizeRequest, TokenizeChatRequest, TokenizeCompletionRequest
from mockserver.api.sleep import flag
from mockserver.clock import unix_seconds
from mockserver.prompt import end_of_turn
from mockserver.tokens import decode, encode, pack, unpack


async def empty(_request: web.BaseRequest, _machine: Machine) -> web.StreamResponse:
    """``/health`` and ``/ping``: alive."""
    return web.Response(body=b"")


async def version(_request: web.BaseRequest, _machine: Machine) -> web.StreamResponse:
    """``/version``."""
    return json_response(orjson.dumps({"version": VLLM_VERSION}))


async def models(_request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """``/v1/models``."""
    created = int(unix_seconds())
    cards = [
        {
            "id": name,
            "object": "model",
            "created": created,
            "owned_by": "vllm",
            "root": machine.profile.model,
            "parent": None,
            "max_model_len": machine.max_model_len,
            "permission": [
                {
                    "id": f"modelperm-{secrets.token_hex(8)}",
                    "object": "model_permission",
                    "created": created,
                    "allow_create_engine": False,
                    "allow_sampling": True,
                    "allow_logprobs": True,
                    "allow_search_indices": False,
                    "allow_view": True,
                    "allow_fine_tuning": False,
                    "organization": "*",
                    "group": None,
                    "is_blocking": False,
                }
            ],
        }
        for name in machine.model_names
    ]
    return json_response(orjson.dumps({"object": "list", "data": cards}))


async def metrics(_request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """``/metrics``."""
    response = web.Response(body=machine.metrics.text())
    response.headers["Content-Type"] = CONTENT_TYPE
    return response


async def mounted_metrics(_request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """The same by the doors that vLLM has beside the one: in the older format."""
    response = web.Response(body=machine.metrics.text())
    response.headers["Content-Type"] = CONTENT_TYPE.replace("1.0.0", "0.0.4")
    response.enable_chunked_encoding()
    return response


async def preflight(request: web.BaseRequest, _machine: Machine) -> web.StreamResponse:
    """A browser asks whether it may ask: no origin is allowed by default."""
    response = web.Response(status=400, text="Disallowed CORS origin")
    asked = ("Method", "Headers", "Private-Network")
    response.headers["Vary"] = ", ".join(("Origin", *(f"Access-Control-Request-{name}" for name in asked)))
    response.headers["access-control-allow-methods"] = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT, QUERY"
    response.headers["access-control-max-age"] = "600"
    if wanted := request.headers.get("Access-Control-Request-Headers"):
        response.headers["access-control-allow-headers"] = wanted
    return response


async def load(_request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """``/load``: requests in flight, if the server was told to count them."""
    count = machine.num_in_flight if machine.settings.enable_server_load_tracking else 0
    return json_response(orjson.dumps({"server_load": count}))


async def tokenize(request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """``/tokenize``: a text or a conversation."""
    data = await read_json(request)
    if isinstance(data, dict) and "prompt" not in data:
        check_generation_prompt(data)
    body = _tokenize_body(data)
    _check_model(body.model, machine)
    if isinstance(body, TokenizeCompletionRequest):
        ids = encode(body.prompt)
    else:
        if body.continue_final_message and body.add_generation_prompt:
            raise ApiError(INCOMPATIBLE_ENDS)
        check_template(body.chat_template, body.chat_template_kwargs)
        ids = machine.encoder.chat(
            plain_messages(body.messages, model=machine.model_names[0]),
            tool_texts(body.tools),
            add_generation_prompt=body.add_generation_prompt and not body.continue_final_message,
        )
        if body.continue_final_message:
            ids = ids[: ids.rindex(end_of_turn())]
    numbers = unpack(ids)
    shown = [_token_text(token_id) for token_id in numbers] if body.return_token_strs else None
    return json_response(
        dumped(
            {
                "count": len(numbers),
                "max_model_len": machine.max_model_len,
                "tokens": numbers,
                "token_strs": shown,
            }
        )
    )


def _tokenize_body(data: Any) -> TokenizeCompletionRequest | TokenizeChatRequest:
    """Either shape; what fits neither is reported against both, as vLLM does."""
    errors: list[dict[str, Any]] = []
    for shape in (TokenizeCompletionRequest, TokenizeChatRequest):
        try:
            return shape.model_validate(data)
        except ValidationError as error:
            errors += [{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_url=False)]
    raise InvalidBody(errors)


def _token_text(token_id: int) -> str:
    text = whole_piece(token_id)
    return decode(pack([token_id])) if text is None else text


async def detokenize(request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """``/detokenize``."""
    body = DetokenizeRequest.parse(await read_json(request))
    _check_model(body.model, machine)
    if any(token_id >= 2**32 for token_id in body.tokens):
        raise ApiError("out of range integral type conversion attempted")
    text = decode(pack([token_id for token_id in body.tokens if token_id < VOCABULARY_SIZE]))
    return json_response(dumped({"prompt": text}))


async def reset_prefix_cache(request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """``POST /reset_prefix_cache``: refused while a request holds blocks."""
    flag(request, "reset_running_requests")
    flag(request, "reset_external")
    return json_response(orjson.dumps({"success": machine.driver.reset_prefix_cache()}))


async def faults(request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """``/replayrig/faults``: see or set what goes wrong."""
    return json_response(orjson.dumps(await show_faults(request, machine.faults)))


async def server_info(request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """``/server_info``: the resolved settings, keys left out."""
    settings = dataclasses.asdict(machine.settings)
    settings["api_key"] = ["***" for _ in settings["api_key"]]
    config: dict[str, Any] = {
        "model_config": {"model": machine.profile.model, "max_model_len": machine.max_model_len},
        "engine_config": dataclasses.asdict(machine.config),
        "settings": settings,
    }
    if request.query.get("config_format") != "json":
        shown = {"model": machine.profile.model, **config["engine_config"], **settings}
        config = ", ".join(f"{key}={value!r}" for key, value in shown.items())  # type: ignore[assignment]
    system = {"python_version": platform.python_version(), "os": platform.platform(terse=True)}
    return json_response(orjson.dumps({"vllm_config": config, "vllm_env": {}, "system_env": system}))


def _check_model(name: str | None, machine: Machine) -> None:
    if name and name not in machine.model_names:
        raise unknown_model(name, machine.model_names)
