"""The only place where engine and clock meet: runs the steps when they are due and hands out what they bring.

The loop is anchored: a step ends when the model says so, not when this process wakes. When the process is late, the
steps that are due are worked off before it sleeps again; how late their tokens were handed out is the lag.
"""

from __future__ import annotations

import asyncio
import functools
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mockserver.clock import Clock
from mockserver.engine.engine import Engine, Snapshot, Step, StepResult, add_snapshots
from mockserver.engine.front_end import FrontEnd
from mockserver.engine.request import Request
from mockserver.engine.routing import Router
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

    __slots__ = ("_at", "_interval", "_num_read", "_num_wanted", "_waiter", "rank", "request")

    def __init__(self, request: Request, *, rank: int = 0, interval: int = 1) -> None:
        self.request = request
        self.rank = rank
        self._interval = interval
        self._num_wanted = 1
        """Tokens that are worth waking somebody for: the first at once, then ``interval`` more each time."""
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

    def look_at(self, num_tokens: int) -> None:
        """Wake whoever reads when there are so many tokens, if that is before the interval is over."""
        self._num_wanted = min(self._num_wanted, num_tokens)

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
                self._num_wanted = self._num_read + self._interval
                yield TokenBurst(num_new, self._at, finished)
                if finished:
                    return
            else:
                await self._wake()

    def _wake(self) -> asyncio.Future[None]:
        """Done when there is something new. Not a coroutine, which every wake-up would have to go through."""
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    def advance(self, at: float) -> None:
        """Wake whoever waits for tokens, if there are enough of them; for the driver."""
        if self.request.num_generated_tokens >= self._num_wanted:
            self.notify(at)
        else:
            self._at = at

    def notify(self, at: float) -> None:
        """Wake whoever waits; for the driver."""
        self._at = at
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Driver:
    """Runs the engines of one server on one clock: one, or one for each data-parallel rank.

    Ranks step freely, or in lock-step: then everyone's step lasts as long as the slowest one's, and idle ranks wait
    along (mixture-of-experts layers are shared by all).
    """

    def __init__(
        self,
        engines: Engine | Sequence[Engine],
        clock: Clock,
        *,
        routing_policy: str = "vllm",
        in_lock_step: bool = False,
        front_end: FrontEnd = FrontEnd(),
    ) -> None:
        self.engines = (engines,) if isinstance(engines, Engine) else tuple(engines)
        self.clock = clock
        self.router = Router(routing_policy, self.engines)
        self.lag = LagMeter()
        """How late tokens were handed out, in simulated seconds."""
        groups = [self.engines] if in_lock_step else [(engine,) for engine in self.engines]
        self._groups = [_Group(group) for group in groups]
        self._group_by_rank = self._groups * len(self.engines) if in_lock_step else self._groups
        self._generation_by_id: dict[str, Generation] = {}
        self._rank_by_id: dict[str, int] = {}
        self._num_watched = 0
        self._front_end = front_end
        self._readers = [
            _Reader(clock, functools.partial(self._hand_over, rank=rank)) for rank in range(len(self.engines))
        ]
        """Each rank has one, as vLLM gives each an API server of its own."""
        self.on_step: Callable[[int, StepResult], None] | None = None
        """Hears of every step that is taken by itself, with its rank; quiet steps in virtual time pass unheard."""

    def submit(
        self, request: Request, *, watch: int = 0, rank: int | None = None, session_id: str | None = None
    ) -> Generation:
        """Queue a request now, on a rank of the router's choice unless one is given.

        ``watch``: somebody reads its tokens as they come, so many at a time (the first at once); 0: its end only.
        RequestTooLongError (one line, vLLM's words) if it could never run; ValueError for a rank that is not there.
        """
        if rank is None:
            rank = self.router.rank_of(request, session_id)
        elif not 0 <= rank < len(self.engines):
            raise ValueError(f"data_parallel_rank {rank} is out of range [0, {len(self.engines)}).")
        if request.request_id in self._rank_by_id:
            raise ValueError(f"request_id {request.request_id!r} is in use")
        request.watched = watch > 0
        # A machine that is late lives in the past: what reaches it then has arrived in its own present.
        arrived_at = min(self.clock.now(), self._group_by_rank[rank].present)
        latency_s, work_s = self._front_end.latency_s, self._front_end.work_with(request.num_prompt_tokens)
        if work_s or latency_s:
            self.engines[rank].check(request)
            request.arrived_at = arrived_at
            self._readers[rank].read(request, arrived_at, arrived_at + latency_s, work_s)
        else:
            self._hand_over(request, arrived_at, rank=rank)
        generation = self._generation_by_id[request.request_id] = Generation(request, rank=rank, interval=watch)
        self._rank_by_id[request.request_id] = rank
        self._num_watched += request.watched
        return generation

    def abort(self, request_id: str) -> None:
        """Take a request out; nothing happens if it has ended already. Its waiters return."""
        rank = self._rank_by_id.get(request_id)
        now = self.clock.now()
        if rank is not None and self._readers[rank].take_out(request_id):
            self._generation_by_id[request_id].request.give_up(now)
            self._forget(request_id, now)
        elif rank is not None and self.engines[rank].abort(request_id, now) is not None:
            self._forget(request_id, now)

    def snapshot(self) -> Snapshot:
        """The machine as it stands, all ranks together."""
        return add_snapshots([engine.snapshot() for engine in self.engines])

    def reset_prefix_cache(self) -> bool:
        """Forget all cached blocks on every rank; False where a request holds some."""
        was_reset = [engine.reset_prefix_cache() for engine in self.engines]
        return all(was_reset)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for group in self._groups:
                tasks.create_task(self._run(group))

    def _hand_over(self, request: Request, arrived_at: float, *, rank: int) -> None:
        group = self._group_by_rank[rank]
        self.engines[rank].add(request, arrived_at)
        group.hold_up(self._front_end.arrival_s)
        group.wake()

    async def _run(self, group: _Group) -> None:
        clock = self.clock
        in_flight = group.in_flight
        at = clock.now()
        await clock.settle_until(at)
        while True:
            # In virtual time nothing can happen before the horizon but what we do: no need to wait for it.
            horizon = clock.horizon()
            if horizon > at:
                at = group.skip(at, horizon)
            while len(in_flight) < group.max_steps_in_flight and (joint := group.begin(at)):
                in_flight.append(joint)
            if not in_flight:
                await group.wait_for_arrival()
                at = max(at, clock.now())
                group.hold_up(self._front_end.wakeup_s)
                await clock.settle_until(at)
                continue
            joint = in_flight[0]
            while (ends_at := joint[0][1].ends_at) > at:
                at = group.present = ends_at
                if at > horizon:
                    await clock.settle_until(at)  # meanwhile requests may have held it up
            in_flight.popleft()
            results = group.finish(joint)
            if self.on_step is not None:
                for (engine, _), result in zip(joint, results, strict=True):
                    self.on_step(self.engines.index(engine), result)
            if self._num_watched or any(result.finished for result in results):
                if at > clock.now():
                    await clock.settle_until(at)
                for result in results:
                    self._deliver(result)
                await clock.settle_until(at)

    def _deliver(self, result: StepResult) -> None:
        at = result.at
        for request in result.finished:  # before the others: an agent waits for the end to go on
            self._forget(request.request_id, at)
        if self._num_watched:
            for request in result.sampled:
                if request.watched and not request.is_finished:
                    self._generation_by_id[request.request_id].advance(at)
        self.lag.record(self.clock.now() - at)

    def _forget(self, request_id: str, at: float) -> None:
        generation = self._generation_by_id.pop(request_id)
        del self._rank_by_id[request_id]
        self._num_watched -= generation.request.watched
        generation.notify(at)


