"""How a prompt grows: messages are made once and only ever appended.

A message object and the strings in it are created once and used again by every later call, so that whoever
tokenises or serialises a history can know what it has already seen.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from mockserver.filler import filler
from mockserver.tokens import TOKEN_BYTES, TokenText
from traces.prompt_size import END_OF_TURN_TOKENS, END_TOKENS, HEADER_TOKENS
from traces.trajectory import RecordedPrompt, ToolSchema, Turn

Message = dict[str, Any]
"""A chat message in OpenAI's form."""
_AROUND_A_USER_MESSAGE = HEADER_TOKENS + END_TOKENS + HEADER_TOKENS
"""What a prompt that is one user message holds beside its text."""


@dataclass(eq=False, slots=True, weakref_slot=True)
class Conversation:
    """What one agent's next prompt holds: its tools, and its messages so far."""

    tools: tuple[str, ...] = ()
    """Compact JSON per tool."""
    messages: list[Message] = field(default_factory=list)
    num_tokens_at_most: int = 0
    num_measured: int = 0
    """How many messages ``num_tokens_at_most`` is about: loadgen.room keeps both."""
    _tools_json: bytes | None = None
    _messages_json: bytearray = field(default_factory=bytearray)
    _num_serialised: int = 0

    def add(self, message: Message) -> None:
        """The history grows by ``message``, which nobody may change from now on."""
        self.messages.append(message)

    def tools_json(self) -> bytes:
        """The tools as a JSON array; empty bytes where there are none."""
        if self._tools_json is None:
            texts = ",".join(self.tools)
            self._tools_json = f"[{texts}]".encode() if texts else b""
        return self._tools_json

    def messages_json(self) -> bytearray:
        """The messages as a JSON array without its closing bracket; only new messages are serialised."""
        parts = self._messages_json
        for message in self.messages[self._num_serialised :]:
            parts += b"," if parts else b"["
            parts += orjson.dumps(message)
        self._num_serialised = len(self.messages)
        return parts


def system_message(text: str) -> Message:
    """What the agent is told before anything else."""
    return {"role": "system", "content": text}


def user_message(text: str) -> Message:
    """What the user says."""
    return {"role": "user", "content": text}


def assistant_message(turn: Turn) -> Message:
    """What the model said in ``turn``, tool calls included."""
    if not turn.tool_calls:
        return {"role": "assistant", "content": turn.content}
    return {
        "role": "assistant",
        "content": turn.content or None,
        "tool_calls": [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in turn.tool_calls
        ],
    }


def with_text(turn: Turn, seed: str) -> Turn:
    """``turn``, given filler to say where the recording kept only the length of what was said."""
    if turn.content or turn.tool_calls or turn.num_output_tokens is None:
        return turn
    return replace(turn, content=filler(seed, max(turn.num_output_tokens - END_OF_TURN_TOKENS, 0)))


def tool_message(tool_call_id: str, text: str) -> Message:
    """What came back from a tool."""
    return {"role": "tool", "tool_call_id": tool_call_id, "content": text}


def tool_texts(tools: tuple[ToolSchema, ...]) -> tuple[str, ...]:
    """The tools' JSON, as a prompt holds it."""
    return tuple(tool.text for tool in tools)


def text_of_recorded_prompt(prompt: RecordedPrompt, block_hashes: tuple[int, ...]) -> TokenText:
    """What a user message has to say so that the prompt is as long as ``prompt``.

    Its blocks are equal exactly where the recorded hashes (``block_hashes``: all of the prompt's) are equal.
    """
    size = prompt.block_size
    num_tokens = max(prompt.num_tokens - _AROUND_A_USER_MESSAGE, 0)
    num_hashed = min(len(block_hashes) * size, num_tokens)
    blocks = [_block_text(prompt.scope, one, size) for one in block_hashes[: math.ceil(num_hashed / size)]]
    tail = filler(f"tail/{prompt.scope}/{block_hashes[-1:]}/{prompt.num_tokens}", num_tokens - num_hashed)
    ids = b"".join(block.token_ids for block in blocks)[: num_hashed * TOKEN_BYTES]
    text = "".join(blocks)
    if num_hashed < len(blocks) * size:  # the last block is cut: words are tokens, so cut at a word
        text = "".join(f" {word}" for word in text.split()[:num_hashed])
    return TokenText(text + tail, ids + tail.token_ids)


@functools.lru_cache(maxsize=65_536)
def _block_text(scope: str, block_hash: int, num_tokens: int) -> TokenText:
    return filler(f"block/{scope}/{block_hash}", num_tokens)
