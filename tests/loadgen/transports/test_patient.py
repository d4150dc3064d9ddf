from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from loadgen.call import Call, Completion
from loadgen.context import Conversation
from loadgen.transports.patient import CappedTransport, RetryingTransport
from mockserver.clock import Clock, VirtualClock, run_virtual


def make_call(number: int = 0) -> Call:
    return Call(
        call_id=f"t/react#{number}",
        task_id="t",
        agent_id="t/react",
        conversation=Conversation(),
        reply={"role": "assistant", "content": "x"},
        num_output_tokens=2,
    )


class BusyTransport:
    """Refuses its first calls, then answers; every try takes a second."""

    def __init__(self, clock: Clock, *refusals: Completion) -> None:
        self.clock = clock
        self.refusals = list(refusals)
        self.num_at_once = self.most_at_once = 0

    async def complete(self, call: Call) -> Completion:
        sent_at = self.clock.now()
        self.num_at_once += 1
        self.most_at_once = max(self.most_at_once, self.num_at_once)
        await self.clock.sleep_until(sent_at + 1.0)
        self.num_at_once -= 1
        if self.refusals:
            return self.refusals.pop(0)
        return Completion(sent_at=sent_at, ended_at=self.clock.now(), status=200)


def busy(status: int | None = 503, *, retry_after_s: float | None = None) -> Completion:
    return Completion(
        sent_at=0.0, ended_at=1.0, error="busy", status=status, is_retryable=True, retry_after_s=retry_after_s
    )


def complete(*refusals: Completion, max_retries: int = 3) -> Completion:
    def main(clock: VirtualClock) -> Coroutine[Any, Any, Completion]:
        return RetryingTransport(BusyTransport(clock, *refusals), clock, max_retries).complete(make_call())

    return run_virtual(main)


def test_a_call_is_sent_again_when_the_server_says() -> None:
    answer = complete(busy(retry_after_s=7.0))

    assert (answer.error, answer.num_retries, answer.sent_at) == (None, 1, 8.0)


def test_without_a_word_from_the_server_the_waits_grow() -> None:
    answer = complete(busy(429), busy(429), busy(503))

    assert answer.num_retries == 3
    # Three tries of a second, and waits of at most 0.5, 1 and 2 s, at least half of that.
    assert 3.0 + 1.75 <= answer.sent_at <= 3.0 + 3.5


def test_a_stale_connection_is_replaced_at_once() -> None:
    answer = complete(busy(None))

    assert (answer.error, answer.num_retries, answer.sent_at) == (None, 1, 1.0)


def test_after_the_last_try_the_refusal_stands() -> None:
    answer = complete(*[busy(retry_after_s=0.0)] * 5, max_retries=2)

    assert (answer.error, answer.num_retries) == ("busy", 2)


def test_what_another_try_cannot_mend_is_not_tried_again() -> None:
    answer = complete(Completion(sent_at=0.0, ended_at=1.0, error="too long", status=400))

    assert (answer.error, answer.num_retries) == ("too long", 0)


def test_at_most_so_many_calls_are_in_flight() -> None:
    async def main(clock: VirtualClock) -> tuple[int, list[float]]:
        inner = BusyTransport(clock)
        transport = CappedTransport(inner, asyncio.Semaphore(2))
        answers = await asyncio.gather(*(transport.complete(make_call(number)) for number in range(5)))
        return inner.most_at_once, [answer.sent_at for answer in answers]

    assert run_virtual(main) == (2, [0.0, 0.0, 1.0, 1.0, 2.0])
