"""Odd bodies, odd headers and broken HTTP against a running server.

    python -m tests.mockserver.api.fuzz [NUM_REQUESTS] [SEED]

Nothing may be answered with a 500 that was not asked for, nothing may hang, and when all clients are gone nothing may
be left in the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

import aiohttp

from mockserver.api.anthropic import MessagesRequest
from mockserver.api.app import RunningServer, start
from mockserver.api.generate import GenerateRequest
from mockserver.api.responses import ResponsesRequest
from mockserver.api.schema import ChatRequest, CompletionRequest
from mockserver.api.settings import ServerSettings

_ODD: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**70, -(2**70), 1.5, float("nan"), float("inf")),
    *("", "x", "\ud800", "a\x00b", "😀" * 50, "auto", "required", "none"),
    *([], {}, [[]], [{}], {"a": {}}, [1, 2], ["a"], [None], {"100": 1}, {"abc": 1}),
    {"type": "function", "function": {"name": "f"}},
    [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    [{"type": "function", "function": {"name": "f"}}],
    {"type": "json_object"},
    {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}},
    {"json": {"type": "string"}},
    *({"regex": "("}, {"regex": "a{1000}"}, {"choice": []}, {"choice": ["a"]}, {"grammar": ""}),
    *({"include_usage": True}, {"reply": {"content": "hi"}}, {"reply": {"tool_calls": 5}}, {"reply": 5}),
    *({"reply": {"tool_calls": [{"function": {"name": "f"}}]}}, {"num_output_tokens": 3}),
]
_FIELDS = sorted(
    {
        name
        for model in (ChatRequest, CompletionRequest, ResponsesRequest, MessagesRequest, GenerateRequest)
        for name in model.model_fields
    }
)
_INNER = ["role", "content", "type", "text", "name", "id", "function", "arguments"]
_PATHS = [
    *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"),
    *("/tokenize", "/detokenize", "/v1/chat/completions/batch", "/v1/chat/completions/render"),
    *("/v1/completions/render", "/inference/v1/generate", "/abort_requests", "/reset_prefix_cache"),
]
_HEADERS = ["X-Request-Id", "X-data-parallel-rank", "X-Vllm-Priority", "X-Session-ID", "endpoint-load-metrics-format"]
_NOT_HTTP = [
    b"GARBAGE\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{}",
    b"GET / HTTP/9.9\r\n\r\n",
    b"\x00\xff" * 50,
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET /health HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 70_000 + b"\r\n\r\n",
    b"GET /%ff%fe?x=%zz HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /v1/chat/completions/ HTTP/1.1\r\nHost: \r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n"
    b"Content-Length: 3\r\n\r\nabc",
]
_CONCURRENCY = 40
_TIMEOUT_S = 20.0


@dataclass(eq=False, slots=True)
class Fuzzer:
    """Makes requests, and notes what came of them."""

    rng: Random
    num_by_status: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)

    def value(self, depth: int = 0) -> Any:
        """Any JSON value, more often an odd one than not."""
        point = self.rng.random()
        if point < 0.75 or depth > 3:
            return self.rng.choice(_ODD)
        if point < 0.88:
            return [self.value(depth + 1) for _ in range(self.rng.randint(0, 3))]
        names = [*_FIELDS, *_INNER]
        return {self.rng.choice(names): self.value(depth + 1) for _ in range(self.rng.randint(0, 4))}

    def message(self) -> dict[str, Any]:
        """A chat message, good or odd."""
        roles = ["user", "assistant", "system", "tool", "developer", "robot", "function"]
        contents = ["hi", "", None, [{"type": "text", "text": "x"}], [{"type": "image_url"}], [5], ["s"], self.value()]
        message = {"role": self.rng.choice(roles), "content": self.rng.choice(contents)}
        if self.rng.random() < 0.3:
            name = self.rng.choice(["name", "tool_call_id", "tool_calls", "reasoning_content", "refusal", "author"])
            message[name] = self.value()
        return message

    def body(self) -> bytes:
        """A request body."""
        choose = self.rng.choice
        body: dict[str, Any] = {"max_tokens": choose([1, 3, 5, self.value()]), "model": choose(["mock", None, ""])}
        if self.rng.random() < 0.9:
            messages = [self.message() for _ in range(self.rng.randint(0, 3))]
            body |= {
                "messages": choose([messages] * 9 + [self.value()]),
                "prompt": choose(["x", [1, 2, 3], [[1, 2], [3]], ["a", "b"], self.value()]),
                "input": choose(["x", messages, self.value()]),
                "tokens": choose([[1, 2], [10**8], self.value()]),
                "token_ids": choose([[1, 2], self.value()]),
            }
        for _ in range(self.rng.randint(0, 3)):
            body[choose(_FIELDS)] = self.value()
        text = json.dumps(body)
        if self.rng.random() < 0.1:
            text = text[: self.rng.randint(0, len(text))]
        return text.encode("utf-8", "surrogatepass")

    async def send(self, session: aiohttp.ClientSession, base_url: str) -> None:
        """One request of HTTP's form."""
        path, body = self.rng.choice(_PATHS), self.body()
        method = self.rng.choice(["POST"] * 12 + ["PUT", "GET", "DELETE"])
        headers = {"Content-Type": self.rng.choice(["application/json"] * 9 + ["text/plain"])}
        if self.rng.random() < 0.1:
            headers[self.rng.choice(_HEADERS)] = self.rng.choice(["0", "x", "99", "TEXT", "json", "-1"])
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        try:
            async with session.request(
                method, base_url + path, data=body, headers=headers, timeout=timeout
            ) as response:
                answer = await response.read()
        except TimeoutError:
            self.complaints.append(f"no answer to {method} {path} {body[:500]!r}")
        except aiohttp.ClientError as error:
            self.complaints.append(f"{error!r} after {method} {path} {body[:500]!r}")
        else:
            self.num_by_status[str(response.status)] += 1
            if response.status >= 500 and response.status != 501:  # 501: said to be not served
                self.complaints.append(f"{response.status} to {method} {path} {body[:500]!r}: {answer[:200]!r}")

    async def send_no_http(self, base_url: str) -> None:
        """Something that is no request, or only the start of one."""
        host, _, port = base_url.removeprefix("http://").partition(":")
        data = self.rng.choice([*_NOT_HTTP, self.rng.randbytes(300)])
        reader, writer = await asyncio.open_connection(host, int(port))
        answer = b""
        with contextlib.suppress(TimeoutError, OSError):
            writer.write(data)
            answer = await asyncio.wait_for(reader.read(2000), 0.2)
        writer.close()
        status = answer[9:12].decode("latin-1")
        self.num_by_status[f"no HTTP: {status or 'silence'}"] += 1
        if status.startswith("5"):
            self.complaints.append(f"{answer[:200]!r} to {data[:200]!r}")


