"""The server: paths to handlers, errors to answers, keys, and a life from listening to the last stream's end."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from aiohttp import web

from mockserver.api import (
    anthropic,
    chat,
    completions,
    generate,
    held_clock,
    info,
    openapi,
    responses,
    scale_out,
    sleep,
    status,
)
from mockserver.api.errors import ApiError, Detail, Unauthorized
from mockserver.api.http import HttpRequest, json_response, read_json
from mockserver.api.listener import Listener
from mockserver.api.machine import Machine
from mockserver.api.settings import ServerSettings
from mockserver.clock import Clock, WallClock, real_seconds

Handler = Callable[[web.BaseRequest, Machine], Awaitable[web.StreamResponse]]

_ROUTES: dict[str, dict[str, Handler]] = {
    "/v1/chat/completions": {"POST": chat.chat_completions},
    "/v1/completions": {"POST": completions.completions},
    "/v1/chat/completions/batch": {"POST": scale_out.batch},
    "/v1/responses": {"POST": responses.responses},
    "/v1/messages": {"POST": anthropic.messages},
    "/v1/messages/count_tokens": {"POST": anthropic.count_tokens},
    "/v1/models": {"GET": info.models},
    "/health": {"GET": info.empty},
    "/ping": {"GET": info.empty, "POST": info.empty},
    "/version": {"GET": info.version},
    "/docs": {"GET": openapi.swagger},
    "/redoc": {"GET": openapi.redoc},
    "/metrics": {"GET": info.metrics, "POST": info.mounted_metrics},
    "/metrics/": {"GET": info.mounted_metrics},
    "/load": {"GET": info.load},
    "/replayrig/status": {"GET": status.status},
    "/kv_event_sources": {"GET": scale_out.kv_event_sources},
    "/tokenize": {"POST": info.tokenize},
    "/detokenize": {"POST": info.detokenize},
}


async def _invocations(request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """``/invocations``: SageMaker's one door to all endpoints."""
    data = await read_json(request)
    is_chat = isinstance(data, dict) and "messages" in data
    return await (chat.chat_completions if is_chat else completions.completions)(request, machine)


_ROUTES["/invocations"] = {"POST": _invocations}
_STORED_RESPONSES: dict[str, Handler] = {"GET": responses.stored_response}
_SCALE_OUT_ROUTES: dict[str, dict[str, Handler]] = {
    "/v1/chat/completions/render": {"POST": scale_out.render_chat},
    "/v1/completions/render": {"POST": scale_out.render_completion},
    "/v1/chat/completions/derender": {"POST": scale_out.derender},
    "/v1/completions/derender": {"POST": scale_out.derender},
    "/inference/v1/generate": {"POST": generate.generate},
    "/inference/v1/abort_requests": {"POST": scale_out.abort_generations},
}
_DEV_ROUTES: dict[str, dict[str, Handler]] = {
    "/reset_prefix_cache": {"POST": info.reset_prefix_cache},
    "/reset_mm_cache": {"POST": info.empty},
    "/reset_encoder_cache": {"POST": info.empty},
    "/sleep": {"POST": sleep.sleep},
    "/wake_up": {"POST": sleep.wake_up},
    "/is_sleeping": {"GET": sleep.is_sleeping},
    "/pause": {"POST": sleep.pause},
    "/resume": {"POST": sleep.resume},
    "/is_paused": {"GET": sleep.is_paused},
    "/server_info": {"GET": info.server_info},
    "/abort_requests": {"POST": scale_out.abort_requests},
    "/replayrig/clock": {"PUT": held_clock.held_clock, "DELETE": held_clock.held_clock},
    "/replayrig/faults": {"GET": info.faults, "PUT": info.faults, "DELETE": info.faults},
}
_GUARDED_PREFIXES = ("/v1", "/v2", "/inference", "/cohere")
_GENERATING_PATHS = frozenset(
    ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/invocations")
)
_UNCOUNTED_PATHS = frozenset(("/metrics", "/health", "/load", "/ping", "/version", "/server_info", "/replayrig/status"))
_log = logging.getLogger("mockserver")


