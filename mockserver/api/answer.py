"""How a request that was found good is answered, whichever endpoint it came to: whole, or as a stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from mockserver.api.choices import Choice, running
from mockserver.api.errors import ApiError
from mockserver.api.http import DONE, EventStream, json_response
from mockserver.api.machine import Machine, load_report


async def answer(
    request: web.BaseRequest,
    machine: Machine,
    *,
    is_stream: bool,
    late_error: ApiError | None,
    whole: Callable[[], Awaitable[bytes]],
    start: Callable[[], list[Choice]],
    send: Callable[[EventStream, list[Choice]], Awaitable[None]],
) -> web.StreamResponse:
    """The JSON of ``whole``, or a stream in which ``send`` tells of the choices that ``start`` hands to the engine.

    ``late_error`` is what only the engine finds: a stream has begun by then and carries it as an event.
    """
    if not is_stream:
        if late_error is not None:
            raise late_error
        return json_response(await whole(), headers=load_report(request, machine))
    if late_error is not None:
        async with machine.event_stream(request) as stream:
            await stream.send(b"data: %b\n\n" % late_error.body(), DONE)
        return stream
    with running(machine, start) as choices:
        async with machine.event_stream(request) as stream:
            await send(stream, choices)
    return stream
