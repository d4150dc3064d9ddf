"""Sleeping and pausing: nobody is let in meanwhile."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.mockserver.api.conftest import HELLO, Client, connected


async def post(client: Client, path: str) -> Any:
    async with client.session.post(client.server.base_url + path) as response:
        assert response.status == 200
        return await response.json()


@pytest.mark.parametrize(
    ("close", "ask", "is_closed", "open_"),
    [("/sleep?level=1", "/is_sleeping", "is_sleeping", "/wake_up"), ("/pause", "/is_paused", "is_paused", "/resume")],
)
async def test_requests_wait_until_it_is_over(client: Client, close: str, ask: str, is_closed: str, open_: str) -> None:
    await post(client, close)
    waiting = asyncio.create_task(client.chat(max_tokens=2))
    _, during = await client.get(ask)
    await asyncio.wait((waiting,), timeout=0.1)
    was_kept_waiting = not waiting.done()
    await post(client, open_)
    _, after = await client.get(ask)

    assert was_kept_waiting
    assert (await waiting)["usage"]["completion_tokens"] == 2
    assert (json.loads(during)[is_closed], json.loads(after)[is_closed]) == (True, False)


@pytest.mark.parametrize(("mode", "finish_reason"), [("abort", "abort"), ("wait", "length"), ("keep", "length")])
async def test_who_is_inside_is_aborted_or_may_finish(mode: str, finish_reason: str) -> None:
    async with connected(time_scale=5.0) as client:
        body = {"messages": HELLO, "max_tokens": 200, "ignore_eos": True}
        running = asyncio.create_task(client.post("/v1/chat/completions", body))
        await asyncio.wait((running,), timeout=0.1)
        await post(client, f"/pause?mode={mode}")
        was_done = running.done()
        _, answer = await running

    assert answer["choices"][0]["finish_reason"] == finish_reason
    assert was_done == (mode == "wait") or mode == "abort"
