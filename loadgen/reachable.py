"""A server that is gone stops the run: what failed because nobody was there says nothing about the server.

A call whose connection failed is looked into: where the server can be reached, the call has failed and is recorded;
where it cannot, the run stops, the call is as if it had never been sent, and the run can be resumed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from loadgen.call import Call, Completion, Transport
from loadgen.target import TargetError, one_line
from mockserver.clock import WallClock, real_seconds

_PAUSE_S = 0.5
_ANSWER_TIMEOUT_S = 10.0


@dataclass(eq=False, slots=True, kw_only=True)
class CheckedTransport:
    """Sends calls to a server that is asked for where one of them breaks off."""

    inner: Transport
    url: str
    patience_s: float = 0.0
    """Real seconds to wait for a server that does not answer; 0: ask once."""
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _seen_at: float = 0.0

    async def complete(self, call: Call) -> Completion:
        """Send ``call``. Raises TargetError where the server is gone."""
        completion = await self.inner.complete(call)
        # A refusal comes from somebody; what breaks off without one, or in the middle, may be the server's end.
        if completion.error is not None and completion.status in (None, 200):
            broke_off_at = real_seconds()
            async with self._asking:  # once for all calls that break off together
                if self._seen_at <= broke_off_at:
                    await self._look(completion.error)
        return completion

    async def _look(self, error: str) -> None:
        """Return when the server says something."""
        clock = WallClock()
        while True:
            try:
                await self._ask()
            except OSError as refusal:
                if clock.now() >= self.patience_s:
                    waited = f" for {self.patience_s:g} s" if self.patience_s else ""
                    raise TargetError(
                        f"{self.url} does not answer any more{waited} ({one_line(refusal)}; a call ended with {error})"
                    ) from None
            else:
                self._seen_at = real_seconds()
                return
            await clock.sleep_until(clock.now() + _PAUSE_S)

    async def _ask(self) -> None:
        """Any answer will do; a port that only takes connections may be that of a process which is dying."""
        parts = urlsplit(self.url)
        is_tls = parts.scheme == "https"
        port = parts.port or (443 if is_tls else 80)
        async with asyncio.timeout(_ANSWER_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=is_tls or None)
            try:
                writer.write(f"GET /v1/models HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n".encode())
                if not await reader.read(1):
                    raise ConnectionResetError("it takes connections and says nothing")
            finally:
                writer.close()
