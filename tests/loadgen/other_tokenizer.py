"""A tokenizer and chat template that are not ours: three characters a token, and more around a message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

AROUND_A_MESSAGE = 9
AROUND_THE_TOOLS = 60
AROUND_A_TOOL_CALL = 12
OPENING = 4


def count_text(text: str) -> int:
    """Short words are one token; others one for each three characters."""
    return sum(1 if len(word) <= 5 else -(-len(word) // 3) for word in text.split())


def count_prompt(messages: Sequence[dict[str, Any]], tools: Sequence[Any] = ()) -> int:
    """Tokens of a prompt; tools are JSON texts or objects."""
    num = OPENING
    if tools:
        num += AROUND_THE_TOOLS
        num += sum(count_text(str(tool) if isinstance(tool, str) else orjson.dumps(tool).decode()) for tool in tools)
    for message in messages:
        num += AROUND_A_MESSAGE + count_text(message["content"] or "")
        for call in message.get("tool_calls") or ():
            function = call["function"]
            num += AROUND_A_TOOL_CALL + count_text(function["name"]) + count_text(function["arguments"])
    return num