class _Read(NamedTuple):
    """A request with a front end."""

    request: Request
    arrived_at: float
    ready_at: float
    """When the front end may begin with it."""
    work_s: float


class _Reader:
    """The front end at work: reads requests before the scheduler sees them.

    All that are there when it is free are worked on side by side, as the handlers of vLLM's API server are, and are
    done together; those that come meanwhile wait.
    """

    def __init__(self, clock: Clock, hand_over: Callable[[Request, float], None]) -> None:
        self._clock = clock
        self._hand_over = hand_over
        self._there: dict[str, _Read] = {}
        """By request, in the order of arrival."""
        self._working: asyncio.Task[None] | None = None

    def read(self, request: Request, arrived_at: float, ready_at: float, work_s: float) -> None:
        """Hand ``request`` over when ``work_s`` have been spent on it, from ``ready_at`` on at the earliest."""
        self._there[request.request_id] = _Read(request, arrived_at, ready_at, work_s)
        if self._working is None or self._working.done():
            self._working = asyncio.get_running_loop().create_task(self._work())

    def take_out(self, request_id: str) -> bool:
        """Forget a request that is here; the work on it is done nevertheless. False if it is not here."""
        return self._there.pop(request_id, None) is not None

    async def _work(self) -> None:
        free_at = -math.inf
        while self._there:
            begins_at = max(free_at, next(iter(self._there.values())).ready_at)
            await self._clock.sleep_until(begins_at)
            batch = [one for one in self._there.values() if one.ready_at <= begins_at]
            free_at = begins_at + sum(one.work_s for one in batch)
            await self._clock.sleep_until(free_at)
            for one in batch:
                if self.take_out(one.request.request_id):
                    self._hand_over(one.request, one.arrived_at)


