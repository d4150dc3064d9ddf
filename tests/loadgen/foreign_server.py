"""A server that is not ours, with a tokenizer that is not ours, on a real socket and in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from tests.loadgen.other_tokenizer import count_prompt
from tests.loadgen.sse_server import serving

VOCABULARY_SIZE = 5_000
_FIRST_WORD_ID = 300


@dataclass(eq=False, slots=True)
class ForeignServer:
    """Answers as long as it is asked to, and remembers what it was sent."""

    has_tokenize: bool = True
    calls_tools: bool = False
    """Whether it calls the first tool it is offered, where it may."""
    url: str = ""
    prompts: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of streamed calls."""
    num_questions: int = 0
    """Calls that were not streamed, and /tokenize."""

    async def models(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"data": [{"id": "foreign", "max_model_len": 16_384}]})

    async def tokenize(self, request: web.Request) -> web.StreamResponse:
        self.num_questions += 1
        if not self.has_tokenize:
            return web.Response(status=404)
        body = orjson.loads(await request.read())
        if "prompt" in body:
            words = body["prompt"].split()
            span = VOCABULARY_SIZE - _FIRST_WORD_ID
            return web.json_response({"tokens": [_FIRST_WORD_ID + sum(map(ord, one)) * 7 % span for one in words]})
        return web.json_response({"count": count_prompt(body["messages"], body.get("tools") or ())})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        num_prompt = count_prompt(body["messages"], body.get("tools") or ())
        if not body.get("stream"):
            self.num_questions += 1
            return web.json_response({"choices": [], "usage": {"prompt_tokens": num_prompt, "completion_tokens": 1}})
        self.prompts.append(body)
        num_tokens = body.get("max_completion_tokens") or 2
        deltas: list[dict[str, Any]] = [{"reasoning": "hm"}, *({"content": " w"} for _ in range(num_tokens))]
        if self.calls_tools and body.get("tools") and body.get("tool_choice") != "none":
            name = body["tools"][0]["function"]["name"]
            deltas.append({"tool_calls": [{"index": 0, "id": "srv-1", "function": {"name": name, "arguments": "{"}}]})
            deltas.append({"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]})
        return await self._stream(request, [{"delta": one} for one in deltas], num_prompt, num_tokens)

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        if not all(0 <= one < VOCABULARY_SIZE for one in body["prompt"]):
            return web.json_response({"error": {"message": "out of vocabulary"}}, status=400)
        if not body.get("stream"):
            self.num_questions += 1
            return web.json_response({"choices": [{"text": "x"}]})
        self.prompts.append(body)
        ids = range(10, 10 + body["max_tokens"])
        chunks: list[dict[str, Any]] = [{"text": " w", "token_ids": [one]} for one in ids]
        return await self._stream(request, chunks, len(body["prompt"]), len(ids))

    @staticmethod
    async def _stream(
        request: web.Request, choices: list[dict[str, Any]], num_prompt: int, num_tokens: int
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        choices[-1]["finish_reason"] = "stop"
        events: list[dict[str, Any]] = [{"choices": [{"index": 0, **one}]} for one in choices]
        events.append({"choices": [], "usage": {"prompt_tokens": num_prompt, "completion_tokens": num_tokens}})
        await response.write(b"".join(b"data: %b\n\n" % orjson.dumps(one) for one in events) + b"data: [DONE]\n\n")
        await response.write_eof()
        return response


@contextmanager
def foreign_server(**fields: Any) -> Iterator[ForeignServer]:
    """A running server; it ends with the block."""
    server = ForeignServer(**fields)
    is_up, is_over = threading.Event(), threading.Event()

    async def serve() -> None:
        routes: dict[tuple[str, str], Callable[[web.Request], Awaitable[web.StreamResponse]]] = {
            ("GET", "/v1/models"): server.models,
            ("POST", "/tokenize"): server.tokenize,
            ("POST", "/v1/chat/completions"): server.chat,
            ("POST", "/v1/completions"): server.completions,
        }
        async with serving(routes) as server.url:
            is_up.set()
            await asyncio.to_thread(is_over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert is_up.wait(10.0)
        yield server
    finally:
        is_over.set()
        thread.join()
