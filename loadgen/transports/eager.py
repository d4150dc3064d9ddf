"""A request whose body is written where the request is made, not one turn of the event loop later.

Python 3.12 lets a task begin at once, and aiohttp uses that for the task that writes a body. Before, that task waits
for its turn: where many calls are due together, each one's ``sent_at`` would be read before any of them is on its way,
and a server would seem slower by what the load generator still had to do (benchmarks/client.py on Python 3.11, first
token at 50 ms, 48 streams: TTFT p50 52 to 54 ms instead of 50.2 to 50.6).
"""

from __future__ import annotations

import sys
import types
from collections.abc import Coroutine, Generator
from typing import Any

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.connector import Connection


class EagerRequest(aiohttp.ClientRequest):
    """aiohttp's request; what its body has to wait for is awaited by the task that aiohttp makes for it, as before."""

    def write_bytes(
        self, writer: AbstractStreamWriter, conn: Connection, content_length: int | None = None
    ) -> Coroutine[Any, Any, None]:
        """Write as far as it goes without waiting; the rest, if any, is what is returned."""
        writing = super().write_bytes(writer, conn, content_length)
        try:
            waits_for = writing.send(None)
        except StopIteration:
            return _nothing()
        return _rest(writing, waits_for)


async def _nothing() -> None:
    pass


async def _rest(begun: Coroutine[Any, Any, None], waits_for: Any) -> None:
    await _steps(begun, waits_for)


@types.coroutine
def _steps(begun: Coroutine[Any, Any, None], waits_for: Any) -> Generator[Any, Any, None]:
    """What ``await begun`` would do, which Python refuses for a coroutine that already waits for something."""
    while True:
        try:
            try:
                value = yield waits_for
            except BaseException as error:
                waits_for = begun.throw(error)
            else:
                waits_for = begun.send(value)
        except StopIteration:
            return


REQUEST_CLASS = aiohttp.ClientRequest if sys.version_info >= (3, 12) else EagerRequest
"""What a session takes as its ``request_class`` so that its requests leave at once."""
