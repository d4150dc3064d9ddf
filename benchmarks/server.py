"""What the server costs, how late its tokens leave, and what it keeps.

    python -m benchmarks.server [WHAT ...] [--streams 16 48 128] [--calls 6]

* ``calls``: CPU per call and chunks per second. Each stream is a conversation that starts at about 62 KB and grows by
  one turn a call; each call streams 53 chunks. ``at once``: the model is so fast that all chunks are due together.
  ``paced``: a chunk every 5 ms. A cold prompt, which has to be tokenised as a whole, is measured apart.
* ``decode``: 128 streams at the reference rate (32k tokens a second) in real time, and how late their tokens leave.
* ``endurance``: the server's memory over 100,000 calls of 1,000 tokens, none like another, with the default KV cache;
  ``endurance-tiny-calls``: of 40 tokens; ``endurance-small-cache``: of 40 tokens with a cache of 4,096 blocks.
* ``leavers``: 200 clients that go away in mid-stream.
* ``idle``: connections that say nothing, and a call among them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import orjson

from mockserver.filler import filler

NUM_CHUNKS = 53
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measurement."""

    label: str
    streams: int
    calls: int
    cpu_ms_per_call: float
    chunks_per_s: float
    lag_p99_ms: float

    def line(self) -> str:
        """As a row of the table."""
        return (
            f"{self.label:<22}{self.streams:>8}{self.calls:>8}{self.cpu_ms_per_call:>14.2f}"
            f"{self.chunks_per_s:>12.0f}{self.lag_p99_ms:>14.2f}"
        )


class Conversation:
    """An agent's conversation that grows by a turn a call."""

    def __init__(self, number: int, num_bytes: int = 62_000) -> None:
        self._number = number
        self._turn = 0
        self.messages: list[dict[str, str]] = [{"role": "system", "content": str(filler(f"system/{number}", 600))}]
        while len(orjson.dumps(self.messages)) < num_bytes:
            self.grow()

    def grow(self) -> None:
        """The model has said something, and a tool has answered."""
        self._turn += 1
        name = f"{self._number}/{self._turn}"
        self.messages.append({"role": "assistant", "content": str(filler(f"reply/{name}", NUM_CHUNKS - 1))})
        self.messages.append({"role": "user", "content": str(filler(f"result/{name}", 140))})

    def body(self, *, num_tokens: int = NUM_CHUNKS) -> bytes:
        """The next call; the reply is the one that ``grow`` will put into the history."""
        reply = str(filler(f"reply/{self._number}/{self._turn + 1}", NUM_CHUNKS - 1))
        return orjson.dumps(
            {
                "model": "mock",
                "messages": self.messages,
                "stream": True,
                "stream_options": {"include_usage": True},
                "max_tokens": num_tokens,
                "replayrig": {"reply": {"role": "assistant", "content": reply}},
            }
        )


