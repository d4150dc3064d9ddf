"""Prompts that a server of another tokenizer counts as long as the trace's: each history gets a twin for that server.

    tools      each as many of the server's tokens as it has of ours
    system     so that the system block is as long as ours, its tools included
    the rest   what comes between two calls (an answer, tools' results, what the user says), so that the whole is

What cannot be made short enough (a tool call, a template that says more than ours) is made up for by what comes after
it. The twin of a history depends on the history only, so prompts that begin alike have twins that begin alike.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from loadgen.context import Conversation, Message, user_message
from loadgen.fitting import fit, piece_of_messages, piece_of_tool
from loadgen.token_counts import Count, CountError
from mockserver import tokens
from traces.prompt_size import (
    END_TOKENS,
    HEADER_TOKENS,
    TOOLS_BEGIN_TOKENS,
    TOOLS_END_TOKENS,
    message_tokens,
    tool_call_overhead,
)

_TOOL = '{"type":"function","function":{"name":"x","description":"x","parameters":{"type":"object","properties":{}}}}'
_AROUND_TOOLS = TOOLS_BEGIN_TOKENS + TOOLS_END_TOKENS
_WORD = user_message("x")
_CALL = {"id": "replayrig", "type": "function", "function": {"name": "x", "arguments": "{}"}}
_AFTER_CALL: list[Message] = [_WORD, {"role": "assistant", "content": None, "tool_calls": [_CALL]}]
_AFTER_RESULT = [*_AFTER_CALL, {"role": "tool", "tool_call_id": "replayrig", "content": "x"}]
_AFTER_TEXT: list[Message] = [_WORD, {"role": "assistant", "content": "x"}]


@dataclass(eq=False, slots=True)
class _Twin:
    """A history as the server is shown it."""

    conversation: Conversation
    num_messages: int = 0
    """How many of the original's messages it has."""
    ours: int = 0
    """Tokens of the original as we count them, the opening of the answer included."""
    theirs: int = 0
    """Of the twin, as the server does."""


