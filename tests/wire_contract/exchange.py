"""A recorded exchange: what was sent to a real vLLM, and what it answered. And the same of ours."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request as it goes over the wire."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    """Parsed JSON, or the text of what is not meant to be JSON; None: no body."""

    def payload(self) -> bytes:
        """The body's bytes."""
        if self.body is None:
            return b""
        return self.body.encode() if isinstance(self.body, str) else json.dumps(self.body).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A response: whole, or as the lines of an event stream."""

    status: int
    headers: Mapping[str, str]
    body: str | None
    lines: tuple[str, ...] | None
    """Non-empty lines of an event stream, comments too."""
    was_left: bool = False
    """The client went away before the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One file of the recording."""

    number: int
    name: str
    note: str
    sent: Sent
    answer: Answer
    num_lines_before_leaving: int | None
    began_at: float
    ended_at: float
    port: str = field(default="")

    @property
    def label(self) -> str:
        """How the report calls it."""
        return f"{self.number:03d}-{self.name}"


def read_exchanges(path: Path) -> Iterator[Exchange]:
    """All exchanges of a directory in their order, or of one file of many lines; other files are passed over."""
    if path.is_file():
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                record = json.loads(line)
                yield _exchange(f"{record['number']:03d}-{record['name']}", record)
        return
    for one in sorted(path.glob("*.json")):
        record = json.loads(one.read_text(encoding="utf-8"))
        if isinstance(record, dict) and "request" in record and record.get("response"):
            yield _exchange(one.stem, record)


def _exchange(label: str, record: dict[str, Any]) -> Exchange:
    request, response = record["request"], record["response"]
    prefix, _, rest = label.partition("-")
    lines = response.get("sse_lines")
    left_after = response.get("client_disconnected_after_events")
    shown = tuple(line for _, line in lines if line) if lines is not None else None
    began_at = record.get("sent_at", 0.0)
    return Exchange(
        number=int(prefix) if prefix.isdigit() else 0,
        name=rest or label,
        note=record.get("note", ""),
        sent=Sent(
            method=request["method"],
            path=request["path"],
            headers=request["headers"],
            body=request.get("json", request.get("body")),
        ),
        answer=Answer(
            status=response["status"],
            headers={name.lower(): value for name, value in response["headers"]},
            body=response.get("body"),
            lines=shown,
            was_left=left_after is not None,
        ),
        num_lines_before_leaving=None if left_after is None else len(shown or ()),
        began_at=began_at,
        ended_at=began_at + response.get("done_ms", 0.0) / 1000,
        port=request["headers"].get("Host", "").rpartition(":")[2],
    )