_JointStep = list[tuple[Engine, Step]]
"""Steps that end together, each with its engine."""


class _Group:
    """Engines that step together: one, or all ranks in lock-step."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self.engines = engines
        self.max_steps_in_flight = engines[0].max_steps_in_flight
        self.in_flight: deque[_JointStep] = deque()
        """Steps that have begun, first come first."""
        self.present = math.inf
        """The end of the step that runs, infinite while none does: the model's time is no later than that."""
        self._held_up_s = 0.0
        """How much longer the next step is."""
        self._arrival: asyncio.Future[None] | None = None

    def begin(self, at: float) -> _JointStep:
        """Begin a step on every engine that has work; empty if none has."""
        joint = [(engine, step) for engine in self.engines if (step := engine.begin_step(at)) is not None]
        if len(joint) > 1 or (joint and self._held_up_s):
            ends_at = max(step.ends_at for _, step in joint) + self._held_up_s
            self._held_up_s = 0.0
            for engine, step in joint:
                engine.stretch(step, ends_at)
        return joint

    def hold_up(self, extra_s: float) -> None:
        """Let the steps that run end ``extra_s`` later; where none does, the next."""
        if not extra_s:
            return
        if not self.in_flight:
            self._held_up_s += extra_s
        for engine in self.engines:
            engine.hold_up([step for joint in self.in_flight for one, step in joint if one is engine], extra_s)

    def finish(self, joint: _JointStep) -> list[StepResult]:
        """What the steps brought."""
        return [engine.finish_step(step) for engine, step in joint]

    def skip(self, at: float, until: float) -> float:
        """Take quiet steps at once; see ``Engine.skip``. Ranks in lock-step take every step by itself."""
        in_flight = self.in_flight
        if len(self.engines) > 1 or len(in_flight) != self.max_steps_in_flight - 1:
            return at
        return self.engines[0].skip(at, until, in_flight[0][0][1] if in_flight else None)

    def wake(self) -> None:
        """A request has arrived."""
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    async def wait_for_arrival(self) -> None:
        """Return when a request arrives; the engines have none."""
        assert not any(engine.num_requests for engine in self.engines), "what is queued fits into an empty pool"
        self.present = math.inf
        self._held_up_s = 0.0
        self._arrival = asyncio.get_running_loop().create_future()
        try:
            await self._arrival
        finally:
            self._arrival = None
