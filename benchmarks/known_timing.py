"""A server of known timing: the first token 50 ms after the request is there, then one every 5 ms, 53 in all.

It speaks just enough HTTP for chat completions and costs little, so what a client reports beside the truth is the
client's own doing. ``python -m benchmarks.known_timing PORT`` serves until it is terminated.
"""

from __future__ import annotations

import asyncio
import sys
import time

FIRST_TOKEN_S = 0.050
TOKEN_GAP_S = 0.005
NUM_TOKENS = 53

_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n"
    b"server: known-timing\r\n\r\n"
)
_MODELS = b'{"object":"list","data":[{"id":"m","object":"model","created":0,"owned_by":"x","max_model_len":131072}]}'
_START = (
    b'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1764480000,"model":"m",'
    b'"choices":[{"index":0,"delta":'
)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


_ROLE = _chunk(_START + b'{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}\n\n')
_TOKEN = _chunk(_START + b'{"content":" word"},"logprobs":null,"finish_reason":null,"token_ids":null}]}\n\n')
_LAST = _chunk(
    _START + b'{"content":" word"},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}]}\n\n'
)
_END = (
    _chunk(
        b'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1764480000,"model":"m",'
        b'"choices":[],"usage":{"prompt_tokens":15500,"total_tokens":15553,"completion_tokens":53,'
        b'"prompt_tokens_details":{"cached_tokens":0}}}\n\n'
    )
    + _chunk(b"data: [DONE]\n\n")
    + b"0\r\n\r\n"
)


class KnownTiming(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head_end = self._buffer.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = bytes(self._buffer[:head_end]).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        if len(self._buffer) < head_end + 4 + length:
            return
        del self._buffer[: head_end + 4 + length]
        if head.startswith(b"post"):
            self._write(_HEAD)
            self._send_token(0, self._loop.time() + FIRST_TOKEN_S)
        else:
            self._write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(_MODELS)
                + _MODELS
            )

    def _send_token(self, number: int, due_at: float) -> None:
        # Absolute instants, late ones at once: what one wake-up was late does not add up.
        if (left_s := due_at - time.monotonic()) > 0.0005:
            self._loop.call_later(left_s, self._send_token, number, due_at)
            return
        if number == 0:
            self._write(_ROLE + _TOKEN)
        elif number < NUM_TOKENS - 1:
            self._write(_TOKEN)
        else:
            self._write(_LAST + _END)
            return
        self._send_token(number + 1, due_at + TOKEN_GAP_S)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


async def serve(port: int) -> None:
    """Serve on 127.0.0.1 until cancelled."""
    server = await asyncio.get_running_loop().create_server(KnownTiming, "127.0.0.1", port, backlog=1024)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(int(sys.argv[1])))
