"""Reading fields of foreign JSON: the value in the type it should have, or BadRecord that says what is wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from traces.importers.log import BadRecord

_LARGEST_NUMBER = 2**53


def get_object(record: Any, key: str) -> dict[str, Any]:
    """``record[key]`` if it is an object; an empty one where it is missing or null."""
    value = get(record, key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadRecord(f"{key!r} must be an object, got {kind_of(value)}")
    return value


def get_list(record: Any, key: str) -> list[Any]:
    """``record[key]`` if it is a list; an empty one where it is missing or null."""
    value = get(record, key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadRecord(f"{key!r} must be a list, got {kind_of(value)}")
    return value


def get_text(record: Any, key: str, default: str = "") -> str:
    """``record[key]`` if it is a string; ``default`` where it is missing or null."""
    value = get(record, key)
    if value is None:
        return default
    if not isinstance(value, str):
        raise BadRecord(f"{key!r} must be a string, got {kind_of(value)}")
    return value


def get_number(record: Any, key: str) -> float | None:
    """``record[key]`` if it is a number of sensible size; None where it is missing or null."""
    value = get(record, key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRecord(f"{key!r} must be a number, got {kind_of(value)}")
    if not -_LARGEST_NUMBER < value < _LARGEST_NUMBER:
        raise BadRecord(f"{key!r} is far too large")
    return value


def get_count(record: Any, key: str) -> int | None:
    """``record[key]`` if it is a whole number of at least 0; None where it is missing or null."""
    value = get_number(record, key)
    if value is None:
        return None
    if value < 0 or value != int(value):
        raise BadRecord(f"{key!r} must be a whole number of at least 0")
    return int(value)


def get(record: Any, key: str) -> Any:
    """``record[key]``, or None; ``record`` has to be an object."""
    if not isinstance(record, dict):
        raise BadRecord(f"expected an object with {key!r}, got {kind_of(record)}")
    return record.get(key)


def kind_of(value: Any) -> str:
    """What JSON calls the type of ``value``."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    names = {dict: "an object", list: "a list", str: "a string", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)


def get_label(record: Any, key: str) -> str:
    """``record[key]`` as a short text, whether it is a name or a number; empty where it is neither."""
    value = get(record, key)
    return str(value) if isinstance(value, str | int | float) else ""


def get_time(record: Any, key: str) -> float | None:
    """``record[key]`` as seconds since 1970: an ISO 8601 text, or a number of seconds, ms, us or ns."""
    value = get(record, key)
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip().replace("Z", "+00:00"))
            return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
        except (ValueError, OverflowError):
            value = _as_float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e20:
        return None
    for unit, from_here in ((1e9, 1e17), (1e6, 1e14), (1e3, 1e11)):  # 1e11 s is the year 5138, 1e11 ms is 1973
        if abs(value) >= from_here:
            return value / unit
    return float(value)


def _as_float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
