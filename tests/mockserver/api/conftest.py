"""A running server for the tests of its API: real sockets, a clock that runs fast."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest_asyncio

from mockserver.api.app import RunningServer, start
from mockserver.api.machine import Machine
from mockserver.api.settings import ServerSettings

FAST = 50.0


@dataclass(eq=False, slots=True)
class Client:
    """Asks one server."""

    session: aiohttp.ClientSession
    server: RunningServer

    @property
    def machine(self) -> Machine:
        return self.server.app.machine

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        async with self.session.get(self.server.base_url + path, headers=headers) as response:
            return response.status, await response.text()

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        async with self.session.post(self.server.base_url + path, json=body, headers=headers) as response:
            return response.status, await response.json()

    async def chat(self, **body: Any) -> dict[str, Any]:
        status, answer = await self.post("/v1/chat/completions", {"messages": HELLO, **body})
        assert status == 200, answer
        return dict(answer)

    async def stream(self, path: str = "/v1/chat/completions", **body: Any) -> list[Any]:
        """The events of a stream, parsed; [DONE] as text."""
        if path.startswith("/v1/chat"):
            body.setdefault("messages", HELLO)
        url = self.server.base_url + path
        async with self.session.post(url, json={"stream": True, **body}) as response:
            assert response.status == 200, await response.text()
            text = (await response.read()).decode()
        assert text.endswith("\n\n")
        events = [block.removeprefix("data: ") for block in text.split("\n\n") if block.startswith("data: ")]
        return [event if event == "[DONE]" else json.loads(event) for event in events]


HELLO = [{"role": "user", "content": "Hello there, tell me something."}]


def settings(**given: Any) -> ServerSettings:
    """Settings for a test: a free port, fast time, no grace."""
    return ServerSettings(**{"port": 0, "time_scale": FAST, "grace_period": 0.0, **given})


@pytest_asyncio.fixture
async def client() -> AsyncIterator[Client]:
    """A client of a server with usual settings."""
    async with connected() as one:
        yield one


class connected:  # reads as the function that it stands for
    """``async with connected(max_num_seqs=2) as client``: a server with these settings, and a client of it."""

    def __init__(self, **given: Any) -> None:
        self._settings = settings(**given)

    async def __aenter__(self) -> Client:
        self._server = await start(self._settings)
        self._session = aiohttp.ClientSession()
        return Client(self._session, self._server)

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        await self._server.stop()
