"""What a model said, put together from the deltas of a stream. Reasoning is left out: agents do not send it back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loadgen.context import TOKEN_IDS, Message


@dataclass(eq=False, slots=True)
class Said:
    """One answer as far as it has come."""

    texts: list[str] = field(default_factory=list)
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Tool calls by their place in the answer."""
    token_ids: list[int] = field(default_factory=list)

    def take(self, choice: Mapping[str, Any]) -> None:
        """A stream's choice, of chat or of plain completions."""
        if choice.get("index"):
            return
        delta = choice.get("delta")
        if delta is None:
            self.token_ids += choice.get("token_ids") or ()
            self.texts.append(choice.get("text") or "")
            return
        self.texts.append(delta.get("content") or "")
        for place, part in enumerate(delta.get("tool_calls") or ()):
            number = part.get("index")
            self._take_call(place if number is None else number, part)

    def _take_call(self, number: int, part: Mapping[str, Any]) -> None:
        call = self.calls.setdefault(number, {"id": f"call-{number}", "name": "", "arguments": ""})
        function = part.get("function") or {}
        call["id"] = part.get("id") or call["id"]
        call["name"] += function.get("name") or ""
        call["arguments"] += function.get("arguments") or ""

    def message(self) -> Message:
        """The assistant's message, as the next prompt holds it."""
        content = "".join(self.texts)
        message: Message = {"role": "assistant", "content": content}
        if self.calls:
            message["content"] = content or None
            message["tool_calls"] = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": call["arguments"]},
                }
                for _, call in sorted(self.calls.items())
            ]
        if self.token_ids:
            message[TOKEN_IDS] = self.token_ids
        return message
