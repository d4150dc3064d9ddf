"""A server's life: clients that go away, slow readers, stopping, and what the machine looks like meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys

import aiohttp
import pytest

from mockserver.api.app import serve
from tests.mockserver.api.conftest import HELLO, Client, connected, settings

ENDLESS = {"messages": HELLO, "max_tokens": 20_000, "ignore_eos": True}


async def until_idle(client: Client) -> None:
    """Wait for the step in flight to end and everything to be free."""
    async with asyncio.timeout(5.0):
        while True:
            snapshot = client.machine.driver.snapshot()
            if not (snapshot.num_running or snapshot.num_waiting or snapshot.num_used_blocks):
                return
            await asyncio.sleep(0.01)


async def test_client_that_leaves_a_stream_frees_its_blocks(client: Client) -> None:
    url = client.server.base_url + "/v1/chat/completions"
    async with client.session.post(url, json={**ENDLESS, "stream": True}) as response:
        await response.content.readany()
        assert client.machine.driver.snapshot().num_running == 1
        response.close()

    await until_idle(client)

    assert client.machine.num_in_flight == 0
    assert client.machine.live_request_ids == set()


async def test_client_that_leaves_before_a_whole_answer_frees_its_blocks(client: Client) -> None:
    url = client.server.base_url + "/v1/chat/completions"
    with pytest.raises(asyncio.TimeoutError):
        async with client.session.post(url, json=ENDLESS, timeout=aiohttp.ClientTimeout(total=0.2)):
            pass

    await until_idle(client)


async def test_many_clients_killed_in_mid_stream_leave_nothing_behind() -> None:
    async with connected(time_scale=1.0) as client:
        host, port = client.server.base_url.removeprefix("http://").split(":")
        body = json.dumps({**ENDLESS, "stream": True}).encode()
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )

        async def start_and_die() -> None:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(head.encode() + body)
            await reader.readuntil(b"data: ")
            writer.transport.abort()

        await asyncio.gather(*(start_and_die() for _ in range(100)))
        await until_idle(client)

        assert client.machine.driver.snapshot().num_finished_requests == 0


async def test_slow_reader_is_waited_for_and_not_buffered() -> None:
    async with connected(time_scale=1000.0) as client:
        host, port = client.server.base_url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
        body = json.dumps({**ENDLESS, "max_tokens": 60_000, "stream": True}).encode()
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        await reader.readuntil(b"data: ")
        await asyncio.sleep(0.5)
        connections = client.server._server.connections

        assert max(one.transport.get_write_buffer_size() for one in connections if one.transport) < 4_000_000

        writer.transport.abort()
        await until_idle(client)


async def test_headers_of_a_stream_come_before_its_first_token() -> None:
    async with connected(time_scale=1.0, max_num_seqs=1) as client:
        url = client.server.base_url + "/v1/chat/completions"
        async with client.session.post(url, json={**ENDLESS, "stream": True}) as running:
            await running.content.readany()
            async with client.session.post(url, json={**ENDLESS, "stream": True}) as queued:
                assert queued.status == 200
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(queued.content.readany(), 0.1)
                queued.close()
            running.close()


async def test_cache_is_reset_only_when_nobody_holds_blocks(client: Client) -> None:
    url = client.server.base_url
    async with client.session.post(f"{url}/v1/chat/completions", json={**ENDLESS, "stream": True}) as response:
        await response.content.readany()
        assert (await client.post("/reset_prefix_cache", {}))[1] == {"success": False}
        response.close()
    await until_idle(client)

    assert (await client.post("/reset_prefix_cache", {}))[1] == {"success": True}


async def test_scaled_server_says_so_in_every_answer() -> None:
    async with connected(time_scale=25.0) as client, client.session.get(f"{client.server.base_url}/health") as response:
        assert response.headers["x-replayrig-time-scale"] == "25"
    async with connected(time_scale=1.0) as client, client.session.get(f"{client.server.base_url}/health") as response:
        assert "x-replayrig-time-scale" not in response.headers


async def test_old_http_gets_its_stream_without_chunks(client: Client) -> None:
    host, port = client.server.base_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps({"messages": HELLO, "max_tokens": 2, "stream": True}).encode()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
        % (len(body), body)
    )
    answer = await reader.read()
    writer.close()

    head, _, events = answer.partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert events.startswith(b"data: {")
    assert events.endswith(b"data: [DONE]\n\n")


async def test_large_body_announced_with_expect_is_asked_for(client: Client) -> None:
    host, port = client.server.base_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps({"messages": HELLO, "max_tokens": 1}).encode()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)
    )
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(body)
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()


async def test_serve_gives_the_address() -> None:
    async with (
        serve(settings()) as base_url,
        aiohttp.ClientSession() as session,
        session.get(f"{base_url}/ping") as response,
    ):
        assert response.status == 200


def test_command_lets_running_streams_end_after_a_signal_and_exits_with_0() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "mockserver", "--port", "0", "--grace-period", "10"],
        stdout=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("MOCKSERVER_")},
    )
    assert process.stdout is not None
    ready = process.stdout.readline()
    assert ready.startswith("mockserver listening on http://127.0.0.1:")
    base_url = ready.split()[3]

    async def stream_through_the_signal() -> bytes:
        async with aiohttp.ClientSession() as session:
            body = {"messages": HELLO, "max_tokens": 150, "ignore_eos": True, "stream": True}
            async with session.post(f"{base_url}/v1/chat/completions", json=body) as response:
                first = await response.content.readany()
                process.send_signal(signal.SIGTERM)
                return first + await response.content.read()

    events = asyncio.run(stream_through_the_signal())

    assert events.endswith(b"data: [DONE]\n\n")
    assert events.count(b"data: ") == 152
    assert process.wait(timeout=10) == 0
    process.stdout.close()


def test_command_told_so_stops_when_whoever_started_it_is_gone() -> None:
    """The pipe to its standard input ends with the process that holds it, even one that was killed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mockserver", "--port", "0", "--stop-with-stdin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"mockserver listening on ")
    process.stdin.write(b"anything\n")
    process.stdin.flush()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.3)

    process.stdin.close()

    assert process.wait(timeout=10) == 0
    process.stdout.close()


@pytest.mark.parametrize("argv", [["--port", "x"], ["--what"], ["--host", "no.such.host.invalid"]])
def test_command_refuses_nonsense_in_one_line_with_code_2(argv: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "mockserver", *argv], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr.startswith("mockserver: ")
    assert done.stderr.count("\n") == 1
