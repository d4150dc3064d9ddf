"""Requests that are on their way when the call that made them says so, whatever else the event loop has to do."""

from __future__ import annotations

import asyncio
import hashlib
import io
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import aiohttp
import pytest

from loadgen.transports.eager import REQUEST_CLASS, EagerRequest

_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
_WAIT_S = 30.0


class _Server:
    """One connection at a time, read by a thread: it goes on while the event loop of a test stands still."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self.has_read = threading.Event()
        self.may_read = threading.Event()
        self.may_read.set()
        self.digests: list[str] = []
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}/"

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as stream:
                while length := _length(stream):
                    self.may_read.wait(_WAIT_S)
                    body = stream.read(length)
                    self.digests.append(_digest(body))
                    self.has_read.set()
                    if len(body) < length:
                        break
                    connection.sendall(_ANSWER)


def _length(stream: BinaryIO) -> int:
    """Reads a request's head: how long its body is; 0 where no request comes any more."""
    length = 0
    while line := stream.readline().strip().lower():
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    return length


@contextmanager
def _serving() -> Iterator[_Server]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        # Small, so that a large body has to be waited for.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        server = _Server(listening)
        thread = threading.Thread(target=server.serve, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(_WAIT_S)


def _digest(body: bytes) -> str:
    return f"{len(body)} {hashlib.sha256(body).hexdigest()}"


async def _post(session: aiohttp.ClientSession, url: str, body: bytes) -> bytes:
    async with session.post(url, data=io.BytesIO(body)) as response:
        return await response.read()


@pytest.mark.parametrize("request_class", [EagerRequest, REQUEST_CLASS], ids=["ours", "the one in use"])
async def test_a_body_is_written_in_the_turn_that_makes_the_request(request_class: type[aiohttp.ClientRequest]) -> None:
    with _serving() as server:
        async with aiohttp.ClientSession(request_class=request_class) as session:
            assert await _post(session, server.url, b"a connection is kept") == b"ok"
            server.has_read.clear()
            call = asyncio.create_task(_post(session, server.url, b"x" * 62_000))
            await asyncio.sleep(0)  # the task's first turn; the loop has no other until the body has been read
            assert server.has_read.wait(_WAIT_S)
            assert await call == b"ok"
        assert server.digests[1:] == [_digest(b"x" * 62_000)]


async def test_the_rest_of_a_body_that_does_not_fit_is_written_when_there_is_room() -> None:
    body = bytes(range(256)) * (1 << 16)
    with _serving() as server:
        async with aiohttp.ClientSession(request_class=EagerRequest) as session:
            server.may_read.clear()
            call = asyncio.create_task(_post(session, server.url, body))
            done, _ = await asyncio.wait([call], timeout=0.2)
            assert not done
            server.may_read.set()
            assert await asyncio.wait_for(call, _WAIT_S) == b"ok"
            assert await _post(session, server.url, b"the connection is still in order") == b"ok"
    assert server.digests == [_digest(body), _digest(b"the connection is still in order")]


async def test_a_call_given_up_while_its_body_waits_takes_its_connection_with_it() -> None:
    body = bytes(1 << 24)
    with _serving() as server:
        async with aiohttp.ClientSession(request_class=EagerRequest) as session:
            server.may_read.clear()
            call = asyncio.create_task(_post(session, server.url, body))
            await asyncio.wait([call], timeout=0.2)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            server.may_read.set()
            assert await _post(session, server.url, b"another connection") == b"ok"
    length, _ = server.digests[0].split()
    assert int(length) < len(body)
    assert server.digests[1] == _digest(b"another connection")


async def test_a_server_that_goes_away_while_a_body_waits_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        async with aiohttp.ClientSession(request_class=EagerRequest) as session:
            call = asyncio.create_task(_post(session, url, bytes(1 << 24)))
            await asyncio.sleep(0.1)
            connection, _ = listening.accept()
            connection.close()
            with pytest.raises(aiohttp.ClientError):
                await asyncio.wait_for(call, _WAIT_S)
