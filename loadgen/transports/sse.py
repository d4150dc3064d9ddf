"""Server-sent events as a server of OpenAI's kind sends them, read from bytes cut anywhere.

What counts is the law of the metrics: content, reasoning and tool-call deltas are tokens, the chunk that only says
the role is not; a chunk can hold several tokens, so their number comes from the usage; an error inside a stream is
an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from loadgen.transports.said import Said

_DONE = b"[DONE]"


@dataclass(eq=False, slots=True)
class EventReader:
    """Bytes in, the data of whole events out."""

    _rest: bytes = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The data of each event that ``data`` completes."""
        if self._rest:
            data = self._rest + data
        if b"\r" in data:
            if data.endswith(b"\r"):  # the other half of this line's end may still come
                self._rest = data
                return []
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *blocks, self._rest = data.split(b"\n\n")
        return [payload for block in blocks if (payload := _data_of(block)) is not None]

    @property
    def is_inside_event(self) -> bool:
        """Whether an event has started and not ended."""
        return bool(self._rest.strip())


def _data_of(block: bytes) -> bytes | None:
    if block.startswith(b"data: ") and b"\n" not in block:  # the usual event
        return block[6:]
    lines = [line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None


@dataclass(eq=False, slots=True)
class StreamedAnswer:
    """What one stream has said so far, and when."""

    first_token_at: float | None = None
    last_token_at: float | None = None
    chunk_at: list[float] = field(default_factory=list)
    finish_reason: str | None = None
    finished_at: float | None = None
    """When the stream said why it ended: the end-of-turn token shows in no chunk of its own."""
    usage: dict[str, Any] | None = None
    extension: dict[str, Any] | None = None
    """What a replayrig server says of its own clock."""
    error: str | None = None
    is_done: bool = False
    said: Said | None = None
    """Where the text is wanted too: what was said so far."""
    _events: EventReader = field(default_factory=EventReader)

    def feed(self, data: bytes, at: float) -> None:
        """``data`` came off the socket at ``at``."""
        for payload in self._events.feed(data):
            if payload == _DONE:
                self.is_done = True
            else:
                self._take(payload, at)

    def close(self) -> None:
        """The stream has ended: one that did not say so itself has failed."""
        if self.error is None and not self.is_done and self.finish_reason is None:
            self.error = "the stream ended before the answer did"

    def _take(self, payload: bytes, at: float) -> None:
        try:
            event = orjson.loads(payload)
        except orjson.JSONDecodeError:
            self.error = self.error or f"an event of the stream is not JSON: {payload[:80]!r}"
            return
        if not isinstance(event, dict):
            self.error = self.error or f"an event of the stream is not an object: {payload[:80]!r}"
            return
        if (error := event.get("error")) is not None:
            self.error = self.error or error_text(error)
            return
        if (usage := event.get("usage")) is not None:
            self.usage = usage
        if (extension := event.get("replayrig")) is not None:
            self.extension = extension
        has_token = False
        for choice in event.get("choices") or ():
            has_token = has_token or _has_token(choice)
            if self.said is not None:
                self.said.take(choice)
            if (reason := choice.get("finish_reason")) is not None:
                self.finish_reason, self.finished_at = reason, at
        if has_token:
            if self.first_token_at is None:
                self.first_token_at = at
            self.last_token_at = at
            self.chunk_at.append(at)


def _has_token(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta")
    if delta is None:
        return bool(choice.get("text"))
    return bool(
        delta.get("content") or delta.get("tool_calls") or delta.get("reasoning") or delta.get("reasoning_content")
    )


def error_text(error: Any) -> str:
    """One line that says what a server's error object says."""
    if isinstance(error, dict):
        message = error.get("message") or error.get("type") or error
        code = error.get("code")
        error = message if code is None else f"{message} ({code})"
    return " ".join(str(error).split())
