"""Sends recorded requests to servers of our own, as raw HTTP, and brings the answers back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from mockserver.api.app import serve
from mockserver.api.settings import ServerSettings
from tests.wire_contract.aim import aimed, unaimed
from tests.wire_contract.exchange import Answer, Exchange, Sent
from tests.wire_contract.rules import difference

TIME_SCALE = 20.0
SLOW_TIME_SCALE = 4.0
"""For the server that has to keep a request waiting for more than a second."""
_TIMEOUT_S = 60.0
_COMMON = {
    "port": 0,
    "time_scale": TIME_SCALE,
    "grace_period": 0.0,
    "block_size": 32,
    "max_num_batched_tokens": 2048,
    "enable_prompt_tokens_details": True,
    "tool_call_probability": 0.0,  # the recorded model is random: left to itself it calls no tool
}
SERVERS: Mapping[str, Mapping[str, Any]] = {
    "8801": {"served_model_name": ("tiny-qwen3",), "max_model_len": 32_768},
    "8802": {
        "served_model_name": ("tiny-qwen3", "alias-b"),
        "max_model_len": 2048,
        "num_gpu_blocks_override": 100,
        "max_num_seqs": 2,
        "scheduling_policy": "priority",
        "api_key": ("sk-one", "sk-two"),
        "enable_request_id_headers": True,
        "enable_force_include_usage": True,
        "reasoning_parser": "qwen3",
        "sse_keep_alive_interval": 1,
        "max_num_queued_reqs": 8,
        "enable_scale_out": True,
        "dev_mode": False,
        "time_scale": SLOW_TIME_SCALE,
    },
    "8803": {"served_model_name": ("small-qwen3",), "max_model_len": 32_768},
    "8804": {"served_model_name": ("tiny-qwen3",), "max_model_len": 2048, "enable_scale_out": True},
}
"""Flags of the recorded servers, by the port they listened on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One exchange and what came of it."""

    exchange: Exchange
    difference: str | None


async def replay(exchanges: Sequence[Exchange]) -> list[Result]:
    """Replay all exchanges, each recorded server's on a fresh server of its kind."""
    results: list[Result] = []
    for port in sorted({_port(one) for one in exchanges}):
        own = [one for one in exchanges if _port(one) == port]
        async with serve(ServerSettings(**{**_COMMON, **SERVERS[port]})) as base_url:
            for group in _concurrent(own):
                async with backdrop(base_url, group[0]):
                    results += await asyncio.gather(*(_replay_one(one, base_url) for one in group))
    return sorted(results, key=lambda result: result.exchange.label)


def _port(exchange: Exchange) -> str:
    if exchange.port in SERVERS:
        return exchange.port
    return "8801" if exchange.number < 300 else "8802" if exchange.number < 400 else "8803"


def _concurrent(exchanges: Sequence[Exchange]) -> list[list[Exchange]]:
    """Exchanges that overlapped when they were recorded overlap again."""
    groups: list[list[Exchange]] = []
    ended_at = 0.0
    for one in exchanges:
        if groups and groups[-1][-1].began_at <= one.began_at < ended_at and not _needs_backdrop(one):
            groups[-1].append(one)
        else:
            groups.append([one])
            ended_at = 0.0
        ended_at = max(ended_at, one.ended_at)
    return groups


def _needs_backdrop(exchange: Exchange) -> int:
    """How many requests were running meanwhile that the recording does not show."""
    if "keep-alive" in exchange.name:
        return 2
    if exchange.answer.status == 503:
        return 8
    return 1 if "while-running" in exchange.name else 0


@contextlib.asynccontextmanager
async def backdrop(base_url: str, exchange: Exchange) -> AsyncIterator[None]:
    """Other requests that the exchange met: those that filled the batch or the queue, or held blocks."""
    count = _needs_backdrop(exchange)
    body = {
        "messages": [{"role": "user", "content": "keep the server busy"}],
        "max_tokens": 1500,  # 1.5 s: a comment is due while the exchange waits
        "ignore_eos": True,
        "stream": True,
    }
    sent = Sent(
        method="POST",
        path="/v1/chat/completions",
        headers={"Host": "x", "Content-Type": "application/json", "Authorization": "Bearer sk-one"},
        body=body,
    )
    others = [asyncio.create_task(_send(sent, base_url, leave_after=None)) for _ in range(count)]
    if others:
        await asyncio.sleep(0.2)
    try:
        yield
    finally:
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)


async def _replay_one(exchange: Exchange, base_url: str) -> Result:
    async def ask(body: dict[str, Any]) -> Answer:
        return await _send(replace(exchange.sent, body=body), base_url, leave_after=None)

    sent = replace(exchange.sent, body=await aimed(exchange, ask))
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            answer = await _send(sent, base_url, leave_after=exchange.num_lines_before_leaving)
    except (TimeoutError, OSError, EOFError, ValueError) as error:
        return Result(exchange=exchange, difference=f"no answer: {type(error).__name__} {error}")
    return Result(exchange=exchange, difference=difference(exchange, unaimed(answer)))


async def _send(sent: Sent, base_url: str, *, leave_after: int | None) -> Answer:
    address = urlsplit(base_url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=1 << 24)
    try:
        payload = sent.payload()
        headers = {name: value for name, value in sent.headers.items() if name.lower() != "content-length"}
        if payload or sent.method in ("POST", "PUT"):
            headers["Content-Length"] = str(len(payload))
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"{sent.method} {sent.path} HTTP/1.1\r\n{head}\r\n".encode() + payload)
        return await _read_answer(reader, sent.method, leave_after)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _read_answer(reader: asyncio.StreamReader, method: str, leave_after: int | None) -> Answer:
    status = int((await reader.readline()).split()[1])
    headers: dict[str, str] = {}
    while line := (await reader.readline()).decode().rstrip("\r\n"):
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    if method == "HEAD":
        return Answer(status=status, headers=headers, body="", lines=None)
    if headers.get("transfer-encoding") != "chunked":
        body = (await reader.readexactly(int(headers.get("content-length", "0")))).decode()
        return Answer(status=status, headers=headers, body=body, lines=None)
    lines: list[str] = []
    while size := int(await reader.readline(), 16):
        chunk = (await reader.readexactly(size)).decode()
        await reader.readline()
        lines += [line for line in chunk.splitlines() if line]
        if leave_after is not None and len(lines) >= leave_after:
            return Answer(status=status, headers=headers, body=None, lines=tuple(lines[:leave_after]), was_left=True)
    return Answer(status=status, headers=headers, body=None, lines=tuple(lines))
