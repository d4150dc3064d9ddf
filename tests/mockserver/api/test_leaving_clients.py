"""Clients that leave at any point of an exchange: the server notices, frees what they held, and has nothing to say."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

from tests.mockserver.api.conftest import HELLO

ENDPOINTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO},
    "/v1/completions": {"prompt": "Hello there."},
    "/v1/messages": {"model": "mock", "messages": HELLO},
    "/v1/responses": {"input": "Hello there."},
    "/inference/v1/generate": {"token_ids": [1, 2, 3], "sampling_params": {"max_tokens": 200, "ignore_eos": True}},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server in a process of its own."""

    url: str
    port: int
    log: Path

    async def metric(self, name: str) -> float:
        """The value of a gauge."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/metrics") as response:
            found = re.search(rf"^vllm:{name}{{.*}} (\S+)$", await response.text(), re.MULTILINE)
        assert found is not None
        return float(found[1])

    async def until_idle(self) -> None:
        """Return when no request runs or waits and no block is held."""
        async with asyncio.timeout(10.0):
            while await self.metric("num_requests_running") or await self.metric("num_requests_waiting"):
                pass
        assert await self.metric("kv_cache_usage_perc") == 0.0


@asynccontextmanager
async def a_server(log: Path, *flags: str) -> AsyncIterator[Server]:
    """A server whose standard error is ``log``; it must end with 0."""
    command = [sys.executable, "-m", "mockserver", "--port", "0", "--served-model-name", "mock", *flags]
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=file)
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().split()[3]
    try:
        yield Server(url=url, port=int(url.rpartition(":")[2]), log=log)
    finally:
        process.terminate()
        assert await process.wait() == 0


def posted(path: str, body: dict[str, Any]) -> bytes:
    """A whole request as it travels."""
    content = json.dumps(body).encode()
    return (b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b") % (
        path.encode(),
        len(content),
        content,
    )


async def come_and_leave(port: int, rng: Random) -> None:
    """Ask for something, and go away in the middle: of the request, before the headers, or between the tokens."""
    path = rng.choice(list(ENDPOINTS))
    request = posted(
        path, {**ENDPOINTS[path], "max_tokens": 200, "stream": rng.random() < 0.8, "n": rng.choice((1, 2))}
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    leaves = rng.choice(("in the request", "at once", "soon", "with the headers", "among the tokens"))
    writer.write(request[: rng.randrange(len(request))] if leaves == "in the request" else request)
    with suppress(TimeoutError, ConnectionError, asyncio.IncompleteReadError):
        if leaves == "soon":
            await asyncio.sleep(0.05 * rng.random())
        elif leaves == "with the headers":
            await asyncio.wait_for(reader.read(1), 0.2)
        elif leaves == "among the tokens":
            await asyncio.wait_for(reader.readuntil(b"data: "), 0.5)
            await asyncio.sleep(0.2 * rng.random())
    if rng.random() < 0.3:
        with suppress(OSError):
            writer.write_eof()
        await asyncio.sleep(0.01 * rng.random())
    if rng.random() < 0.5:
        writer.transport.abort()
    writer.close()


async def test_clients_that_leave_at_any_point_leave_no_trace_in_the_log(tmp_path: Path) -> None:
    rng = Random("leaving")
    async with a_server(tmp_path / "log", "--enable-scale-out", "--sse-keep-alive-interval", "1") as server:
        for _ in range(4):
            await asyncio.gather(*(come_and_leave(server.port, rng) for _ in range(150)))
        await server.until_idle()

    assert server.log.read_text() == ""


async def test_two_hundred_clients_killed_in_mid_stream_free_everything_and_leave_no_trace(tmp_path: Path) -> None:
    request = posted(
        "/v1/chat/completions", {"messages": HELLO, "max_tokens": 20_000, "ignore_eos": True, "stream": True}
    )

    async def begin(port: int) -> asyncio.StreamWriter:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        await reader.readuntil(b"data: ")
        return writer

    async with a_server(tmp_path / "log", "--max-num-seqs", "256") as server:
        writers = await asyncio.gather(*(begin(server.port) for _ in range(200)))
        assert await server.metric("num_requests_running") == 200
        for writer in writers:
            writer.transport.abort()
        await server.until_idle()

    assert server.log.read_text() == ""
