"""JSON that a schema allows, and text that a pattern matches: what guided decoding makes a model write. Seeded.

Covers what tools' schemas use: types, enums, constants, references, combinations, bounds, patterns, formats.
A schema that contradicts itself gets a value of the right type.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from mockserver.api.errors import ApiError
from mockserver.filler import filler

_TYPES = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))
_MAX_DEPTH = 8
_FORMATS = {
    "date-time": "2026-05-17T09:30:00Z",
    "date": "2026-05-17",
    "time": "09:30:00Z",
    "duration": "PT30M",
    "email": "reader@example.com",
    "idn-email": "reader@example.com",
    "hostname": "host.example.com",
    "ipv4": "192.0.2.17",
    "ipv6": "2001:db8::17",
    "uri": "https://example.com/page",
    "url": "https://example.com/page",
    "uri-reference": "/page",
    "uuid": "6f1c2f0e-5a3b-4b7e-9d4a-0c2d4e6f8a1b",
    "json-pointer": "/a/b",
    "regex": "[a-z]+",
}
_WORDS = ("alpha", "bravo", "carbon", "delta", "ember", "fjord", "garnet", "harbor", "indigo", "juniper")


def check_schema(schema: Any, root: Any = None) -> None:
    """Refuse what vLLM's grammar compiler refuses: types unknown to JSON, pointers to nothing, empty choices."""
    if not isinstance(schema, Mapping):
        return
    root = schema if root is None else root
    kind = schema.get("type")
    kinds = [kind] if isinstance(kind, str) else kind if isinstance(kind, list) else []
    for name in kinds:
        if isinstance(name, str) and name not in _TYPES:
            raise ApiError(f"Grammar error: Invalid type: {name}")
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#") and _target(root, reference) is _NOTHING:
        raise ApiError(f"Grammar error: Pointer '{reference.removeprefix('#')}' does not exist")
    if schema.get("enum") == [] or schema.get("anyOf") == []:
        raise ApiError("Grammar error: Unsatisfiable schema: anyOf is empty")
    for key, value in schema.items():
        if key in ("properties", "patternProperties", "$defs", "definitions") and isinstance(value, Mapping):
            for one in value.values():
                check_schema(one, root)
        elif key in ("items", "additionalProperties", "not", "if", "then", "else", "contains"):
            check_schema(value, root)
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems") and isinstance(value, list):
            for one in value:
                check_schema(one, root)


_NOTHING = object()


def _target(root: Any, reference: str) -> Any:
    """What a pointer within the schema points at."""
    node = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        if not part:
            continue
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdigit() and int(key) < len(node):
            node = node[int(key)]
        else:
            return _NOTHING
    return node


def instance(schema: Any, rng: Random) -> Any:
    """A value that ``schema`` allows."""
    return _Maker(schema, rng).value(schema, 0)


