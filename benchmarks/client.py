"""What a call costs on the client's side, and what the client makes of a known truth.

    python -m benchmarks.client [--streams 16 48] [--calls 600] [--clients replayrig openai aiperf]

Each client runs in a process of its own against the same server (benchmarks/known_timing.py): 62 KB prompts, first
token at 50 ms, then one every 5 ms, 53 in all. Printed: CPU milliseconds per call, and the TTFT and TPOT reported.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import resource
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from benchmarks.known_timing import FIRST_TOKEN_S, NUM_TOKENS, TOKEN_GAP_S
from mockserver import huge_pages

PROMPT_BYTES = 62_000
_WARM_UP_CALLS_PER_STREAM = 1


def _messages() -> list[dict[str, Any]]:
    """A history of 62 KB in 94 messages, as an agent's after some thirty turns."""
    text = "word " * (PROMPT_BYTES // 94 // 5 - 10)
    return [{"role": ("user", "assistant")[k % 2], "content": text} for k in range(94)]


async def _replayrig(url: str, num_calls: int, num_streams: int) -> dict[str, Any]:
    from loadgen.call import Call
    from loadgen.context import Conversation
    from loadgen.target import Target
    from loadgen.transports.http import HttpTransport
    from mockserver.clock import WallClock

    # scripted=False: a server that is not ours gets no recorded reply.
    async with HttpTransport(Target(base_url=url, model="m", scripted=False), WallClock()) as transport:

        async def stream(number: int, count: int) -> list[tuple[float, float]]:
            conversation = Conversation(messages=_messages())
            rows = []
            for k in range(count):
                call = Call(
                    call_id=f"{number}#{k}",
                    task_id="t",
                    agent_id=str(number),
                    conversation=conversation,
                    reply={"role": "assistant", "content": ""},
                    num_output_tokens=NUM_TOKENS,
                )
                answer = await transport.complete(call)
                assert answer.error is None, answer.error
                assert answer.first_token_at is not None
                assert answer.last_token_at is not None
                assert answer.num_output_tokens == NUM_TOKENS
                ttft_s = answer.first_token_at - answer.sent_at
                rows.append((ttft_s, (answer.last_token_at - answer.first_token_at) / (NUM_TOKENS - 1)))
            return rows

        return await _measure(stream, num_calls, num_streams)


async def _openai(url: str, num_calls: int, num_streams: int) -> dict[str, Any]:
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:

        async def stream(number: int, count: int) -> list[tuple[float, float]]:
            messages: Any = _messages()
            rows = []
            for _ in range(count):
                sent_at = time.perf_counter()
                first_at = last_at = 0.0
                answer = await client.chat.completions.create(
                    model="m", messages=messages, stream=True, stream_options={"include_usage": True}
                )
                async for chunk in answer:
                    if chunk.choices and chunk.choices[0].delta.content:
                        last_at = time.perf_counter()
                        first_at = first_at or last_at
                rows.append((first_at - sent_at, (last_at - first_at) / (NUM_TOKENS - 1)))
            return rows

        return await _measure(stream, num_calls, num_streams)


async def _measure(
    stream: Callable[[int, int], Awaitable[list[tuple[float, float]]]], num_calls: int, num_streams: int
) -> dict[str, Any]:
    await asyncio.gather(*(stream(k, _WARM_UP_CALLS_PER_STREAM) for k in range(num_streams)))
    count = max(1, num_calls // num_streams)
    started_at, cpu_started_at = time.perf_counter(), time.process_time()
    rows = [row for rows in await asyncio.gather(*(stream(k, count) for k in range(num_streams))) for row in rows]
    cpu_s, elapsed_s = time.process_time() - cpu_started_at, time.perf_counter() - started_at
    ttft, tpot = np.array(rows).T
    return {
        "calls": len(rows),
        "cpu_ms_per_call": 1000 * cpu_s / len(rows),
        "ttft_p50_ms": 1000 * float(np.percentile(ttft, 50)),
        "ttft_p99_ms": 1000 * float(np.percentile(ttft, 99)),
        "tpot_p50_ms": 1000 * float(np.percentile(tpot, 50)),
        "calls_per_s": len(rows) / elapsed_s,
    }


_CLIENTS = {"replayrig": _replayrig, "openai": _openai}


def _one(name: str, url: str, num_calls: int, num_streams: int) -> None:
    """In a process of its own: measure one client and print it as JSON."""
    with contextlib.suppress(ImportError):
        import uvloop

        uvloop.install()
    print(json.dumps(asyncio.run(_CLIENTS[name](url, num_calls, num_streams))))


def _aiperf(url: str, num_calls: int, num_streams: int) -> dict[str, Any]:
    """AIPerf's own figures are in its report; here only what it costs: all its processes' CPU, start included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [
            *("aiperf", "profile", "--url", url, "--model", "m", "--endpoint-type", "chat", "--streaming"),
            *("--concurrency", str(num_streams), "--request-count", str(num_calls), "--tokenizer", "builtin"),
            *("--synthetic-input-tokens-mean", "15500", "--ui", "none"),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"calls": num_calls, "cpu_ms_per_call": 1000 * cpu_s / num_calls}


def main() -> None:
    """Start the server, run each client, print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, nargs="+", default=[16, 48])
    parser.add_argument("--calls", type=int, default=600)
    parser.add_argument("--clients", nargs="+", default=["replayrig", "openai", "aiperf"])
    parser.add_argument("--one", nargs=4, metavar=("NAME", "URL", "CALLS", "STREAMS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, url, num_calls, num_streams = options.one
        _one(name, url, int(num_calls), int(num_streams))
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(huge_pages.command("benchmarks.known_timing", str(port)), env=huge_pages.environ())
    try:
        time.sleep(1)
        truth = f"{1000 * FIRST_TOKEN_S:.1f} ms, TPOT {1000 * TOKEN_GAP_S:.2f} ms"
        print(f"the truth: TTFT {truth}, {NUM_TOKENS} tokens, prompts of {PROMPT_BYTES // 1000} KB")
        for num_streams in options.streams:
            for name in options.clients:
                print(
                    f"{num_streams:>4} streams  {name:<10} {_told(name, port, options.calls, num_streams)}", flush=True
                )
    finally:
        server.terminate()
        server.wait()


def _told(name: str, port: int, num_calls: int, num_streams: int) -> str:
    url = f"http://127.0.0.1:{port}"
    if name == "aiperf":
        if importlib.util.find_spec("aiperf") is None:
            return "not installed"
        result = _aiperf(url, num_calls, num_streams)
        return f"{result['cpu_ms_per_call']:7.2f} ms CPU per call"
    command = huge_pages.command("benchmarks.client", "--one", name, url, str(num_calls), str(num_streams))
    done = subprocess.run(command, check=True, env=huge_pages.environ(), stdout=subprocess.PIPE)
    result = json.loads(done.stdout)
    return (
        f"{result['cpu_ms_per_call']:7.2f} ms CPU per call   TTFT p50 {result['ttft_p50_ms']:8.1f} p99 "
        f"{result['ttft_p99_ms']:8.1f} ms   TPOT p50 {result['tpot_p50_ms']:6.3f} ms   "
        f"{result['calls_per_s']:6.1f} calls/s"
    )


if __name__ == "__main__":
    main()
