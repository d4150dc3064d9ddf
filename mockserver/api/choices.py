"""The choices of one answer while the engine works on them: started together, counted, and never left behind."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mockserver.api.machine import Machine
from mockserver.api.replies import Kind, Reply
from mockserver.driver import Generation, TokenBurst


@dataclass(eq=False, slots=True, kw_only=True)
class Choice:
    """One reply on its way to the client."""

    index: int
    reply: Reply
    generation: Generation
    call_ids: Sequence[str] = ()
    num_due_tokens: int = 0
    """Tokens that the model has made."""
    num_sent_tokens: int = 0
    """Tokens whose chunks were built; fewer where a chunk is to carry several."""
    counted_until: float | None = None
    """The instant of the last token that the books know."""

    @property
    def finish_reason(self) -> str:
        """The engine's word for the end: the reply's own, or that it was aborted."""
        return self.generation.finish_reason or self.reply.finish_reason


def new_call_ids(reply: Reply) -> list[str]:
    """An id for each tool call of the reply."""
    num_calls = 1 + max((span.call for span in reply.spans if span.kind is Kind.NAME), default=-1)
    return [f"chatcmpl-tool-{secrets.token_hex(8)}" for _ in range(num_calls)]


@contextlib.contextmanager
def running(machine: Machine, start: Callable[[], list[Choice]]) -> Iterator[list[Choice]]:
    """Start the choices; whatever has not ended on leaving is aborted, so that its blocks are free at once."""
    choices = start()
    machine.num_in_flight += 1
    try:
        yield choices
    finally:
        machine.num_in_flight -= 1
        for choice in choices:
            machine.leave(choice.generation)


async def bursts(choice: Choice, machine: Machine) -> AsyncIterator[TokenBurst]:
    """The choice's tokens as they become due, counted once they were sent on."""
    async for burst in choice.generation:
        yield burst
        if burst.num_tokens:
            machine.lag.record(machine.clock.now() - _oldest_due_at(choice, burst))
            _count(choice, burst.num_tokens, burst.at, machine)


async def ended(choices: Sequence[Choice], machine: Machine) -> None:
    """Wait for all choices; their tokens are counted at the end."""
    for choice in choices:
        await choice.generation.wait()
        last_token_at = choice.generation.last_token_at
        if last_token_at is not None:
            machine.lag.record(machine.clock.now() - last_token_at)
            _count(choice, choice.generation.num_output_tokens, last_token_at, machine)


def _oldest_due_at(choice: Choice, burst: TokenBurst) -> float:
    """When the first of the burst's tokens was due; those between two looks are taken as evenly spaced."""
    before = choice.counted_until
    if before is None:
        first_token_at = choice.generation.first_token_at
        return burst.at if first_token_at is None else first_token_at
    return before + (burst.at - before) / burst.num_tokens


def _count(choice: Choice, num_tokens: int, at: float, machine: Machine) -> None:
    if not num_tokens:
        return
    books = machine.metrics.requests[choice.generation.rank]
    if choice.counted_until is None:
        first_token_at = choice.generation.first_token_at
        assert first_token_at is not None
        books.count_first_token(choice.generation)
        choice.counted_until = first_token_at
        num_tokens -= 1
    books.count_gaps(choice.counted_until, at, num_tokens)
    choice.counted_until = at


def count_finished(choices: Sequence[Choice], machine: Machine, *, max_tokens: int) -> None:
    """Enter ended choices into the books."""
    for choice in choices:
        if choice.generation.finish_reason != "abort":
            books = machine.metrics.requests[choice.generation.rank]
            books.count_finished(choice.generation, num_choices=len(choices), max_tokens=max_tokens)


async def together(loops: Sequence[Callable[[], Any]]) -> None:
    """Run one coroutine for each choice."""
    if len(loops) == 1:
        await loops[0]()
        return
    try:
        async with asyncio.TaskGroup() as group:
            for loop in loops:
                group.create_task(loop())
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


def timing(choices: Sequence[Choice], delivered_at: float) -> dict[str, Any]:
    """What this server alone can tell: when things happened by the model's own time."""
    first = choices[0].generation
    return {
        "arrived_at": first.arrived_at,
        "scheduled_at": first.scheduled_at,
        "first_token_at": min((one.generation.first_token_at or delivered_at for one in choices), default=None),
        "last_token_at": max((one.generation.last_token_at or delivered_at for one in choices), default=None),
        "num_preemptions": sum(one.generation.num_preemptions for one in choices),
        "delivered_at": delivered_at,
    }
