"""``/openapi.json`` and the pages that show it, as FastAPI has them; the pages load their scripts from the internet."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

import orjson
from aiohttp import web
from pydantic.json_schema import models_json_schema

from mockserver.api.anthropic import CountTokensRequest, MessagesRequest
from mockserver.api.generate import GenerateRequest
from mockserver.api.machine import Machine
from mockserver.api.responses import ResponsesRequest
from mockserver.api.scale_out import BatchChatRequest
from mockserver.api.schema import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    RequestModel,
    TokenizeCompletionRequest,
)

_BODIES: Mapping[str, type[RequestModel]] = {
    "/v1/chat/completions": ChatRequest,
    "/v1/chat/completions/batch": BatchChatRequest,
    "/v1/chat/completions/render": ChatRequest,
    "/v1/completions": CompletionRequest,
    "/v1/completions/render": CompletionRequest,
    "/v1/responses": ResponsesRequest,
    "/v1/messages": MessagesRequest,
    "/v1/messages/count_tokens": CountTokensRequest,
    "/inference/v1/generate": GenerateRequest,
    "/tokenize": TokenizeCompletionRequest,
    "/detokenize": DetokenizeRequest,
}


def description(routes: Mapping[str, Iterable[str]]) -> bytes:
    """The OpenAPI description of these paths and methods."""
    schemas, definitions = models_json_schema(
        [(model, "validation") for model in dict.fromkeys(_BODIES.values())],
        ref_template="#/components/schemas/{model}",
    )
    paths: dict[str, Any] = {}
    for path, methods in routes.items():
        for method in methods:
            name = path.strip("/").replace("/", "_")
            operation: dict[str, Any] = {
                "summary": name.replace("_", " ").title(),
                "operationId": f"{name}_{method.lower()}",
                "responses": {"200": {"description": "Successful Response"}},
            }
            if path in _BODIES and method == "POST":
                schema = schemas[_BODIES[path], "validation"]
                operation["requestBody"] = {"content": {"application/json": {"schema": schema}}, "required": True}
            paths.setdefault(path, {})[method.lower()] = operation
    return orjson.dumps(
        {
            "openapi": "3.1.0",
            "info": {"title": "FastAPI", "version": "0.1.0"},
            "paths": paths,
            "components": {"schemas": definitions.get("$defs", {})},
        }
    )


async def swagger(_request: web.BaseRequest, _machine: Machine) -> web.StreamResponse:
    """``/docs``."""
    return _page("swagger.html")


async def redoc(_request: web.BaseRequest, _machine: Machine) -> web.StreamResponse:
    """``/redoc``."""
    return _page("redoc.html")


def _page(name: str) -> web.Response:
    response = web.Response(body=_content(name))
    response.headers["Content-Type"] = "text/html; charset=utf-8"
    return response


@functools.cache
def _content(name: str) -> bytes:
    return resources.files("mockserver.api").joinpath("page", name).read_bytes()
