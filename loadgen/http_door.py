"""The door to a server behind HTTP: how a run gets its transport there, and both clocks the same instant."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

from loadgen.call import Transport
from loadgen.context import Conversation
from loadgen.doors import Door
from loadgen.opening import Opening
from loadgen.prompt_ids import PromptIds
from loadgen.server_view import ServerView
from loadgen.shard import at_once
from loadgen.target import Target
from loadgen.transports.http import HttpTransport
from mockserver.clock import Clock, WallClock, real_seconds
from traces.record import ServerSample


@asynccontextmanager
async def over_http(
    target: Target,
    clock: WallClock,
    view: ServerView,
    *,
    client: str = "http",
    prompt_ids: PromptIds | None = None,
    warm_up: Iterable[Conversation] = (),
    starts_at: float = 0.0,
    wait_for_start: Callable[[WallClock], Awaitable[None]] = at_once,
    is_alone: bool = True,
) -> AsyncIterator[Door]:
    """The server at ``target``, shown the conversations of ``warm_up``. When the door is open, it is ``starts_at``.

    At more than real time's pace a server of ours and this clock stand still until the first calls are in: see
    ``loadgen.opening``. Not where others send to the same server (``is_alone``), whose clocks nobody holds.
    """
    async with (
        HttpTransport(target, clock, prompt_ids) as transport,
        _CLIENTS[client](target, clock, transport) as chosen,
    ):
        await transport.warm_up(warm_up)

        async def look() -> ServerSample | None:
            return await view.sample(clock)

        held_at = await view.hold_clock() if is_alone and clock.rate > 1.0 else None
        if held_at is None:
            await _start_beside(view, clock, transport, starts_at=starts_at, wait_for_start=wait_for_start)
            yield Door(transport=chosen, look=look, lag=view.lag, max_model_len=view.room)
            return
        clock.hold()
        clock.start(at=starts_at)
        transport.clock_offset_s = held_at - starts_at
        opening = Opening(chosen, view, clock)
        async with asyncio.TaskGroup() as group:
            ending = group.create_task(opening.run(), name="opening")
            try:
                yield Door(transport=opening, look=look, lag=view.lag, max_model_len=view.room, notes=opening.notes)
            finally:
                ending.cancel()
                await opening.let_go()


async def _start_beside(
    view: ServerView,
    clock: WallClock,
    transport: HttpTransport,
    *,
    starts_at: float,
    wait_for_start: Callable[[WallClock], Awaitable[None]],
) -> None:
    """Start ``clock``, and find out how a server's clock that nobody holds differs from it."""
    offset_s = await view.clock_offset_s(clock)
    shown_at, really_at = clock.now(), real_seconds()
    clock.start(at=starts_at)
    await wait_for_start(clock)
    if offset_s is not None:
        server_now = offset_s + shown_at + (real_seconds() - really_at) * clock.rate
        transport.clock_offset_s = server_now - clock.now()


@asynccontextmanager
async def _timed_path(_target: Target, _clock: Clock, transport: HttpTransport) -> AsyncIterator[Transport]:
    yield transport


@asynccontextmanager
async def _through_the_sdk(target: Target, clock: Clock, _transport: HttpTransport) -> AsyncIterator[Transport]:
    from loadgen.transports.openai_sdk import OpenAITransport  # noqa: PLC0415  (importing openai takes 1.3 s of CPU)

    async with OpenAITransport(target, clock) as transport:
        yield transport


_CLIENTS = {"http": _timed_path, "openai": _through_the_sdk}
