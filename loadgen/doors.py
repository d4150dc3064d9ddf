"""The two doors to a model: an engine in this process, here, and a server behind HTTP (``loadgen.http_door``). Either
gives a transport, a way to look at the server, and what is known of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from loadgen.call import Transport
from loadgen.run import Look
from loadgen.transports.inprocess import InProcessTransport, Machine
from traces.record import Lag, ServerSample


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """An open way to a model."""

    transport: Transport
    look: Look
    lag: Callable[[], Lag | None]
    """How late the server says it was."""
    max_model_len: int | None
    """The model's context, where the server says so."""
    notes: Callable[[], dict[str, str]] = dict
    """What the run's header should say of it, in the end."""


@asynccontextmanager
async def in_process(machine: Machine) -> AsyncIterator[Door]:
    """The engine of ``machine``, driven as long as the door is open."""

    async def look() -> ServerSample:
        return machine.sample()

    async with asyncio.TaskGroup() as group:
        driving = group.create_task(machine.driver.run(), name="driver")
        yield Door(
            transport=InProcessTransport(machine), look=look, lag=machine.lag, max_model_len=machine.max_model_len
        )
        driving.cancel()