async def fuzz(num_requests: int, seed: int) -> Fuzzer:
    """Send requests; complaints are in what is returned."""
    fuzzer = Fuzzer(Random(seed))
    settings = ServerSettings(
        port=0,
        time_scale=500.0,
        served_model_name=("mock",),
        enable_scale_out=True,
        max_model_len=4096,
        grace_period=0.0,
    )
    server = await start(settings)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        for _ in range(0, num_requests, _CONCURRENCY):
            sends = [fuzzer.send(session, server.base_url) for _ in range(_CONCURRENCY - 2)]
            await asyncio.gather(*sends, *(fuzzer.send_no_http(server.base_url) for _ in range(2)))
        await _until_empty(server, fuzzer)
    await server.stop()
    return fuzzer


async def _until_empty(server: RunningServer, fuzzer: Fuzzer) -> None:
    machine = server.app.machine
    for _ in range(100):
        snapshot = machine.driver.snapshot()
        left = (snapshot.num_running, snapshot.num_waiting, snapshot.num_used_blocks, machine.num_in_flight)
        if not any(left):
            break
        await asyncio.sleep(0.05)
    else:
        fuzzer.complaints.append(f"left: running, waiting, blocks, answers = {left}")
    for engine in machine.driver.engines:
        engine.check_invariants()


def main() -> int:
    """Print what was answered and what there is to complain of; 1 if there is anything."""
    numbers = [int(text) for text in sys.argv[1:3]]
    fuzzer = asyncio.run(fuzz(numbers[0] if numbers else 10_000, numbers[1] if len(numbers) > 1 else 0))
    for complaint in fuzzer.complaints:
        print(complaint)
    print(f"{sum(fuzzer.num_by_status.values())} requests, {len(fuzzer.complaints)} complaints")
    print(", ".join(f"{status}: {count}" for status, count in sorted(fuzzer.num_by_status.items())))
    return 1 if fuzzer.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
