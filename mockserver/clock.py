"""Time: the only file that reads or waits for the real clock.

``WallClock`` carries simulated seconds at a rate of real ones. ``VirtualClock`` waits for nothing: it belongs
to a ``VirtualLoop``, whose time jumps to the next deadline.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from mockserver.virtual_loop import DeadlockError, VirtualLoop, VirtualTimeError

try:
    import uvloop as _uvloop
except ImportError:  # pragma: no cover  # not made for every platform
    _uvloop = None  # type: ignore[assignment]  # the absent module

T = TypeVar("T")

__all__ = [
    "Clock",
    "DeadlockError",
    "VirtualClock",
    "VirtualLoop",
    "VirtualTimeError",
    "WallClock",
    "cpu_seconds",
    "real_seconds",
    "run_virtual",
    "run_wall",
    "unix_seconds",
]

# uvloop rounds timers to the nearest millisecond: half of one and less is spent yielding to other tasks.
_SHORTEST_SLEEP_S = 0.0005
_LONGEST_TURN_S = 0.002


class Clock(Protocol):
    """What coroutines know of time: simulated seconds since the clock's start."""

    @property
    def rate(self) -> float:
        """Simulated seconds per real second; infinite in virtual time."""
        ...

    def now(self) -> float:
        """Simulated seconds since the clock's start."""
        ...

    async def sleep_until(self, when: float) -> None:
        """Return at ``when`` or as soon after it as possible, never before; at once if it has passed."""
        ...

    async def settle_until(self, when: float) -> None:
        """``sleep_until``, after letting others do what they have to do at that instant."""
        ...

    def horizon(self) -> float:
        """Until then nothing happens that is not the caller's own doing; not after ``now()`` in real time."""
        ...


def real_seconds() -> float:
    """Real seconds since some fixed instant; only differences mean anything."""
    return time.monotonic()


def unix_seconds() -> float:
    """The date, as seconds since 1970: for timestamps that people and clients read, never for durations."""
    return time.time()


def cpu_seconds() -> float:
    """CPU seconds this process has used."""
    return time.process_time()


class WallClock:
    """Real time, ``rate`` simulated seconds per real second, starting at 0 when made.

    It can be held: then it stands still, and whoever waits goes on waiting until it is released.
    """

    __slots__ = ("_held_at", "_origin", "_rate", "_released", "_yielded_at")

    def __init__(self, rate: float = 1.0) -> None:
        if not 0.0 < rate < math.inf:
            raise ValueError(f"rate must be a positive number of simulated seconds per second, got {rate}")
        self._rate = rate
        self._yielded_at = 0.0
        self._held_at: float | None = None
        self._released = asyncio.Event()
        self.start()

    @property
    def rate(self) -> float:
        """Simulated seconds per real second."""
        return self._rate

    def start(self, at: float = 0.0) -> None:
        """Make this instant ``at``; a clock that is held goes on being held."""
        self._origin = time.monotonic() - at / self._rate
        if self._held_at is not None:
            self._held_at = at

    @property
    def is_held(self) -> bool:
        """Whether it stands still."""
        return self._held_at is not None

    def hold(self) -> None:
        """Stand still until ``release``."""
        if self._held_at is None:
            self._held_at = self.now()
            self._released.clear()

    def release(self) -> None:
        """Go on from where it was held."""
        if self._held_at is not None:
            at, self._held_at = self._held_at, None
            self.start(at)
            self._released.set()

    def now(self) -> float:
        """Simulated seconds since the clock's start."""
        if self._held_at is not None:
            return self._held_at
        return (time.monotonic() - self._origin) * self._rate

    async def sleep_until(self, when: float) -> None:
        """Return at ``when`` or soon after it; event loops that fire timers early are waited for again."""
        while (left_s := (when - self.now()) / self._rate) > 0.0:
            if self._held_at is not None:
                await self._released.wait()
            else:
                await asyncio.sleep(left_s if left_s >= _SHORTEST_SLEEP_S else 0.0)

    async def settle_until(self, when: float) -> None:
        """``sleep_until``; a late caller gives the others their turn often enough that none of them starves.

        Not at every call: what a late caller brings meanwhile is then handed on together, which costs less. While the
        clock is held, everything that happens happens at that instant, so it does not return.
        """
        if self._held_at is not None:
            await self._released.wait()
        now = time.monotonic()
        if when > (now - self._origin) * self._rate:
            await self.sleep_until(when)
        elif now - self._yielded_at > _LONGEST_TURN_S:
            await asyncio.sleep(0.0)
        else:
            return
        self._yielded_at = time.monotonic()

    def horizon(self) -> float:
        """The past: in real time anything may happen next."""
        return -math.inf


class VirtualClock:
    """The clock of a ``VirtualLoop``; waiting costs no real time."""

    __slots__ = ("_loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        loop = loop or asyncio.get_running_loop()
        if not isinstance(loop, VirtualLoop):
            raise VirtualTimeError(f"virtual time needs a VirtualLoop (see run_virtual), got {loop!r}")
        self._loop = loop

    @property
    def rate(self) -> float:
        """Infinite: no number of simulated seconds takes a real one."""
        return math.inf

    def now(self) -> float:
        """Simulated seconds since the loop was made."""
        return self._loop.time()

    def sleep_until(self, when: float) -> Coroutine[Any, Any, None]:
        """Return at exactly ``when``; those who wait for the same instant return in the order they asked."""
        return self._loop.sleep_until(when)

    def settle_until(self, when: float) -> Coroutine[Any, Any, None]:
        """Return at exactly ``when``, once nothing else is left to do at that instant."""
        return self._loop.settle_until(when)

    def horizon(self) -> float:
        """The nearest deadline of anybody."""
        return self._loop.next_deadline()


def run_virtual(main: Callable[[VirtualClock], Coroutine[Any, Any, T]]) -> T:
    """Run ``main(clock)`` in virtual time, on a loop of its own, and return what it returns.

    As with ``asyncio.run``, tasks left over are cancelled, and Ctrl-C cancels ``main``, which may clean up.
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main(VirtualClock(runner.get_loop())))


def run_wall(main: Callable[[], Coroutine[Any, Any, T]], *, uvloop: bool = True) -> T:
    """Run ``main()`` in real time, on uvloop where the platform has it, and return what it returns."""
    loop_factory = _uvloop.new_event_loop if uvloop and _uvloop is not None else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main())
