"""Ways to damage a recording: what disks, editors and other people's exporters do to files."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

STRANGE: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1.5,
    10**30,
    -(10**30),
    1e308,
    "",
    "text",
    "\ud800",
    "9" * 400,
    [],
    {},
    [None],
    [[]],
    {"a": {}},
    [1, "two", None],
)
_DEEP = "@deep@"


def damaged(content: str, rng: random.Random) -> bytes:
    """``content`` with one to three damages."""
    data = content.encode()
    for _ in range(rng.choice([1, 1, 2, 3])):
        way = rng.randrange(8)
        if way == 0:
            data = data[: rng.randrange(len(data) + 1)]
        elif way == 1 and data:
            changed = bytearray(data)
            for _ in range(rng.randint(1, 8)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            data = bytes(changed)
        else:
            data = _with_strange_fields(data, rng)
    return data


def _with_strange_fields(data: bytes, rng: random.Random) -> bytes:
    """Some JSON value in it with fields removed, of another type, or nested deep."""
    try:
        text = data.decode()
        values = [json.loads(text)] if not text.startswith("{") or text.count("\n") <= 1 else None
    except (ValueError, RecursionError):
        values = None
    if values is None:
        values = []
        for line in data.split(b"\n"):
            try:
                values.append(json.loads(line))
            except (ValueError, RecursionError):
                continue
    if not values:
        return data
    changed = json.loads(json.dumps(rng.choice(values)))  # copy.deepcopy does not go as deep as JSON does
    holders = [holder for holder in _holders(changed) if holder]
    if holders:
        holder = rng.choice(holders)
        key = rng.choice(list(holder) if isinstance(holder, dict) else list(range(len(holder))))
        if rng.random() < 0.3:
            del holder[key]
        elif rng.random() < 0.1:
            holder[key] = _DEEP
        else:
            holder[key] = copy.deepcopy(rng.choice(STRANGE))
    at = rng.randrange(len(values))
    values[at] = changed
    depth = rng.choice([5, 400, 1000, 20_000])
    deep = b"[" * depth + b"]" * depth
    return b"\n".join(json.dumps(value).encode() for value in values).replace(json.dumps(_DEEP).encode(), deep)


def _holders(value: Any) -> list[Any]:
    """All objects and lists in ``value``."""
    found: list[Any] = []
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, dict | list):
            found.append(one)
            todo += one.values() if isinstance(one, dict) else one
    return found