def cpu_seconds(pid: int) -> float:
    """CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


async def measure(label: str, url: str, pid: int, streams: int, num_calls: int) -> list[Row]:
    """One load against a running server: first the cold prompts, then the growing conversations."""
    conversations = [Conversation(number) for number in range(streams)]
    async with a_session() as session:
        lags: list[float] = []

        async def call(body: bytes) -> None:
            headers = {"content-type": "application/json"}
            async with session.post(f"{url}/v1/chat/completions", data=body, headers=headers) as response:
                assert response.status == 200, await response.text()
                tail = b""
                while data := await response.content.readany():
                    tail = (tail + data)[-2000:]
            times = orjson.loads(tail.rpartition(b'"replayrig":')[2].partition(b"}")[0] + b"}")
            lags.append(times["delivered_at"] - times["last_token_at"])

        async def talk(conversation: Conversation, bodies: list[bytes]) -> None:
            for body in bodies:
                await call(body)

        async def run(name: str, bodies: list[list[bytes]], num_chunks: int) -> Row:
            cpu, began = cpu_seconds(pid), time.perf_counter()
            await asyncio.gather(*(talk(one, own) for one, own in zip(conversations, bodies, strict=True)))
            elapsed = time.perf_counter() - began
            count = sum(map(len, bodies))
            lag = sorted(lags)[int(0.99 * (len(lags) - 1))]
            lags.clear()
            async with session.get(f"{url}/v1/models") as response:
                scale = float(response.headers.get("x-replayrig-time-scale", "1"))
            return Row(
                label=name,
                streams=streams,
                calls=count,
                cpu_ms_per_call=(cpu_seconds(pid) - cpu) / count * 1000,
                chunks_per_s=num_chunks * count / elapsed,
                lag_p99_ms=lag / scale * 1000,
            )

        cold = [[one.body(num_tokens=1)] for one in conversations]
        rows = [await run(f"{label}, cold prompt", cold, 1)]
        grown: list[list[bytes]] = [[] for _ in conversations]
        for conversation, bodies in zip(conversations, grown, strict=True):
            for _ in range(num_calls):
                bodies.append(conversation.body())
                conversation.grow()
        rows.append(await run(label, grown, NUM_CHUNKS))
        return rows


@asynccontextmanager
async def a_server(*flags: str) -> AsyncIterator[tuple[str, int]]:
    """A server of its own, in a process of its own: its URL and its process id."""
    command = [sys.executable, "-m", "mockserver", "--port", "0", "--served-model-name", "mock", *flags]
    server = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert server.stdout is not None
    try:
        yield (await server.stdout.readline()).decode().split()[3], server.pid
    finally:
        server.terminate()
        await server.wait()


def a_session() -> aiohttp.ClientSession:
    """A client without limits of its own."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), read_bufsize=1 << 20)


