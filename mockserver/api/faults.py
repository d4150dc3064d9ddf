"""Faults on demand: what a client meets when a server, a gateway or a network fails.

Each kind befalls a share of the requests, drawn from the seed, or exactly the requests that name it in a header. The
shares can be changed while the server runs (``/replayrig/faults``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from aiohttp import web

from mockserver.api.errors import ApiError
from mockserver.api.http import Fault, frame, read_json
from mockserver.clock import Clock

HEADER = "x-replayrig-fault"
RETRY_AFTER_S = 1
_DEFAULT_SECONDS = {"stall": 5.0, "slow-first-token": 5.0}
KINDS = ("429", "500", "503", "reset", "stall", "truncate", "malformed", "slow-first-token")
_MESSAGES = {
    "429": ("Rate limit reached. Please try again later.", "Too Many Requests"),
    "500": ("Internal server error", "InternalServerError"),
    "503": ("Service unavailable. Please try again later.", "Service Unavailable"),
}
_MALFORMED_EVENT = b'data: {"id":"chatcmpl-0","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"con\n\n'


class FaultError(ValueError):
    """Whoever asks for a fault that does not exist meets this; one line says what would be right."""


def checked_fault(*, kind: str, share: float, seconds: float | None = None) -> Fault:
    """A fault that makes sense, or FaultError."""
    if kind not in KINDS:
        raise FaultError(f"unknown fault {kind!r}: known are {', '.join(KINDS)}")
    if not 0.0 <= share <= 1.0:
        raise FaultError(f"the share of fault {kind} must be in [0, 1], got {share}")
    seconds = _DEFAULT_SECONDS.get(kind, 0.0) if seconds is None else seconds
    if not 0.0 <= seconds < float("inf"):
        raise FaultError(f"the seconds of fault {kind} must be a number from 0 on, got {seconds}")
    return Fault(kind=kind, share=share, seconds=seconds)


def parsed_fault(text: str) -> Fault:
    """``KIND``, ``KIND=SHARE`` or ``KIND=SHARE:SECONDS``."""
    kind, _, rest = text.strip().partition("=")
    share, _, seconds = rest.partition(":")
    try:
        numbers = float(share or 1.0), float(seconds) if seconds else None
    except ValueError:
        raise FaultError(f"a fault is KIND=SHARE or KIND=SHARE:SECONDS, got {text!r}") from None
    return checked_fault(kind=kind, share=numbers[0], seconds=numbers[1])


class Faults:
    """Which faults befall whom."""

    def __init__(self, faults: Iterable[Fault], *, seed: int, clock: Clock) -> None:
        self._clock = clock
        self._random = Random(f"{seed}/faults")
        self._fault_by_kind: dict[str, Fault] = {}
        self.num_by_kind: Counter[str] = Counter()
        """Faults that happened."""
        self.set(faults)

    def set(self, faults: Iterable[Fault]) -> None:
        """From now on these, and no others."""
        wanted = {fault.kind: fault for fault in faults if fault.share > 0.0}
        if sum(fault.share for fault in wanted.values()) > 1.0:
            raise FaultError("the shares of all faults together must be at most 1")
        self._fault_by_kind = wanted

    def shown(self) -> dict[str, Any]:
        """What is set, and what has happened."""
        return {
            "faults": {
                kind: {"share": fault.share, "seconds": fault.seconds} for kind, fault in self._fault_by_kind.items()
            },
            "happened": dict(self.num_by_kind),
        }

    def draw(self, headers: Mapping[str, str]) -> Fault | None:
        """What befalls a request with these headers."""
        named = headers.get(HEADER)
        if named is not None:
            try:
                kind, _, seconds = named.partition("=")
                fault = parsed_fault(f"{kind}=1:{seconds}" if seconds else kind)
            except FaultError as error:
                raise ApiError(f"{HEADER}: {error}") from None
        else:
            drawn = self._drawn()
            if drawn is None:
                return None
            fault = drawn
        self.num_by_kind[fault.kind] += 1
        return fault

    def _drawn(self) -> Fault | None:
        if not self._fault_by_kind:
            return None
        point = self._random.random()
        for fault in self._fault_by_kind.values():
            point -= fault.share
            if point < 0.0:
                return fault
        return None

    def instead_of_answer(self, fault: Fault, request: web.BaseRequest) -> web.Response | None:
        """An error or a reset in the answer's place; None where the fault comes later."""
        if fault.kind in _MESSAGES:
            message, error_type = _MESSAGES[fault.kind]
            headers = {"Retry-After": str(RETRY_AFTER_S)} if fault.kind == "429" else None
            raise ApiError(message, status=int(fault.kind), type=error_type, headers=headers)
        return _cut_off(request) if fault.kind == "reset" else None

    async def spoil(self, fault: Fault, request: web.BaseRequest, response: web.StreamResponse) -> web.StreamResponse:
        """What becomes of an answer that is not streamed."""
        if response.prepared or not isinstance(response, web.Response) or not isinstance(response.body, bytes):
            return response
        await self.wait(fault)
        if fault.kind == "truncate":
            return _cut_off(request)
        if fault.kind == "malformed":
            response.body = response.body[: len(response.body) // 2]
        return response

    async def wait(self, fault: Fault) -> None:
        """Let the fault's time pass."""
        if fault.seconds:
            await self._clock.sleep_until(self._clock.now() + fault.seconds)


def _cut_off(request: web.BaseRequest) -> web.Response:
    """Break the connection; what is returned never arrives."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


class StreamFault:
    """A fault on its way through a stream of events: acts between its writes."""

    def __init__(self, fault: Fault, faults: Faults) -> None:
        self._fault = fault
        self._faults = faults
        self._num_writes = 0

    async def spoiled(self, data: bytes, *, is_chunked: bool) -> bytes:
        """What is written in place of ``data``."""
        number = self._num_writes
        self._num_writes += 1
        kind = self._fault.kind
        if (kind == "slow-first-token" and number == 0) or (kind == "stall" and number == 1):
            await self._faults.wait(self._fault)
        elif kind == "truncate":
            if number:
                await self.close()
            return data[: len(data) // 2]
        elif kind == "malformed" and number == 0:
            return b"".join(frame((_MALFORMED_EVENT,)) if is_chunked else (_MALFORMED_EVENT,)) + data
        return data

    async def close(self) -> None:
        """A truncated stream has no end, and one that was written in one go stalls before it."""
        if self._fault.kind == "truncate":
            raise ConnectionResetError("a fault that was asked for")
        if self._fault.kind == "stall" and self._num_writes == 1:
            await self._faults.wait(self._fault)


async def show_faults(request: web.BaseRequest, faults: Faults) -> dict[str, Any]:
    """``GET``, ``PUT`` and ``DELETE /replayrig/faults``: what is set, or is set by the request."""
    if request.method == "PUT":
        try:
            faults.set(faults_from_json(await read_json(request)))
        except FaultError as error:
            raise ApiError(str(error)) from None
    elif request.method == "DELETE":
        faults.set(())
    return faults.shown()


def faults_from_json(data: Any) -> list[Fault]:
    """``{"429": 0.1, "stall": {"share": 0.05, "seconds": 3}}`` as faults."""
    if not isinstance(data, dict):
        raise FaultError("faults are an object of shares by kind")
    faults = []
    for kind, value in data.items():
        table = value if isinstance(value, dict) else {"share": value}
        if set(table) - {"share", "seconds"} or not all(
            isinstance(number, int | float) and not isinstance(number, bool) for number in table.values()
        ):
            raise FaultError(f"fault {kind!r} must be a share or an object of share and seconds, got {value!r}")
        faults.append(checked_fault(kind=kind, share=table.get("share", 1.0), seconds=table.get("seconds")))
    return faults