class _Maker:
    def __init__(self, root: Any, rng: Random) -> None:
        self._root = root
        self._rng = rng

    def value(self, schema: Any, depth: int) -> Any:  # noqa: PLR0911  # one return a kind
        if not isinstance(schema, Mapping):
            return self._string({})
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return self._rng.choice(schema["enum"])
        for key in ("anyOf", "oneOf"):
            options = schema.get(key)
            if isinstance(options, list) and options:
                rest = {name: value for name, value in schema.items() if name != key}
                return self.value(_merged(rest, self._option(options, depth)), depth)
        kind = self._kind(schema, depth)
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        if kind == "string":
            return self._string(schema)
        if kind == "integer":
            return self._integer(schema)
        if kind == "number":
            return self._number(schema)
        return self._rng.random() < 0.5 if kind == "boolean" else None

    def _option(self, options: Sequence[Any], depth: int) -> Any:
        if depth < _MAX_DEPTH:
            return self._rng.choice(options)
        simple = [
            one for one in options if isinstance(one, Mapping) and one.get("type") in _TYPES - {"object", "array"}
        ]
        return simple[0] if simple else options[0]

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        for _ in range(32):
            if isinstance(schema.get("$ref"), str):
                target = _target(self._root, schema["$ref"])
                target = {} if target is _NOTHING else target
                rest = {key: value for key, value in schema.items() if key != "$ref"}
                schema = _merged(rest, target)
            elif isinstance(schema.get("allOf"), list):
                parts = schema["allOf"]
                schema = {key: value for key, value in schema.items() if key != "allOf"}
                for part in parts:
                    schema = _merged(schema, self._resolved(part) if isinstance(part, Mapping) else {})
            else:
                break
        return schema

    def _kind(self, schema: Mapping[str, Any], depth: int) -> str:
        kind = schema.get("type")
        if isinstance(kind, list) and kind:
            kinds = [one for one in kind if one != "null"] or kind
            return str(self._rng.choice(kinds)) if depth < _MAX_DEPTH else str(kind[-1])
        if isinstance(kind, str):
            return kind
        if "properties" in schema or "required" in schema or "additionalProperties" in schema:
            return "object"
        if "items" in schema or "prefixItems" in schema:
            return "array"
        if "minimum" in schema or "maximum" in schema or "multipleOf" in schema:
            return "number"
        return "string"

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        required = [name for name in schema.get("required") or () if isinstance(name, str)]
        made = {}
        for name, one in properties.items():
            if name in required or (depth < 3 and self._rng.random() < 0.5):
                made[name] = self.value(one, depth + 1)
        extra = schema.get("additionalProperties")
        for name in required:
            if name not in made:
                made[name] = self.value(extra if isinstance(extra, Mapping) else {}, depth + 1)
        num_wanted = schema.get("minProperties")
        for number in range(num_wanted - len(made) if isinstance(num_wanted, int) else 0):
            spare = next((name for name in properties if name not in made), None)
            if spare is not None:
                made[spare] = self.value(properties[spare], depth + 1)
            elif extra is not False:
                made[f"key_{number}"] = self.value(extra if isinstance(extra, Mapping) else {}, depth + 1)
        return made

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        prefix = schema.get("prefixItems")
        made = [self.value(one, depth + 1) for one in prefix] if isinstance(prefix, list) else []
        least = schema.get("minItems", 0)
        most = schema.get("maxItems", max(least, 3))
        items = schema.get("items", {})
        if items is False:
            return made
        num_wanted = max(least, min(most, self._rng.randint(1, 3))) if depth < _MAX_DEPTH else least
        for _ in range(20 * max(1, num_wanted)):
            if len(made) >= num_wanted:
                break
            item = self.value(items, depth + 1)
            if not (schema.get("uniqueItems") and item in made):
                made.append(item)
        return made

    def _string(self, schema: Mapping[str, Any]) -> str:
        if isinstance(schema.get("pattern"), str):
            return matching(schema["pattern"], self._rng)
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        text = " ".join(self._rng.choice(_WORDS) for _ in range(self._rng.randint(1, 3)))
        least = schema.get("minLength", 0)
        most = schema.get("maxLength")
        while len(text) < least:
            text += " " + self._rng.choice(_WORDS)
        return text if most is None else text[: int(most)]

    def _bounds(self, schema: Mapping[str, Any], smallest_step: float) -> tuple[float, float]:
        low, high = schema.get("minimum"), schema.get("maximum")
        above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
        if isinstance(above, int | float) and not isinstance(above, bool):
            low = above + smallest_step if low is None else max(low, above + smallest_step)
        if isinstance(below, int | float) and not isinstance(below, bool):
            high = below - smallest_step if high is None else min(high, below - smallest_step)
        if low is None:
            low = 0 if high is None or high >= 0 else high - 100
        if high is None:
            high = low + 100
        return low, max(low, high)

    def _integer(self, schema: Mapping[str, Any]) -> int:
        low, high = self._bounds(schema, 1)
        step = schema.get("multipleOf", 1)
        step = int(step) if isinstance(step, int | float) and step >= 1 and step == int(step) else 1
        first, last = -(-int(-(-low // 1)) // step), int(high // 1) // step
        return step * self._rng.randint(first, max(first, last))

    def _number(self, schema: Mapping[str, Any]) -> float:
        step = schema.get("multipleOf")
        if isinstance(step, int | float) and step > 0:
            low, high = self._bounds(schema, step)
            first, last = int(-(-low // step)), int(high // step)
            return step * self._rng.randint(first, max(first, last))
        low, high = self._bounds(schema, 0.25)
        value = round(self._rng.uniform(low, high), 2)
        return value if low <= value <= high else low


def _merged(one: Mapping[str, Any], other: Any) -> dict[str, Any]:
    """Both schemas at once, as far as that can be said in one."""
    merged = dict(one)
    for key, value in other.items() if isinstance(other, Mapping) else ():
        mine = merged.get(key)
        if key == "properties" and isinstance(mine, Mapping) and isinstance(value, Mapping):
            merged[key] = {**mine, **value}
        elif key == "required" and isinstance(mine, list) and isinstance(value, list):
            merged[key] = [*mine, *(name for name in value if name not in mine)]
        elif key in ("minimum", "minLength", "minItems") and mine is not None:
            merged[key] = max(mine, value)
        elif key in ("maximum", "maxLength", "maxItems") and mine is not None:
            merged[key] = min(mine, value)
        elif key == "enum" and isinstance(mine, list) and isinstance(value, list):
            merged[key] = [item for item in mine if item in value] or value
        else:
            merged[key] = value
    return merged


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
