"""What fits into the model's context, and what gives way where a history has outgrown it.

As agent frameworks do, the oldest tool results are replaced by a note until a quarter of the context is free again.
The messages before the first one removed stay as they were, so their cached blocks can still be hit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from loadgen.context import Conversation, Message
from mockserver import tokens
from mockserver.tokens import TokenText

REMOVED = "[removed to make room]"
_FREE_SHARE = 0.25
_MESSAGE_TOKENS = 8
"""Around a message's content, at most."""
_TOOL_CALL_TOKENS = 24
"""Around a tool call's name and arguments, at most."""
_TOOLS_TOKENS = 48
"""Around the tools, at most."""


def fitted(conversation: Conversation, *, num_output_tokens: int, limit: int) -> tuple[Conversation, int]:
    """``conversation``, or one in its place that leaves room for the answer; and how many results gave way."""
    if _at_most(conversation) + num_output_tokens <= limit:
        return conversation, 0
    conversation.num_tokens_at_most = _measure(conversation.tools, conversation.messages, tokens.remembered_count)
    excess = conversation.num_tokens_at_most + num_output_tokens - limit
    if excess <= 0:
        return conversation, 0
    excess += int(limit * _FREE_SHARE)
    messages = list(conversation.messages)
    num_removed = 0
    for number, message in enumerate(messages):
        if excess <= 0:
            break
        if message["role"] == "tool" and message["content"] != REMOVED:
            excess -= tokens.remembered_count(message["content"]) - tokens.remembered_count(REMOVED)
            messages[number] = {**message, "content": REMOVED}
            num_removed += 1
    return Conversation(tools=conversation.tools, messages=messages), num_removed


def message_tokens(message: Message) -> int:
    """No fewer tokens than ``message`` has, and a few more at most."""
    return _measure((), (message,), tokens.remembered_count)


def tools_tokens(tools: Sequence[str]) -> int:
    """The same of the tools."""
    return _measure(tools, (), tokens.remembered_count)


def num_tokens(conversation: Conversation) -> int:
    """Tokens of ``conversation``, as we count them."""
    return _measure(conversation.tools, conversation.messages, tokens.remembered_count)


def _at_most(conversation: Conversation) -> int:
    """No fewer tokens than ``conversation`` has; only messages that are new are looked at."""
    if conversation.num_measured == 0:
        conversation.num_tokens_at_most = _tools_at_most(conversation.tools)
    new = conversation.messages[conversation.num_measured :]
    conversation.num_tokens_at_most += _measure((), new, _bound)
    conversation.num_measured = len(conversation.messages)
    return conversation.num_tokens_at_most


@functools.lru_cache(maxsize=4096)
def _tools_at_most(tools: tuple[str, ...]) -> int:
    """The same of tools, which many conversations share."""
    return _measure(tools, (), _bound)


def _measure(tools: Sequence[str], messages: Sequence[Message], size: Callable[[str], int]) -> int:
    num = _TOOLS_TOKENS + sum(size(tool) + 1 for tool in tools) if tools else 0
    for message in messages:
        num += _MESSAGE_TOKENS + size(message["content"] or "")
        for call in message.get("tool_calls") or ():
            num += _TOOL_CALL_TOKENS + size(call["function"]["name"]) + size(call["function"]["arguments"])
    return num


def _bound(text: str) -> int:
    """A text has no more tokens than bytes; most histories are far enough from the limit for that to do."""
    if isinstance(text, TokenText):
        return len(text.token_ids) // tokens.TOKEN_BYTES
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
