"""Putting the engine to sleep and pausing it, as vLLM's development mode does for weight updates.

While it sleeps or is paused, requests are kept waiting at the door; whoever is inside is aborted, or may finish first.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import orjson
from aiohttp import web
from pydantic import Field, TypeAdapter, ValidationError

from mockserver.api.errors import InvalidBody
from mockserver.api.http import json_response
from mockserver.api.machine import Machine

T = TypeVar("T")
_LEVEL: TypeAdapter[int] = TypeAdapter(Annotated[int, Field(ge=0, le=2)])
_MODE: TypeAdapter[str] = TypeAdapter(Literal["abort", "wait", "keep"])
_FLAG: TypeAdapter[bool] = TypeAdapter(bool)


def flag(request: web.BaseRequest, name: str) -> bool:
    """A query parameter that is on or off."""
    return _query(request, name, _FLAG, False)


def _query(request: web.BaseRequest, name: str, kind: TypeAdapter[T], default: T) -> T:
    if name not in request.query:
        return default
    try:
        return kind.validate_python(request.query[name])
    except ValidationError as error:
        raise InvalidBody([{**one, "loc": ("query", name)} for one in error.errors(include_url=False)]) from None


async def sleep(request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """``POST /sleep``."""
    level = _query(request, "level", _LEVEL, 1)
    await _close(request, machine)
    machine.is_asleep = True
    if level:
        machine.driver.reset_prefix_cache()
    return _answer({"status": "sleeping", "level": level})


async def wake_up(request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """``POST /wake_up``."""
    machine.is_asleep = False
    _open(machine)
    return _answer({"status": "awake", "tags": request.query.getall("tags", []) or None})


async def is_sleeping(_request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """``GET /is_sleeping``."""
    return _answer({"is_sleeping": machine.is_asleep})


async def pause(request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """``POST /pause``."""
    await _close(request, machine)
    machine.is_paused = True
    return _answer({"status": "paused"})


async def resume(_request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """``POST /resume``."""
    machine.is_paused = machine.is_asleep = False
    _open(machine)
    return _answer({"status": "resumed"})


async def is_paused(_request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """``GET /is_paused``."""
    return _answer({"is_paused": machine.is_paused})


async def _close(request: web.BaseRequest, machine: Machine) -> None:
    """Let nobody in, and see those off who are inside; ``keep`` lets them run on, which vLLM would freeze."""
    mode = _query(request, "mode", _MODE, "abort")
    machine.door.clear()
    if mode == "abort":
        for request_id in list(machine.live_request_ids):
            machine.driver.abort(request_id)
    while mode == "wait" and machine.num_in_flight:
        await machine.clock.sleep_until(machine.clock.now() + 0.01 * machine.clock.rate)


def _open(machine: Machine) -> None:
    if not (machine.is_asleep or machine.is_paused):
        machine.door.set()


def _answer(data: dict[str, Any]) -> web.Response:
    return json_response(orjson.dumps(data))
