"""Holding the server's clock, so that what is due at one instant can arrive at that instant, however long it takes to
send: see ``loadgen.opening``."""

from __future__ import annotations

import asyncio

import orjson
from aiohttp import web

from mockserver.api.errors import ApiError
from mockserver.api.http import json_response
from mockserver.api.machine import Machine
from mockserver.clock import WallClock

_LONGEST_HOLD_S = 60.0
"""Real seconds: a client that is gone must not stop the server's time for ever."""


async def held_clock(request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """``PUT /replayrig/clock``: time stands still until ``DELETE``, or for a minute.

    Requests that come meanwhile all arrive at that instant, and no step begins.
    """
    clock = machine.clock
    if not isinstance(clock, WallClock):
        raise ApiError("virtual time cannot be held")
    if machine.end_of_hold is not None:
        machine.end_of_hold.cancel()
        machine.end_of_hold = None
    if request.method == "PUT":
        clock.hold()
        machine.end_of_hold = asyncio.get_running_loop().call_later(_LONGEST_HOLD_S, clock.release)
    else:
        clock.release()
    return json_response(orjson.dumps({"held": clock.is_held, "simulated_s": clock.now()}))
