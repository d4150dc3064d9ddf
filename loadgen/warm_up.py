"""Calls before the run that nobody measures: a server that was just started compiles and allocates while it answers."""

from __future__ import annotations

import asyncio

from loadgen.call import Call
from loadgen.context import Conversation, user_message
from loadgen.prompt_ids import PromptIds
from loadgen.target import Target, TargetError
from loadgen.transports.http import HttpTransport
from mockserver.clock import Clock
from mockserver.filler import filler
from traces.prompt_size import END_OF_TURN_TOKENS

_NUM_TOKENS = 16
_NUM_AT_ONCE = 16


async def send_warm_ups(target: Target, clock: Clock, num_calls: int, prompt_ids: PromptIds | None = None) -> None:
    """Send ``num_calls`` short calls that have nothing in common with the run's. Raises TargetError where one fails.

    ``prompt_ids`` makes them plain completions of ids.
    """
    slots = asyncio.Semaphore(_NUM_AT_ONCE)

    async def send(number: int) -> None:
        text = filler(f"warm-up/{number}", _NUM_TOKENS - END_OF_TURN_TOKENS)
        call = Call(
            call_id=f"warm-up#{number}",
            task_id="warm-up",
            agent_id="warm-up",
            conversation=Conversation(messages=[user_message(f"{number}: {text}")]),
            reply={"role": "assistant", "content": text},
            num_output_tokens=_NUM_TOKENS,
        )
        async with slots:
            answer = await transport.complete(call)
        if answer.error is not None:
            raise TargetError(f"{target.base_url}: a warm-up call failed: {answer.error}")

    async with HttpTransport(target, clock, prompt_ids) as transport, asyncio.TaskGroup() as group:
        for number in range(num_calls):
            group.create_task(send(number))