async def metric(session: aiohttp.ClientSession, url: str, name: str) -> float:
    """The sum of a metric's samples."""
    async with session.get(f"{url}/metrics") as response:
        lines = (await response.text()).splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name}{{", f"{name} ")))


def resident_mb(pid: int) -> float:
    """Memory that a process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def small_body(name: str, num_tokens: int, num_prompt_tokens: int = 40, *, stream: bool = True) -> dict[str, object]:
    """A call with a prompt of its own and an answer of a given length."""
    content = str(filler(f"small/{name}", num_prompt_tokens))
    body: dict[str, object] = {"messages": [{"role": "user", "content": content}]}
    body |= {"max_tokens": num_tokens, "ignore_eos": True, "stream": stream, "replayrig": {}}
    return body | ({"stream_options": {"include_usage": True}} if stream else {})


async def calls(streams: list[int], num_calls: int) -> None:
    """CPU per call."""
    print(f"{'':<22}{'streams':>8}{'calls':>8}{'CPU ms/call':>14}{'chunks/s':>12}{'lag p99 ms':>14}")
    for label, scale in (("at once", "10000"), ("paced 5 ms", "0.8")):
        for number in streams:
            async with a_server("--time-scale", scale) as (url, pid):
                for row in await measure(label, url, pid, number, num_calls):
                    print(row.line(), flush=True)


async def decode(streams: int = 128, num_tokens: int = 1500) -> None:
    """The reference's decode rate in real time."""
    async with a_server() as (url, pid), a_session() as session:

        async def one(number: int) -> tuple[float, int]:
            body = small_body(f"decode/{number}", num_tokens)
            tail, reads = b"", 0
            async with session.post(f"{url}/v1/chat/completions", json=body) as response:
                while data := await response.content.readany():
                    tail, reads = (tail + data)[-2000:], reads + 1
            times = orjson.loads(tail.rpartition(b'"replayrig":')[2].partition(b"}")[0] + b"}")
            return (times["last_token_at"] - times["first_token_at"]) / (num_tokens - 1) * 1000, reads

        cpu, began = cpu_seconds(pid), time.perf_counter()
        ended = await asyncio.gather(*(one(number) for number in range(streams)))
        elapsed = time.perf_counter() - began
        share = (cpu_seconds(pid) - cpu) / elapsed
        async with session.get(f"{url}/replayrig/status") as response:
            status = await response.json()
    print(
        f"decode: {streams} streams of {num_tokens} tokens, {streams * num_tokens / elapsed:.0f} tokens/s, "
        f"{max(tpot for tpot, _ in ended):.3f} model ms a token at most, CPU share {share:.2f}, "
        f"lateness p99 {status['lag_p99_s'] * 1000:.1f} ms, "
        f"{streams * num_tokens / sum(reads for _, reads in ended):.1f} tokens a read, "
        f"load average {os.getloadavg()[0]:.1f}",
        flush=True,
    )


SMALL_POOL = ("--num-gpu-blocks-override", "4096", "--max-model-len", "8192")


async def endurance(num_prompt_tokens: int, *flags: str, num_calls: int = 100_000, at_a_time: int = 32) -> None:
    """Memory over many calls, each with a prompt of its own: what is kept of them, and whether it ends."""
    async with a_server("--time-scale", "10000", *flags) as (url, pid), a_session() as session:
        numbers = iter(range(num_calls))
        label = f"endurance: {num_prompt_tokens} tokens a prompt{', a small KV cache' if flags else ''}"

        async def keep_calling() -> None:
            for number in numbers:
                body = small_body(f"endurance/{number}", 8, num_prompt_tokens, stream=number % 2 == 0)
                async with session.post(f"{url}/v1/chat/completions", json=body) as response:
                    assert response.status == 200, await response.text()
                    await response.read()
                if (number + 1) % (num_calls // 10) == 0:
                    print(f"{label}: {number + 1:>7} calls, {resident_mb(pid):7.1f} MB", flush=True)

        await asyncio.gather(*(keep_calling() for _ in range(at_a_time)))
        left = await metric(session, url, "vllm:num_requests_running")
        print(f"{label}: {left:.0f} running, KV {await metric(session, url, 'vllm:kv_cache_usage_perc'):.3f}")


async def leavers(num_clients: int = 200) -> None:
    """Clients that are killed in mid-stream, all at once."""
    async with a_server("--max-num-seqs", "256") as (url, _), a_session() as session:

        async def begin(number: int) -> aiohttp.ClientResponse:
            body = small_body(f"leaver/{number}", 5000)
            response = await session.post(f"{url}/v1/chat/completions", json=body)
            await response.content.readany()
            return response

        responses = await asyncio.gather(*(begin(number) for number in range(num_clients)))
        running = await metric(session, url, "vllm:num_requests_running")
        began = time.perf_counter()
        for response in responses:
            response.close()
        while await metric(session, url, "vllm:num_requests_running"):
            pass
        elapsed = time.perf_counter() - began
        usage = await metric(session, url, "vllm:kv_cache_usage_perc")
    print(f"leavers: {running:.0f} running, none {elapsed * 1000:.0f} ms after all had gone; KV usage {usage}")


async def idle(num_connections: int = 5000) -> None:
    """Connections that say nothing."""
    async with a_server() as (url, pid), a_session() as session:
        before = resident_mb(pid)
        host, _, port = url.removeprefix("http://").partition(":")
        opened = [await asyncio.open_connection(host, int(port)) for _ in range(num_connections)]
        cpu, began = cpu_seconds(pid), time.perf_counter()
        async with session.post(f"{url}/v1/chat/completions", json=small_body("idle", 8)) as response:
            assert response.status == 200
            await response.read()
        took = time.perf_counter() - began
        await asyncio.sleep(2)
        share = (cpu_seconds(pid) - cpu) / (time.perf_counter() - began)
        print(
            f"idle: {num_connections} connections, {(resident_mb(pid) - before) / num_connections * 1000:.1f} kB each, "
            f"CPU share {share:.3f}, a call among them took {took * 1000:.0f} ms",
            flush=True,
        )
        for _, writer in opened:
            writer.close()


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help="one of those above; all when nothing is said")
    parser.add_argument("--streams", type=int, nargs="+", default=[16, 48, 128])
    parser.add_argument("--calls", type=int, default=6, help="calls of each conversation")
    given = parser.parse_args()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    parts: dict[str, Callable[[], Coroutine[None, None, None]]] = {
        "calls": lambda: calls(given.streams, given.calls),
        "decode": decode,
        "endurance": lambda: endurance(1000),
        "endurance-tiny-calls": lambda: endurance(40),
        "endurance-small-cache": lambda: endurance(40, *SMALL_POOL),
        "leavers": leavers,
        "idle": idle,
    }
    for name in given.what or parts:
        if name not in parts:
            parser.error(f"{name} is none of {', '.join(parts)}")
        asyncio.run(parts[name]())


if __name__ == "__main__":
    main()
