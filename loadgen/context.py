"""How a prompt grows: messages are made once and only ever appended.

A message object and the strings in it are created once and used again by every later call, so that whoever
tokenises or serialises a history can know what it has already seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from mockserver.filler import filler
from traces.prompt_size import END_OF_TURN_TOKENS
from traces.trajectory import ToolSchema, Turn

Message = dict[str, Any]
"""A chat message in OpenAI's form."""
TOKEN_IDS = "token_ids"
"""Where an assistant message keeps the ids that a server generated; only prompts of ids have any use for them."""


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
