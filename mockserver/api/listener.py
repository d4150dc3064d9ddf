"""The socket side: aiohttp's HTTP server with uvicorn's manners towards clients that speak no HTTP, or nothing."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from mockserver.api.http import HttpRequest
from mockserver.api.settings import ServerSettings

_log = logging.getLogger("mockserver.http")


class Connection(RequestHandler):
    """One client's connection."""

    def __init__(self, manager: Listener, **options: Any) -> None:
        super().__init__(manager, loop=asyncio.get_running_loop(), logger=_log, **options)
        self._first_request_timeout_s = manager.settings.header_timeout

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Give the client a while to say what it wants."""
        super().connection_made(transport)
        asyncio.get_running_loop().call_later(self._first_request_timeout_s, self._close_if_silent)

    def _close_if_silent(self) -> None:
        if self._request_count == 0 and self.transport is not None:
            self.transport.close()

    def log_exception(self, *args: Any, **options: Any) -> None:
        """What a client sends is not this server's failure: it is told at the lowest level."""
        _log.debug(*args, **options)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is not HTTP, and hang up."""
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun")
        response = web.Response(
            status=400, text="Invalid HTTP request received.", headers={"Server": "uvicorn", "Connection": "close"}
        )
        response.force_close()
        return response


class Listener(web.Server):
    """Makes connections, and requests that know their limits."""

    def __init__(self, answer: Any, settings: ServerSettings) -> None:
        self.settings = settings
        self._max_bytes = int(settings.max_body_mb * 2**20)
        super().__init__(answer, request_factory=self._new_request, handler_cancellation=True)

    def __call__(self) -> Connection:
        # Compressed bodies stay as they are: uvicorn does not look into them either.
        return Connection(
            self,
            keepalive_timeout=self.settings.keep_alive_timeout,
            access_log=None,
            auto_decompress=False,
        )

    def _new_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> HttpRequest:
        request = HttpRequest(
            message, payload, protocol, writer, task, asyncio.get_running_loop(), client_max_size=self._max_bytes
        )
        request.read_timeout_s = self.settings.header_timeout
        return request
