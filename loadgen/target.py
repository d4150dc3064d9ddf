"""The server that calls are sent to, and what is said of one that cannot be used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from loadgen.transports.sse import error_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server to send calls to."""

    base_url: str
    """With or without its ``/v1``."""
    model: str
    headers: Mapping[str, str] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    scripted: bool = True
    """Send along what the answer is to be, as servers of ours understand it."""
    tells_answers: bool = True
    """Of such a server: send the recorded answer itself; else its length alone."""
    exact: bool = False
    """Make a server that is not ours answer as long as the recording did, in text."""
    keeps_answers: bool = False
    """Tell what the server said."""

    @property
    def api_url(self) -> str:
        """The base URL with its ``/v1``."""
        return f"{self.root_url}/v1"

    @property
    def root_url(self) -> str:
        """The base URL without its ``/v1``."""
        return self.base_url.rstrip("/").removesuffix("/v1")


class TargetError(Exception):
    """A server cannot be used as a target; the text says why."""


def one_line(error: BaseException) -> str:
    """An exception as one line that names its kind."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def refusal(status: int, body: bytes) -> str:
    """One line that says why the server refused."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        text = " ".join(body[:200].decode("utf-8", "replace").split())
        return f"HTTP {status}: {text}" if text else f"HTTP {status}"
    if isinstance(said, dict):
        said = said.get("error", said.get("detail", said))
    return f"HTTP {status}: {error_text(said)}"