class App:
    """Answers requests for one machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        settings = machine.settings
        self._routes = {**_ROUTES, **(_DEV_ROUTES if settings.dev_mode else {})}
        for path, methods in _SCALE_OUT_ROUTES.items():
            self._routes[path] = methods if settings.enable_scale_out else dict.fromkeys(methods, scale_out.disabled)
        self._routes["/openapi.json"] = {"GET": self._describe}
        self._key_digests = [hashlib.sha256(key.encode()).digest() for key in settings.api_key]

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request, whatever it is."""
        assert isinstance(request, HttpRequest)
        began_at = real_seconds()
        response = await self._answer(request)
        self._count(request, response, real_seconds() - began_at)
        return response

    async def _answer(self, request: HttpRequest) -> web.StreamResponse:
        machine = self.machine
        try:
            if self._key_digests and request.method != "OPTIONS" and request.path.startswith(_GUARDED_PREFIXES):
                self._check_key(request)
            if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
                request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            handler = self._handler(request)
            if request.path in _GENERATING_PATHS and not machine.door.is_set():
                await machine.door.wait()
            fault = machine.faults.draw(request.headers) if request.path in _GENERATING_PATHS else None
            if fault is None:
                response = await handler(request, machine)
            else:
                request.fault = fault
                response = machine.faults.instead_of_answer(fault, request) or await machine.faults.spoil(
                    fault, request, await handler(request, machine)
                )
        except ApiError as error:
            response = json_response(error.body(), status=error.status, headers=error.headers)
            headers = machine.headers(request)
            if isinstance(error, Unauthorized):
                del headers["Vary"]  # keys are checked before anything else
            response.headers.update(headers)
            return response
        except web.HTTPRequestEntityTooLarge as error:
            response = json_response(_too_large(error).body(), status=413)
        except ConnectionError:
            response = web.Response()  # the client has gone: nobody will read it
        except asyncio.CancelledError:
            raise
        except Exception:
            _log.exception("%s %s failed", request.method, request.path)
            failure = ApiError("Internal server error", status=500, type="InternalServerError")
            response = json_response(failure.body(), status=500)
        if not response.prepared:
            response.headers.update({**machine.headers(request), **response.headers})
        return response

    async def _describe(self, _request: web.BaseRequest, _machine: Machine) -> web.StreamResponse:
        return json_response(openapi.description(self._routes))

    def _handler(self, request: web.BaseRequest) -> Handler:
        if request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
            return info.preflight
        path = request.path
        methods = self._routes.get(path)
        if path == "/" and request.method == "GET" and "text/html" in request.headers.get("Accept", ""):
            return status.page
        if methods is None and path.startswith("/v1/responses/") and path.count("/") <= 4:
            methods = _STORED_RESPONSES if not path.endswith("/cancel") else {"POST": responses.stored_response}
        if methods is None:
            other = path[:-1] if path.endswith("/") else f"{path}/"
            if path != "/" and other in self._routes:
                return _redirect_to(other)
            raise Detail(HTTPStatus.NOT_FOUND)
        handler = methods.get(request.method)
        if handler is None:
            raise Detail(HTTPStatus.METHOD_NOT_ALLOWED, headers={"allow": next(iter(methods))})
        return handler

    def _check_key(self, request: web.BaseRequest) -> None:
        scheme, _, key = request.headers.get("Authorization", "").partition(" ")
        digest = hashlib.sha256(key.encode(errors="surrogateescape")).digest()
        known = [hmac.compare_digest(digest, one) for one in self._key_digests]
        if scheme.lower() != "bearer" or not any(known):
            raise Unauthorized

    def _count(self, request: web.BaseRequest, response: web.StreamResponse, duration_s: float) -> None:
        if self.machine.settings.access_log:
            _log.info("%s %s %d %.1f ms", request.method, request.path, response.status, duration_s * 1000)
        path = request.path
        if path in _UNCOUNTED_PATHS:
            return
        self.machine.metrics.http.count(
            handler=path if path in self._routes else "none",
            method=request.method,
            status=response.status,
            num_request_bytes=request.content_length or 0,
            num_response_bytes=response.content_length or 0,
            duration_s=duration_s,
        )


def _redirect_to(path: str) -> Handler:
    async def redirect(request: web.BaseRequest, _machine: Machine) -> web.StreamResponse:
        query = f"?{request.query_string}" if request.query_string else ""
        location = f"http://{request.host}{path}{query}"
        return web.Response(status=307, body=b"", headers={"location": location})

    return redirect


def _too_large(error: web.HTTPRequestEntityTooLarge) -> ApiError:
    return ApiError(error.text or "Request body too large", status=413, type="Request Entity Too Large")


class RunningServer:
    """A server that listens; stop it with ``stop``."""

    def __init__(self, app: App, server: web.Server, listener: asyncio.Server, driver: asyncio.Task[None]) -> None:
        self.app = app
        self._server = server
        self._listener = listener
        self._driver = driver

    @property
    def base_url(self) -> str:
        """Where it listens."""
        host, port = self._listener.sockets[0].getsockname()[:2]
        shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
        return f"http://{shown}:{port}"

    async def until_failure(self) -> None:
        """Return only if the engine fails; the error is its own."""
        await asyncio.shield(self._driver)

    async def stop(self) -> None:
        """Take no more connections, let running answers end within the grace period, then abort the rest."""
        self._listener.close()
        self._server.pre_shutdown()
        machine = self.app.machine
        clock = WallClock()
        grace_s = machine.settings.grace_period
        due_at = 0.0
        while machine.num_in_flight and due_at < grace_s and not self._driver.done():
            due_at += 0.02
            await clock.sleep_until(due_at)
        for request_id in list(machine.live_request_ids):
            machine.driver.abort(request_id)
        await self._server.shutdown(timeout=1.0)
        self._driver.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._driver


async def start(settings: ServerSettings, *, clock: Clock | None = None) -> RunningServer:
    """Make a machine and listen."""
    machine = Machine(settings, clock or WallClock(settings.time_scale))
    machine.warm_up()
    app = App(machine)
    server = Listener(app, settings)
    driver = asyncio.create_task(machine.driver.run(), name="mockserver driver")
    try:
        listener = await asyncio.get_running_loop().create_server(server, settings.host, settings.port, backlog=4096)
    except BaseException:
        driver.cancel()
        raise
    return RunningServer(app, server, listener, driver)


@asynccontextmanager
async def serve(settings: ServerSettings) -> AsyncIterator[str]:
    """A running server's base URL: for tests, and for programs that want a server of their own."""
    server = await start(settings)
    try:
        yield server.base_url
    finally:
        await server.stop()
