"""The only place where engine and clock meet: runs the steps when they are due and hands out what they bring.

The loop is anchored: a step ends when the model says so, not when this process wakes. When the process is late, the
steps that are due are worked off before it sleeps again; how late their tokens were handed out is the lag.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from mockserver.clock import Clock
from mockserver.engine.engine import Engine, Snapshot, Step, StepResult
from mockserver.engine.request import Request
from mockserver.lag import LagMeter


@dataclass(frozen=True, slots=True)
class TokenBurst:
    """Tokens that became due since the last look."""

    num_tokens: int
    at: float
    """When the last of them was due, by the model's own time."""
    finished: bool


class Generation:
    """A submitted request: wait for its end, or read its tokens as they come."""

    __slots__ = ("_at", "_num_read", "_waiter", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self._waiter: asyncio.Future[None] | None = None
        self._num_read = 0
        self._at = 0.0

    @property
    def request_id(self) -> str:
        """The request's id."""
        return self.request.request_id

    @property
    def arrived_at(self) -> float:
        """When the request came in."""
        return self.request.arrived_at

    @property
    def scheduled_at(self) -> float | None:
        """When it was first put into a batch."""
        return self.request.scheduled_at

    @property
    def first_token_at(self) -> float | None:
        """When its first token was due."""
        return self.request.first_token_at

    @property
    def last_token_at(self) -> float | None:
        """When its last token was due; None before that, and where it was aborted."""
        return self.request.last_token_at

    @property
    def num_cached_tokens(self) -> int:
        """Prompt tokens that the prefix cache had when it was first admitted."""
        return self.request.num_cached_tokens

    @property
    def num_output_tokens(self) -> int:
        """Output tokens so far."""
        return self.request.num_generated_tokens

    @property
    def num_preemptions(self) -> int:
        """How often it had to give its blocks back."""
        return self.request.num_preemptions

    @property
    def finish_reason(self) -> str | None:
        """Why it ended; None while it has not."""
        return self.request.finish_reason if self.request.is_finished else None

    async def wait(self) -> None:
        """Return when the request has ended, by itself or by an abort."""
        while not self.request.is_finished:
            await self._wake()

    def __aiter__(self) -> AsyncIterator[TokenBurst]:
        return self._bursts()

    async def _bursts(self) -> AsyncIterator[TokenBurst]:
        assert self.request.watched, "bursts are kept for requests submitted with watch=True"
        while True:
            num_new = self.request.num_generated_tokens - self._num_read
            finished = self.request.is_finished
            if num_new or finished:
                self._num_read += num_new
                yield TokenBurst(num_new, self._at, finished)
                if finished:
                    return
            else:
                await self._wake()

    async def _wake(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def notify(self, at: float) -> None:
        """Wake whoever waits; for the driver."""
        self._at = at
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Driver:
    """Runs one engine on one clock."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self.engine = engine
        self.clock = clock
        self.lag = LagMeter()
        """How late tokens were handed out, in simulated seconds."""
        self._generation_by_id: dict[str, Generation] = {}
        self._num_watched = 0
        self._arrival: asyncio.Future[None] | None = None

    def submit(self, request: Request, *, watch: bool = False) -> Generation:
        """Queue a request now. RequestTooLongError (one line, vLLM's words) if it could never run."""
        request.watched = watch
        self.engine.add(request, self.clock.now())
        generation = self._generation_by_id[request.request_id] = Generation(request)
        self._num_watched += watch
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
        return generation

    def abort(self, request_id: str) -> None:
        """Take a request out; nothing happens if it has ended already. Its waiters return."""
        if self.engine.abort(request_id, self.clock.now()) is not None:
            self._forget(request_id, self.clock.now())

    def snapshot(self) -> Snapshot:
        """The machine as it stands."""
        return self.engine.snapshot()

    async def run(self) -> None:
        """Work until cancelled."""
        engine = self.engine
        clock = self.clock
        in_flight: deque[Step] = deque()
        at = clock.now()
        await clock.settle_until(at)
        while True:
            # In virtual time nothing can happen before the horizon but what we do: no need to wait for it.
            horizon = clock.horizon()
            if horizon > at and len(in_flight) == engine.max_steps_in_flight - 1:
                at = engine.skip(at, horizon, in_flight[0] if in_flight else None)
            while len(in_flight) < engine.max_steps_in_flight:
                step = engine.begin_step(at)
                if step is None:
                    break
                in_flight.append(step)
            if not in_flight:
                await self._wait_for_arrival()
                at = max(at, clock.now())
                await clock.settle_until(at)
                continue
            step = in_flight.popleft()
            if step.ends_at > horizon:
                await clock.settle_until(step.ends_at)
            at = step.ends_at
            result = engine.finish_step(step)
            if result.finished or self._num_watched:
                if at > clock.now():
                    await clock.settle_until(at)
                self._deliver(result)
                await clock.settle_until(at)

    def _deliver(self, result: StepResult) -> None:
        at = result.at
        if self._num_watched:
            for request in result.sampled:
                if request.watched and not request.is_finished:
                    self._generation_by_id[request.request_id].notify(at)
        for request in result.finished:
            self._forget(request.request_id, at)
        self.lag.record(self.clock.now() - at)

    def _forget(self, request_id: str, at: float) -> None:
        generation = self._generation_by_id.pop(request_id)
        self._num_watched -= generation.request.watched
        generation.notify(at)

    async def _wait_for_arrival(self) -> None:
        assert not self.engine.has_requests, "what is admitted to the queue fits into an empty pool"
        self._arrival = asyncio.get_running_loop().create_future()
        try:
            await self._arrival
        finally:
            self._arrival = None