@dataclass(eq=False, slots=True)
class FittedPrompts:
    """The twins of one run's histories."""

    count: Count
    seed: int = 0
    share: float = 1.0
    """What is left of an average text, as a first guess."""
    answers_are_live: bool = False
    """Answers stay as the server gave them, and nothing makes up for their length."""
    num_left: int = 0
    """Tools and messages that the server would not count: they are as they were."""
    _twins: WeakKeyDictionary[Conversation, _Twin] = field(default_factory=WeakKeyDictionary)
    _tools: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
    _fits: dict[Hashable, asyncio.Task[tuple[Any, int]]] = field(default_factory=dict)

    @property
    def num_pieces(self) -> int:
        """Different tools and messages that were looked at."""
        return len(self._fits)

    async def twin(self, conversation: Conversation, num_messages: int | None = None) -> tuple[Conversation, int]:
        """The twin of the first ``num_messages`` of ``conversation``, or of all, and the tokens it is to have."""
        messages = conversation.messages[:num_messages]
        twin = self._twins.get(conversation)
        if twin is None:
            twin = self._twins[conversation] = await self._opened(conversation.tools, messages)
        for part in _parts(messages[twin.num_messages :]):
            await self._extend(twin, messages[: twin.num_messages], part)
        return twin.conversation, twin.ours

    async def _opened(self, tools: Sequence[str], messages: Sequence[Message]) -> _Twin:
        """A twin with the tools and all that comes before the first answer."""
        fitted_tools = await self._fitted_tools(tuple(tools))
        twin = _Twin(Conversation(tools=fitted_tools))
        twin.ours = HEADER_TOKENS + _tools_size(tuple(tools))
        head = _until_answer(messages)
        system = head[:1] if head and head[0]["role"] == "system" else []
        excess = 0
        if system:
            twin.ours += _size(system[0])
            num_tokens = twin.ours + _size(_WORD)
            fitted, counted = await self._fitted(
                system, num_tokens, lambda one: self.count([*one, _WORD], fitted_tools), key=tuple(tools)
            )
            twin.conversation.messages += fitted
            excess = counted - num_tokens
        elif tools:
            twin.ours += message_tokens("")
        twin.theirs = twin.ours + excess
        if rest := head[len(system) :]:
            begun = list(twin.conversation.messages)
            twin.ours += sum(map(_size, rest))
            fitted, twin.theirs = await self._fitted(
                rest,
                twin.ours,
                lambda one: self.count([*begun, *one], fitted_tools),
                key=(tuple(tools), *_keys(system)),
            )
            twin.conversation.messages += fitted
        twin.num_messages = len(head)
        return twin

    async def _extend(self, twin: _Twin, before: Sequence[Message], part: Sequence[Message]) -> None:
        """``twin`` grows by ``part``, which comes after ``before``."""
        twin.num_messages += len(part)
        if self.answers_are_live and part[0]["role"] == "assistant":
            twin.conversation.messages.append(part[0])
            before, part = part[:1], part[1:]
        if not part:
            return
        twin.ours += sum(map(_size, part))
        context = _context(before, part[0])
        size = (await self._once(("context", *_keys(context)), lambda: self._measured(context), None, 0))[1]
        num_tokens = size + twin.ours - twin.theirs
        fitted, counted = await self._fitted(
            part, num_tokens, lambda one: self.count([*context, *one], ()), key=_keys(context)
        )
        twin.conversation.messages += fitted
        twin.theirs += counted - size

    async def _measured(self, messages: Sequence[Message]) -> tuple[None, int]:
        return None, await self.count(messages, ())

    async def _fitted_tools(self, tools: tuple[str, ...]) -> tuple[str, ...]:
        """The first tools make up for what the template says around them: their start is what tool sets share."""
        fitted = self._tools.get(tools)
        if fitted is None and tools:
            excess = (await self._once("around tools", self._around_tools, None, _AROUND_TOOLS))[1] - _AROUND_TOOLS
            found = []
            for text in tools:
                size = tokens.count(text) + 1
                one, counted = await self._once(
                    ("tool", text, size - excess), functools.partial(self._tool, text, size - excess), text, size
                )
                excess += counted - size
                found.append(one)
            fitted = self._tools[tools] = tuple(found)
        return fitted or ()

    async def _tool(self, text: str, num_tokens: int) -> tuple[str, int]:
        """The tool ``text`` with ``num_tokens``, and how many it has got."""
        before = await self.count([_WORD], [_TOOL])
        tool, counted = await fit(
            piece_of_tool(text),
            before + num_tokens,
            lambda one: self.count([_WORD], [_TOOL, one]),
            seed=self.seed,
            share=self.share,
        )
        return tool, counted - before

    async def _around_tools(self) -> tuple[None, int]:
        none, one, two = [await self.count([_WORD], [_TOOL] * number) for number in range(3)]
        return None, (one - none) - (two - one)

    async def _fitted(
        self,
        messages: Sequence[Message],
        num_tokens: int,
        count: Callable[[list[Message]], Awaitable[int]],
        *,
        key: Hashable,
    ) -> tuple[list[Message], int]:
        """``messages`` such that ``count`` finds ``num_tokens``: the same ones where all of this and ``key`` is."""
        return await self._once(
            (key, num_tokens, _keys(messages)),
            lambda: fit(piece_of_messages(messages), num_tokens, count, seed=self.seed, share=self.share),
            list(messages),
            num_tokens,
        )

    async def _once(
        self, key: Hashable, work: Callable[[], Awaitable[tuple[Any, int]]], instead: Any, instead_tokens: int
    ) -> tuple[Any, int]:
        """What ``work`` gives, done once for each ``key``; ``instead`` where the server would not count."""

        async def attempt() -> tuple[Any, int]:
            try:
                return await work()
            except CountError:
                self.num_left += 1
                return instead, instead_tokens

        task = self._fits.get(key)
        if task is None:
            task = self._fits[key] = asyncio.create_task(attempt())
        return task.result() if task.done() else await asyncio.shield(task)


def _parts(messages: Sequence[Message]) -> list[list[Message]]:
    """What came between two calls, each: an answer and all that followed it."""
    parts: list[list[Message]] = []
    for message in messages:
        if message["role"] == "assistant" or not parts:
            parts.append([])
        parts[-1].append(message)
    return parts


def _until_answer(messages: Sequence[Message]) -> Sequence[Message]:
    number = next((number for number, one in enumerate(messages) if one["role"] == "assistant"), len(messages))
    return messages[:number]


def _context(before: Sequence[Message], first: Message) -> list[Message]:
    """The shortest history in which ``first`` may come next as it does after ``before``."""
    last = before[-1] if before else _WORD
    if first["role"] == "assistant" or last["role"] in ("user", "system"):
        return [_WORD]
    if last["role"] == "tool":
        return _AFTER_RESULT
    return _AFTER_CALL if last.get("tool_calls") else _AFTER_TEXT


@functools.lru_cache(maxsize=4096)
def _tools_size(tools: tuple[str, ...]) -> int:
    return _AROUND_TOOLS + sum(tokens.count(one) + 1 for one in tools) if tools else 0


def _size(message: Message) -> int:
    """Tokens of ``message`` in our template."""
    content = message["content"] or ""
    if message["role"] != "assistant":
        return message_tokens(content)
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    said = tokens.count(content) + sum(
        tool_call_overhead(one["name"]) + tokens.count(one["arguments"]) for one in calls
    )
    return HEADER_TOKENS + said + END_TOKENS


def _keys(messages: Sequence[Message]) -> tuple[Hashable, ...]:
    """What tells messages apart."""
    return tuple(
        (
            one["role"],
            one["content"],
            one.get("tool_call_id"),
            *(
                (call["id"], call["function"]["name"], call["function"]["arguments"])
                for call in one.get("tool_calls") or ()
            ),
        )
        for one in messages
    )
