"""A server whose every byte a test decides, on a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":" x"},"finish_reason":null}]}\n\n'
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10,'
    b'"prompt_tokens_details":{"cached_tokens":4}}}\n\n'
)
DONE = b"data: [DONE]\n\n"
CUT = b"(the connection is cut)"

Script = list[tuple[float, bytes]]
"""What is sent: seconds to wait first, then bytes."""


@dataclass(eq=False, slots=True)
class ScriptedServer:
    """Answers chat completions from ``script``."""

    url: str = ""
    script: Script = field(default_factory=list)
    refuse: Callable[[int], web.Response | None] = lambda _: None
    """A response in place of the script, by the number of the request."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    peers: list[object] = field(default_factory=list)
    """Where each request came from."""
    headers: list[dict[str, str]] = field(default_factory=list)

    async def complete(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(orjson.loads(await request.read()))
        assert request.transport is not None
        self.peers.append(request.transport.get_extra_info("peername"))
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        refusal = self.refuse(len(self.bodies) - 1)
        if refusal is not None:
            return refusal
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        loop = asyncio.get_running_loop()
        due_at = loop.time()
        for wait_s, data in self.script:
            due_at += wait_s
            await asyncio.sleep(due_at - loop.time())
            if data == CUT:
                request.transport.abort()
                return response
            await response.write(data)
        await response.write_eof()
        return response


@asynccontextmanager
async def scripted_server(*script: tuple[float, bytes]) -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer(script=list(script))
    async with serving({("POST", "/v1/chat/completions"): server.complete}) as server.url:
        yield server


@asynccontextmanager
async def serving(
    routes: dict[tuple[str, str], Callable[[web.Request], Awaitable[web.StreamResponse]]],
) -> AsyncIterator[str]:
    app = web.Application(client_max_size=1 << 26)
    for (method, path), answer in routes.items():
        app.router.add_route(method, path, answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()
