"""How many tokens a server makes of messages and tools: by its /tokenize, else by the usage of a call of one token."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import orjson

from loadgen.context import Message, user_message
from loadgen.server_view import NO_ANSWER, ServerView
from loadgen.target import Target, one_line, refusal
from mockserver.clock import WallClock

Count = Callable[[Sequence[Message], Sequence[str]], Awaitable[int]]
"""Prompt tokens of messages and tools, the opening of the answer included. Raises CountError."""
_MOST_AT_ONCE = 16
_MOST_TRIES = 3
_PAUSE_S = 0.2


class CountError(Exception):
    """The server does not say how many tokens something has; the text says why."""


@dataclass(eq=False, slots=True)
class TokenCounts:
    """Asks one server; not more than a few questions at a time."""

    server: ServerView
    target: Target
    num_asked: int = 0
    clock: WallClock = field(default_factory=WallClock)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MOST_AT_ONCE))

    async def by_tokenize(self, messages: Sequence[Message], tools: Sequence[str]) -> int:
        """What /tokenize counts."""
        return await self._patiently(lambda: self._tokenized(_prompt(messages, tools)))

    async def by_usage(self, messages: Sequence[Message], tools: Sequence[str]) -> int:
        """What the usage of a call says whose answer has one token. Its blocks are nobody else's: it has a salt."""
        return await self._patiently(lambda: self._used(_prompt(messages, tools)))

    async def find_way(self) -> tuple[str, Count] | None:
        """The name of a way that works here, and the way; None where there is none."""
        for name, way in (("/tokenize", self.by_tokenize), ("measured usage", self.by_usage)):
            try:
                await way([user_message("Say hello.")], ())
            except CountError:
                continue
            return name, way
        return None

    async def _patiently(self, ask: Callable[[], Awaitable[int]]) -> int:
        """Ask again where nobody answered: one count that is missing would leave all of a task's prompts too long."""
        for num_tries in range(1, _MOST_TRIES + 1):
            try:
                async with self._slots:
                    self.num_asked += 1
                    return await ask()
            except CountError:
                if num_tries == _MOST_TRIES:
                    raise
            await self.clock.sleep_until(self.clock.now() + _PAUSE_S)
        raise AssertionError("the last try returns or raises")

    async def _tokenized(self, prompt: dict[str, object]) -> int:
        answer = await self.server.tokenize({"model": self.target.model, **prompt})
        count = answer.get("count") if answer is not None else None
        if not isinstance(count, int):
            raise CountError("/tokenize does not count these messages")
        return count

    async def _used(self, prompt: dict[str, object]) -> int:
        body = {
            "model": self.target.model,
            "max_tokens": 1,
            **({"cache_salt": "replayrig token counts"} if self.target.exact else {}),
            **({"tool_choice": "none"} if "tools" in prompt else {}),
            **prompt,
        }
        url = f"{self.target.api_url}/chat/completions"
        headers = {"content-type": "application/json", **self.target.headers}
        try:
            async with self.server.session.post(url, data=orjson.dumps(body), headers=headers) as response:
                answer = await response.read()
                if response.status != 200:
                    raise CountError(refusal(response.status, answer))
                count = orjson.loads(answer)["usage"]["prompt_tokens"]
        except NO_ANSWER as error:
            raise CountError(one_line(error)) from None
        except (orjson.JSONDecodeError, KeyError, TypeError):
            raise CountError("the answer has no usage") from None
        if not isinstance(count, int):
            raise CountError("the usage does not say how many prompt tokens there were")
        return count


def _prompt(messages: Sequence[Message], tools: Sequence[str]) -> dict[str, object]:
    prompt: dict[str, object] = {"messages": list(messages)}
    if tools:
        prompt["tools"] = [orjson.Fragment(tool.encode()) for tool in tools]
    return prompt
