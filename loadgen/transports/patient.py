"""What stands between agents and a transport: a cap on calls in flight, and another try where the server was busy."""

from __future__ import annotations

import asyncio
import math
import random
from dataclasses import dataclass, replace

from loadgen.call import Call, Completion, Transport
from mockserver.clock import Clock

_FIRST_BACKOFF_S = 0.5
_LONGEST_BACKOFF_S = 30.0


@dataclass(eq=False, slots=True)
class CappedTransport:
    """At most so many calls at once; the others wait here, which counts as dispatch delay."""

    inner: Transport
    slots: asyncio.Semaphore

    async def complete(self, call: Call) -> Completion:
        """Send ``call`` when there is room."""
        async with self.slots:
            return await self.inner.complete(call)


@dataclass(eq=False, slots=True)
class RetryingTransport:
    """Sends a call again after 429, 503 or a stale connection: later and later, or when the server says so.

    The completion is the last try's, so that its times are those of an answer; the tries before it are counted, and the
    time they took lies between due and sent.
    """

    inner: Transport
    clock: Clock
    max_retries: int
    seed: int = 0

    async def complete(self, call: Call) -> Completion:
        """Send ``call`` until it is answered, refused for good, or tried often enough."""
        for num_retries in range(self.max_retries + 1):
            completion = await self.inner.complete(call)
            if not completion.is_retryable or num_retries == self.max_retries:
                break
            # The server's clock on the wall is real, whatever scale the run has.
            rate = self.clock.rate if self.clock.rate < math.inf else 1.0
            await self.clock.sleep_until(self.clock.now() + self._wait_s(call, completion, num_retries) * rate)
        return replace(completion, num_retries=num_retries) if num_retries else completion

    def _wait_s(self, call: Call, completion: Completion, num_retries: int) -> float:
        if completion.retry_after_s is not None:
            return completion.retry_after_s
        if completion.status is None:
            return 0.0  # a stale connection: the next one is new
        longest = min(_LONGEST_BACKOFF_S, _FIRST_BACKOFF_S * 2.0**num_retries)
        return longest * random.Random(f"{self.seed}/retry/{call.call_id}/{num_retries}").uniform(0.5, 1.0)
