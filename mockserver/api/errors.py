"""What goes wrong between a client and this server, in vLLM's words and shapes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import orjson
from pydantic import ValidationError

_MAX_REPORTED_ERRORS = 10
_MAX_INPUT_CHARS = 200
_MAX_ERROR_CHARS = 1000


class ApiError(Exception):
    """A request that gets an answer other than 200; the client meets its status and body."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        type: str = "BadRequestError",  # noqa: A002  # the field's name on the wire
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = type
        self.param = param
        self.headers = headers or {}

    def body(self) -> bytes:
        """The error object as vLLM sends it."""
        error = {
            "message": _sanitized(str(self)),
            "type": self.type,
            "param": self.param,
            "code": self.status,
        }
        return orjson.dumps({"error": error})


class BadParameter(ApiError):
    """A field of the request has a value that no request may have."""

    def __init__(self, message: str, *, parameter: str | None = None, value: Any = None) -> None:
        extras = []
        if parameter is not None:
            extras.append(f"parameter={parameter}")
        if value is not None:
            extras.append(f"value={value}")
        super().__init__(f"{message} ({', '.join(extras)})" if extras else message, param=parameter)


class EngineRefusal(ApiError):
    """What only the engine finds: a stream has begun by then and carries it as an event."""


class InvalidBody(ApiError):
    """The request's body does not have the shape of the endpoint's."""

    def __init__(self, errors: Sequence[Mapping[str, Any] | str]) -> None:
        super().__init__(_report(errors), type="Bad Request", param=_first_location(errors))


class Detail(ApiError):
    """No such path, or no such method on it: the framework's shape, not OpenAI's."""

    def __init__(
        self, status: HTTPStatus, *, text: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(text or status.phrase, status=status.value, headers=headers)

    def body(self) -> bytes:
        return orjson.dumps({"detail": str(self)})


class Unauthorized(ApiError):
    """The server has keys and the request names none of them."""

    def __init__(self) -> None:
        super().__init__("Unauthorized", status=401)

    def body(self) -> bytes:
        return b'{"error":"Unauthorized"}'


def unknown_model(name: object, served: Sequence[str]) -> ApiError:
    """The answer to a request for a model that is not served here."""
    return ApiError(
        f"The model `{name}` does not exist. Valid aliases: {', '.join(served)}.",
        status=404,
        type="NotFoundError",
        param="model",
    )


def engine_busy() -> ApiError:
    """The answer when the queue is as long as it may be."""
    return ApiError(
        "The engine is currently busy and cannot accept new requests. "
        "Please try again later or on a different instance.",
        status=503,
        type="Service Unavailable",
    )


def invalid_body(error: ValidationError, *, unnamed: frozenset[str] = frozenset()) -> InvalidBody:
    """Pydantic's complaint as vLLM reports it; ``unnamed`` are the union branches that vLLM leaves out of locations."""
    return InvalidBody(
        [
            {**details, "loc": ("body", *(part for part in details["loc"] if part not in unnamed))}
            for details in error.errors(include_url=False)
        ]
    )


def _report(errors: Sequence[Mapping[str, Any] | str]) -> str:
    label = "error" if len(errors) == 1 else "errors"
    lines = [f"{len(errors)} validation {label}:"]
    lines += [f"  {_described(error)}" for error in errors[:_MAX_REPORTED_ERRORS]]
    if len(errors) > _MAX_REPORTED_ERRORS:
        lines.append(f"  ...and {len(errors) - _MAX_REPORTED_ERRORS} more {label}")
    return "\n".join(lines).rstrip()


def _described(error: Mapping[str, Any] | str) -> str:
    if isinstance(error, str):
        text = error
    else:
        shown = dict(error)
        if isinstance(shown.get("loc"), tuple):
            shown["loc"] = _location(shown["loc"])
        if "input" in shown:
            shown["input"] = _summarized(shown["input"])
        text = str(shown)
    return text if len(text) <= _MAX_ERROR_CHARS else text[:_MAX_ERROR_CHARS] + "...[truncated]"


def _summarized(value: object) -> str:
    """What stands for an offending value: never the whole of it."""
    if isinstance(value, list | tuple | set | frozenset | dict):
        return f"<{type(value).__name__} of {len(value)} items>"
    if isinstance(value, bytes | bytearray):
        return f"<{type(value).__name__} of {len(value)} bytes>"
    try:
        text = str(value)
    except ValueError:  # an integer too long to print
        return f"<{type(value).__name__}>"
    return text if len(text) <= _MAX_INPUT_CHARS else text[:_MAX_INPUT_CHARS] + "...[truncated]"


# Names that pydantic puts into a location for its own wrappers and union branches: no field of the request.
_WRAPPER_NAMES = frozenset(
    (
        *("function-wrap", "function-after", "function-before", "function-plain", "json-or-python", "lax-or-strict"),
        *("chain", "default", "nullable", "tagged-union", "union", "call", "arguments", "is-instance", "is-subclass"),
        *("callable", "str", "int", "float", "bool", "bytes", "bytearray", "list", "tuple", "dict", "set", "frozenset"),
        *("complex", "none", "nonetype"),
    )
)
_BRACKETS = re.compile(r"[\[\]{}()]")


def _location(parts: Sequence[object]) -> str:
    names = [str(part) for part in parts]
    kept = [name for name in names if not _BRACKETS.search(name) and name.lower() not in _WRAPPER_NAMES]
    return ".".join(kept or names)


def _first_location(errors: Sequence[Mapping[str, Any] | str]) -> str | None:
    first = errors[0] if errors else None
    location = first.get("loc") if isinstance(first, Mapping) else None
    if isinstance(location, tuple):
        return _location(location)
    return location if isinstance(location, str) else None


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+>")
_PATH = re.compile(r"/(?:home|usr|opt|var|tmp|root|lib|mnt|srv)(?:/[\w.\-]+)+|(?:/[\w\-]+)+/[\w\-]+\.\w+")


def _sanitized(message: str) -> str:
    """vLLM strips addresses and file paths from error texts, a client's own included."""
    return _PATH.sub("<path>", _ADDRESS.sub(">", message)).strip()
