"""The HTTP side of an answer: reading a body, sending one, and streaming events.

An event stream frames its own chunks: one HTTP chunk per event, as uvicorn sends them, but all events that are due
together in one write, because the write is what costs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol, TypeVar

import orjson
from aiohttp import HttpVersion11, web
from aiohttp.helpers import rfc822_formatted_time

from mockserver.api.errors import ApiError, Detail, InvalidBody
from mockserver.clock import WallClock

T = TypeVar("T")

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
_NO_TEXT = "TextEncodeInput must be Union[TextInputSequence, Tuple[InputSequence, InputSequence]]"


def json_response(body: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """A JSON answer."""
    response = web.Response(body=body, status=status, headers=headers)
    response.headers["Content-Type"] = "application/json"
    return response


async def read_body(request: web.BaseRequest, parse: Callable[[Any], T]) -> T:
    """``parse`` of the request's JSON body, or vLLM's complaint about it."""
    data = await read_json(request)
    try:
        return parse(data)
    except InvalidBody:
        # orjson takes integers that do not fit into 64 bits for floats: complain about what the client really sent.
        return parse(_leniently_parsed(await request.read()))


async def read_json(request: web.BaseRequest) -> Any:
    """The request's JSON body, or vLLM's complaint about it."""
    media_type = request.headers.get("Content-Type", "").lower().partition(";")[0]
    body = await request.read()
    if media_type != "application/json":
        raise InvalidBody(["Unsupported Media Type: Only 'application/json' is allowed"])
    if not body or body.strip() == b"null":
        raise InvalidBody([{"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}])
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return _leniently_parsed(body)


def _leniently_parsed(body: bytes) -> Any:
    """What Python's parser takes and orjson does not (NaN, lone surrogates), or its words about the error."""
    try:
        data = json.loads(body)
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # a lone surrogate
        raise ApiError(_NO_TEXT) from None
    except json.JSONDecodeError as error:
        raise InvalidBody(
            [
                {
                    "type": "json_invalid",
                    "loc": ("body", error.pos),
                    "msg": "JSON decode error",
                    "input": {},
                    "ctx": {"error": error.msg},
                }
            ]
        ) from None
    except (UnicodeDecodeError, RecursionError, ValueError):
        raise Detail(HTTPStatus.BAD_REQUEST, text="There was an error parsing the body") from None
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong for a request; ``faults.py`` knows the kinds."""

    kind: str
    seconds: float = 0.0
    """How long it lasts, in simulated seconds, for those kinds that last."""
    share: float = 0.0
    """The share of requests that it befalls."""


class Interruption(Protocol):
    """Something that acts between the writes of a stream."""

    async def spoiled(self, data: bytes, *, is_chunked: bool) -> bytes:
        """What is written in place of ``data``; may wait before, or break the stream by raising."""
        ...

    async def close(self) -> None:
        """The stream is about to end; may wait before, or break it by raising."""
        ...


class HttpRequest(web.BaseRequest):
    """A request, and the fault that is to befall it."""

    fault: Fault | None = None
    read_timeout_s: float = 30.0

    async def read(self) -> bytes:
        """The body; a client that takes too long over it is given up."""
        try:
            async with asyncio.timeout(self.read_timeout_s):
                return await super().read()
        except TimeoutError:
            raise ApiError("The request was not received in time", status=408, type="Request Timeout") from None


class EventStream(web.StreamResponse):
    """An answer of server-sent events."""

    _length_check = False  # the chunks are framed here, not by aiohttp

    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__()
        self.headers["Date"] = rfc822_formatted_time()
        self.headers["Content-Type"] = "text/event-stream; charset=utf-8"
        self.headers.update(headers)
        self.is_chunked = True
        self.interruption: Interruption | None = None
        """Acts between writes, and may break the stream."""
        self.comments_clock: WallClock | None = None
        self.written_at = 0.0

    async def open(self, request: web.BaseRequest) -> None:
        """Send the headers, at once: before queueing, before the first token."""
        if request.version >= HttpVersion11:
            self.headers["Transfer-Encoding"] = "chunked"
        else:
            self.is_chunked = False
            self.force_close()
        await self.prepare(request)

    async def send(self, *events: bytes) -> None:
        """Send events in one write; waits while the client reads too slowly."""
        await self.write(b"".join(frame(events) if self.is_chunked else events))

    async def send_framed(self, parts: Iterable[bytes]) -> None:
        """Send events that were framed while they were built."""
        data = b"".join(parts)
        await self.write(data if self.is_chunked else _unframed(data))

    async def close(self) -> None:
        """End the stream."""
        if self.interruption is not None:
            await self.interruption.close()
        await self.write_eof(b"0\r\n\r\n" if self.is_chunked else b"")

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write, and remember when: silence is what comments break."""
        if self.comments_clock is not None:
            self.written_at = self.comments_clock.now()
        if self.interruption is not None:
            data = await self.interruption.spoiled(bytes(data), is_chunked=self.is_chunked)
        await super().write(data)

    async def comment_when_silent(self, interval_s: float) -> None:
        """Send a comment after every ``interval_s`` real seconds without an event, for proxies that lose patience."""
        clock = self.comments_clock = WallClock()
        due_at = interval_s
        with suppress(ConnectionError):  # the client has gone; whoever writes the events ends the stream
            while True:
                await clock.sleep_until(due_at)
                due_at = self.written_at + interval_s
                if due_at <= clock.now():
                    await self.send(KEEP_ALIVE)
                    due_at = clock.now() + interval_s


@asynccontextmanager
async def event_stream(
    request: web.BaseRequest,
    headers: Mapping[str, str],
    *,
    comment_interval_s: float = 0.0,
    interruption: Interruption | None = None,
) -> AsyncIterator[EventStream]:
    """An open stream, ended on leaving; a client that goes away ends it quietly.

    ConnectionError if the client has gone before the stream could be opened.
    """
    stream = EventStream(headers)
    stream.interruption = interruption
    await stream.open(request)
    comments = None
    try:
        if comment_interval_s:
            comments = asyncio.create_task(stream.comment_when_silent(comment_interval_s))
        yield stream
        await stream.close()
    except ConnectionError:
        if request.transport is not None:
            request.transport.close()
    finally:
        if comments is not None:
            comments.cancel()


def frame(events: Iterable[bytes]) -> list[bytes]:
    """``events`` as HTTP chunks."""
    return [part for event in events if event for part in (b"%x\r\n" % len(event), event, b"\r\n")]


def _unframed(data: bytes) -> bytes:
    """The content of HTTP chunks, for clients that know none."""
    content = []
    position = 0
    while position < len(data):
        size, _, _ = data[position : position + 16].partition(b"\r\n")
        start = position + len(size) + 2
        content.append(data[start : start + int(size, 16)])
        position = start + int(size, 16) + 2
    return b"".join(content)
