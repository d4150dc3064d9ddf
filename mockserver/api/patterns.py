"""Text that a regular expression matches: seeded, short, printable."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from mockserver.filler import filler


def matching(pattern: str, rng: Random) -> str:
    """Text that ``pattern`` matches in full; some words where the pattern is beyond us."""
    try:
        parsed = re._parser.parse(pattern)  # type: ignore[attr-defined]  # the only parser of Python's patterns
        text = _matching_items(parsed, rng, {})
    except (re.error, RecursionError, OverflowError, ValueError, KeyError):
        return filler(f"{rng.random()}", 3).strip()
    return text


_CATEGORY_CHARS = {
    "CATEGORY_DIGIT": string.digits,
    "CATEGORY_SPACE": " ",
    "CATEGORY_WORD": string.ascii_lowercase + string.digits + "_",
    "CATEGORY_NOT_DIGIT": string.ascii_lowercase,
    "CATEGORY_NOT_SPACE": string.ascii_lowercase + string.digits,
    "CATEGORY_NOT_WORD": "-. ",
}
_PRINTABLE = string.ascii_letters + string.digits + " _-.,:;!?/"


def _matching_items(items: Iterable[Any], rng: Random, groups: dict[int, str]) -> str:
    return "".join(_MAKERS[str(op)](argument, rng, groups) for op, argument in items)


def _repeated(argument: Any, rng: Random, groups: dict[int, str]) -> str:
    least, most, items = argument
    count = rng.randint(least, min(most, max(least, 4)))
    return "".join(_matching_items(items, rng, groups) for _ in range(count))


def _group(argument: Any, rng: Random, groups: dict[int, str]) -> str:
    number, items = argument[0], argument[-1]
    text = groups[number] = _matching_items(items, rng, groups)
    return text


def _nothing(_argument: Any, _rng: Random, _groups: dict[int, str]) -> str:
    return ""


_MAKERS: dict[str, Callable[[Any, Random, dict[int, str]], str]] = {
    "LITERAL": lambda code, _rng, _groups: chr(code),
    "NOT_LITERAL": lambda code, rng, _groups: rng.choice([char for char in _PRINTABLE if char != chr(code)]),
    "ANY": lambda _argument, rng, _groups: rng.choice(string.ascii_lowercase),
    "IN": lambda items, rng, _groups: _from_set(items, rng),
    "CATEGORY": lambda name, rng, _groups: rng.choice(_CATEGORY_CHARS[str(name)]),
    "BRANCH": lambda argument, rng, groups: _matching_items(rng.choice(argument[1]), rng, groups),
    "MAX_REPEAT": _repeated,
    "MIN_REPEAT": _repeated,
    "POSSESSIVE_REPEAT": _repeated,
    "SUBPATTERN": _group,
    "ATOMIC_GROUP": _matching_items,
    "GROUPREF": lambda number, _rng, groups: groups[number],
    "AT": _nothing,
    "ASSERT": _nothing,
    "ASSERT_NOT": _nothing,
}


def _from_set(items: Sequence[Any], rng: Random) -> str:
    negated = str(items[0][0]) == "NEGATE"
    chars: list[str] = []
    for op, argument in items:
        name = str(op)
        if name == "LITERAL":
            chars.append(chr(argument))
        elif name == "RANGE":
            first, last = argument
            chars += [chr(code) for code in range(first, min(last, first + 255) + 1)]
        elif name == "CATEGORY":
            chars += _CATEGORY_CHARS[str(argument)]
    if negated:
        chars = [char for char in _PRINTABLE if char not in chars]
    return rng.choice(chars)
