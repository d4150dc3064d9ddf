"""What the server costs: CPU per call, chunks per second, and how late tokens leave.

    python -m benchmarks.server [--streams 16 48 128] [--calls 6]

Each stream is a conversation that starts at about 62 KB and grows by one turn a call; each call streams 53 chunks.
``at once``: the model is so fast that all chunks are due together. ``paced``: a chunk every 5 ms. A cold prompt, which
has to be tokenised as a whole, is measured apart.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
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
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, read_bufsize=1 << 20) as session:
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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, nargs="+", default=[16, 48, 128])
    parser.add_argument("--calls", type=int, default=6, help="calls of each conversation")
    given = parser.parse_args()
    print(f"{'':<22}{'streams':>8}{'calls':>8}{'CPU ms/call':>14}{'chunks/s':>12}{'lag p99 ms':>14}")
    for label, scale in (("at once", "10000"), ("paced 5 ms", "0.8")):
        for streams in given.streams:
            command = [sys.executable, "-m", "mockserver", "--port", "0", "--time-scale", scale]
            command += ["--served-model-name", "mock"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
                assert server.stdout is not None
                url = server.stdout.readline().split()[3]
                for row in asyncio.run(measure(label, url, server.pid, streams, given.calls)):
                    print(row.line(), flush=True)
                server.terminate()


if __name__ == "__main__":
    main()
