"""Calls before a run reach the server and no record."""

from __future__ import annotations

import pytest
from aiohttp import web

from loadgen.target import Target, TargetError
from loadgen.warm_up import send_warm_ups
from mockserver.clock import WallClock
from tests.loadgen.sse_server import DONE, ROLE, STOP, TOKEN, USAGE, scripted_server


@pytest.mark.wall_clock
async def test_as_many_calls_are_sent_as_asked_for_and_no_two_are_alike() -> None:
    async with scripted_server((0.0, ROLE + TOKEN + STOP + USAGE + DONE)) as server:
        await send_warm_ups(Target(base_url=server.url, model="m", scripted=False), WallClock(), 40)

    assert len({body["messages"][0]["content"] for body in server.bodies}) == 40


@pytest.mark.wall_clock
async def test_a_server_that_refuses_them_is_a_target_error() -> None:
    async with scripted_server() as server:
        server.refuse = lambda _: web.Response(status=500, text="no")

        with pytest.raises(ExceptionGroup) as caught:
            await send_warm_ups(Target(base_url=server.url, model="m"), WallClock(), 2)

    assert caught.group_contains(TargetError, match="a warm-up call failed: HTTP 500: no")
