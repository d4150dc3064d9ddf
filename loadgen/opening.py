"""The first instant of a run at more than real time's pace: both clocks stand still until its calls have arrived.

All tasks start at once, at 0. Sending their first calls and reading them takes this machine a second or two, which on
a clock ten times as fast would be as many simulated seconds in which the tasks came one after the other; a node's
clients and its front end have more than two cores. So the clocks of the mock and of the load generator are held at 0
until every call that has been sent is in the mock's queue, and go on together.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from loadgen.call import Call, Completion, Transport
from loadgen.server_view import ServerView
from loadgen.target import TargetError
from mockserver.clock import WallClock

_POLL_S = 0.02
_NUM_QUIET_POLLS = 5
"""Looks at the server without any change after which all are in that will be."""
_PATIENCE_S = 30.0
"""Real seconds after which a run starts whatever is missing; a mock gives up at sixty."""


@dataclass(eq=False, slots=True)
class Opening:
    """Counts the calls in flight on their way through; ``run`` ends the standstill."""

    inner: Transport
    view: ServerView
    clock: WallClock
    num_in_flight: int = 0
    num_calls: int = 0
    """Calls that had arrived when the clocks were released."""
    elapsed_s: float = 0.0
    """Real seconds that the clocks stood still."""

    async def complete(self, call: Call) -> Completion:
        """Send ``call``."""
        self.num_in_flight += 1
        try:
            return await self.inner.complete(call)
        finally:
            self.num_in_flight -= 1

    async def run(self) -> None:
        """Return when the calls of this instant are in the server's queue, and the clocks go again."""
        real_time = WallClock()
        before: tuple[int, int] | None = None
        num_quiet = 0
        while num_quiet < _NUM_QUIET_POLLS and real_time.now() < _PATIENCE_S:
            await real_time.sleep_until(real_time.now() + _POLL_S)
            now = self.num_in_flight, await self.view.num_requests()
            # What is sent and not there is being read, or was refused and comes back.
            num_quiet = num_quiet + 1 if now == before and now[0] <= now[1] else 0
            before = now
        asked_at = real_time.now()
        await self.view.release_clock()
        self.elapsed_s = real_time.now()
        self.clock.start(at=self.clock.now() + (self.elapsed_s - asked_at) / 2 * self.clock.rate)
        self.clock.release()
        self.num_calls = self.num_in_flight

    async def let_go(self) -> None:
        """A run that is broken off in its first instant does not leave the server's clock standing."""
        if self.clock.is_held:
            with contextlib.suppress(TargetError):  # the server has gone, and its clock with it
                await self.view.release_clock()

    def notes(self) -> dict[str, str]:
        """What happened, for the run's header; nothing where the clocks have not been released."""
        if not self.elapsed_s:
            return {}
        stood = f"both clocks stood still for {self.elapsed_s:.2g} s"
        return {"start": f"{stood} while the first {self.num_calls:,} calls were sent and read"}
