"""An event loop in virtual time: when nothing is left to do at this instant, time jumps to the next deadline.

Tasks, futures, timeouts, queues and task groups are stock asyncio. Threads, sockets, signals and processes
are refused: their answers take real time, and virtual time would run away from them.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, NoReturn, TypeVarTuple, final

Ts = TypeVarTuple("Ts")

_LAST = 1 << 62  # added to the sequence of those who come after all others of their instant
_MIN_DEAD_TIMERS = 64  # below this, cancelled timers are not worth a sweep


class VirtualTimeError(RuntimeError):
    """Whoever asks virtual time for something that only real time can give meets this."""


class DeadlockError(VirtualTimeError):
    """Met when every task waits for another and no deadline is left that could wake one."""


class _Callback(asyncio.Handle):
    """What waits in the ready queue; slimmer than its parent, whose constructor costs more than all else."""

    __slots__ = ()
    _callback: Callable[..., object]
    _context: Context

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context) -> None:
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._args = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._callback!r}>"


@final
class _Timer(_Callback, asyncio.TimerHandle):
    """A callback with a deadline."""

    __slots__ = ()
    _loop: VirtualLoop
    _when: float
    _scheduled: bool

    def cancel(self) -> None:
        super().cancel()
        if self._scheduled:
            self._scheduled = False
            self._loop._forget_timer()


def _refuse_the_rest(loop_class: type[VirtualLoop]) -> type[VirtualLoop]:
    """Let every method that needs threads, sockets, signals or processes raise VirtualTimeError."""
    for name in dir(asyncio.AbstractEventLoop):
        if not name.startswith("_") and name not in _SERVED:
            setattr(loop_class, name, _refusal(name))
    return loop_class


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise VirtualTimeError(f"no threads, sockets, signals or processes in virtual time: {name} is refused")

    return refuse


# fmt: off
_SERVED = frozenset({
    "call_at", "call_exception_handler", "call_later", "call_soon", "call_soon_threadsafe", "close",
    "create_future", "create_task", "default_exception_handler", "get_debug",
    "get_exception_handler", "get_task_factory", "is_closed", "is_running", "run_forever",
    "run_until_complete", "set_debug", "set_exception_handler", "set_task_factory",
    "shutdown_asyncgens", "shutdown_default_executor", "stop", "time",
})
# fmt: on


@_refuse_the_rest
class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop whose time jumps from deadline to deadline. ``loop.time()`` starts at 0."""

    _stopping: bool
    _closed: bool
    _thread_id: int | None

    def __init__(self) -> None:
        super().__init__()
        self.set_debug(False)
        self._now = 0.0
        self._ready: deque[_Callback] = deque()
        self._timers: list[tuple[float, int, asyncio.Future[None] | _Timer]] = []  # a heap; ties go by sequence
        self._sequence = count()
        self._num_dead_timers = 0

    def time(self) -> float:
        """Simulated seconds since this loop was made."""
        return self._now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call ``callback`` at this instant, after what is already ready."""
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = _Callback(callback, args, copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """``call_soon``, for signal handlers; other threads are refused."""
        if self._thread_id not in {None, threading.get_ident()}:
            raise VirtualTimeError("no threads in virtual time: call_soon_threadsafe came from another one")
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call ``callback`` at ``when``; among equal deadlines the first asked is the first called."""
        if self._closed:
            raise RuntimeError("Event loop is closed")
        if math.isnan(when):
            raise ValueError("cannot call at NaN")
        timer = _Timer(callback, args, copy_context() if context is None else context)
        timer._when = when
        timer._loop = self
        timer._scheduled = True
        heappush(self._timers, (when, next(self._sequence), timer))
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call ``callback`` after ``delay`` simulated seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # asyncio's name
        """Nothing to shut down: there are no threads here."""

    async def sleep_until(self, when: float) -> None:
        """Return at exactly ``when``, or at once if it has passed: one future, one entry in the heap."""
        if not when > self._now:
            if math.isnan(when):
                raise ValueError("cannot sleep until NaN")
            return
        future: asyncio.Future[None] = asyncio.Future(loop=self)
        heappush(self._timers, (when, next(self._sequence), future))
        try:
            await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._forget_timer()
            raise

    async def settle_until(self, when: float) -> None:
        """Return at ``when``, or now if it has passed, once nothing else is left to do at that instant."""
        when = max(when, self._now)
        if not self._ready and self.next_deadline() > when:
            self._now = when  # nobody has anything to do until then, nor at that instant
            return
        future: asyncio.Future[None] = asyncio.Future(loop=self)
        heappush(self._timers, (when, _LAST + next(self._sequence), future))
        try:
            await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._forget_timer()
            raise

    def next_deadline(self) -> float:
        """The instant of the nearest timer, infinite if there is none: until then nothing happens by itself."""
        return self._timers[0][0] if self._timers else math.inf

    def close(self) -> None:
        """Forget everything that was still to come."""
        super().close()
        self._timers.clear()

    def _run_once(self) -> None:
        """Run what is ready, move time when nothing is, until somebody stops the loop."""
        ready = self._ready
        take = ready.popleft
        while not self._stopping:
            if not ready:
                self._advance()
            for _ in range(len(ready)):
                handle = take()
                if handle._cancelled:
                    continue
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    context = {"message": f"Exception in {handle!r}", "exception": error, "handle": handle}
                    self.call_exception_handler(context)

    def _advance(self) -> None:
        """Move time to the next deadline and make everything due there ready."""
        timers = self._timers
        while timers and timers[0][0] < math.inf:
            when = timers[0][0]
            while timers and timers[0][0] <= when:
                if timers[0][1] >= _LAST and self._ready:
                    break  # it waits for what the others of this instant do
                item = heappop(timers)[2]
                if type(item) is _Timer:
                    if item._cancelled:
                        self._num_dead_timers -= 1
                        continue
                    item._scheduled = False
                    self._ready.append(item)
                else:
                    try:  # rather than asking first: Ctrl-C may cancel between the question and the answer
                        item.set_result(None)
                    except asyncio.InvalidStateError:
                        self._num_dead_timers -= 1
            if self._ready:
                self._now = max(self._now, when)
                return
        waiting = sorted(task.get_name() for task in asyncio.all_tasks(self))
        names = ", ".join(waiting[:8]) + (", ..." if len(waiting) > 8 else "")
        raise DeadlockError(
            f"deadlock at {self._now} s of virtual time: nothing is ready and no timer is set, "
            f"yet {len(waiting)} tasks wait: {names}"
        )

    def _forget_timer(self) -> None:
        """Count a timer that was cancelled; sweep once they are the larger part, or they would pile up."""
        self._num_dead_timers += 1
        if self._num_dead_timers > _MIN_DEAD_TIMERS and 2 * self._num_dead_timers > len(self._timers):
            # In place: _advance may be holding the list.
            self._timers[:] = [entry for entry in self._timers if not entry[2].cancelled()]
            heapify(self._timers)
            self._num_dead_timers = 0
