"""JSON that a schema allows: what guided decoding makes a model write. Seeded.

Covers what tools' schemas use: types, enums, constants, references, combinations, bounds, patterns, formats. Not
covered: ``not``, ``if``, ``contains``, and branches of ``oneOf`` that allow the same value. A schema that contradicts
itself gets a value of the right type. Why this is no library: docs/compatibility.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from mockserver.api.errors import ApiError
from mockserver.api.patterns import matching

_TYPES = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))
_MAX_DEPTH = 8
_MAX_VALUES = 1000
"""From this depth or number of values on, only what must be there is made: schemas may refer to themselves."""
_ENDLESS = 4
"""So many times as deep or as many: what must be there has no end."""
_MOST = 100_000
"""Of items or characters: nobody waits for more."""
_NUM_TRIES = 20
"""Draws, where not every draw fits: unequal items, patterns with a length, multiples of fractions."""
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
        self._num_values = 0

    def value(self, schema: Any, depth: int) -> Any:  # noqa: PLR0911  # one return a kind
        self._num_values += 1
        if not isinstance(schema, Mapping):
            return self._string({})
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return self._rng.choice(_of_type(schema["enum"], schema.get("type")))
        for key in ("anyOf", "oneOf"):
            options = schema.get(key)
            if isinstance(options, list) and options:
                rest = {name: value for name, value in schema.items() if name != key}
                return self.value(_merged(rest, self._option(options, depth)), depth)
        kind = self._kind(schema, depth)
        is_endless = depth >= _ENDLESS * _MAX_DEPTH or self._num_values >= _ENDLESS * _MAX_VALUES
        if kind == "object":
            return {} if is_endless else self._object(schema, depth)
        if kind == "array":
            return [] if is_endless else self._array(schema, depth)
        if kind == "string":
            return self._string(schema)
        if kind == "integer":
            return self._integer(schema)
        if kind == "number":
            return self._number(schema)
        return self._rng.random() < 0.5 if kind == "boolean" else None

    def _is_enough(self, depth: int) -> bool:
        return depth >= _MAX_DEPTH or self._num_values >= _MAX_VALUES

    def _option(self, options: Sequence[Any], depth: int) -> Any:
        options = [one for one in options if one is not False] or options
        if not self._is_enough(depth):
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
            return str(kind[-1] if self._is_enough(depth) else self._rng.choice(kinds))
        if isinstance(kind, str):
            return kind
        return next((kind for keys, kind in _KIND_BY_KEYS if not keys.isdisjoint(schema)), "string")

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties = _mapping(schema.get("properties"))
        required = [name for name in schema.get("required") or () if isinstance(name, str)]
        num_missing = len(required)
        most = _count(schema, "maxProperties", math.inf)
        made: dict[str, Any] = {}
        for name, one in properties.items():
            if name in required:
                num_missing -= 1
            elif (
                one is False
                or depth >= 3
                or self._num_values >= _MAX_VALUES
                or self._rng.random() >= 0.5
                or len(made) + num_missing >= most
            ):
                continue
            made[name] = self.value(one, depth + 1)
        spare = (name for name, one in properties.items() if one is not False)
        more = (f"key_{number}" for number in range(_MAX_VALUES) if _schema_of(f"key_{number}", schema) is not False)
        for name in (*required, *self._added(made, _count(schema, "minProperties", 0), (*required, *spare), more)):
            if name not in made:
                made[name] = self.value(_schema_of(name, schema), depth + 1)
        return made

    @staticmethod
    def _added(made: Mapping[str, Any], least: float, spare: Sequence[str], more: Iterator[str]) -> Iterator[str]:
        """Names for as many properties as there must be at least: described ones, then others."""
        names = dict.fromkeys((*made, *spare))
        yield from list(names)[: int(least)]
        for _, name in zip(range(int(least) - len(names)), more, strict=False):
            yield name

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        prefix = schema.get("prefixItems")
        prefix = prefix if isinstance(prefix, list) else []
        least, most = int(_count(schema, "minItems", 0)), _count(schema, "maxItems", math.inf)
        items = schema.get("items", {})
        num_wanted = least if self._is_enough(depth) else max(least, self._rng.randint(1, 3), len(prefix))
        if items is False:
            num_wanted = min(num_wanted, len(prefix))
        num_wanted = int(min(num_wanted, most))
        made: list[Any] = []
        num_tries = _NUM_TRIES
        while len(made) < num_wanted and num_tries:
            item = self.value(prefix[len(made)] if len(made) < len(prefix) else items, depth + 1)
            if schema.get("uniqueItems") and any(_is_same(item, other) for other in made):
                num_tries -= 1
            else:
                made.append(item)
        return made

    def _string(self, schema: Mapping[str, Any]) -> str:
        least, most = _count(schema, "minLength", 0), _count(schema, "maxLength", math.inf)
        if isinstance(schema.get("pattern"), str):
            for _ in range(_NUM_TRIES):
                text = matching(schema["pattern"], self._rng)
                if least <= len(text) <= most:
                    break
            return text
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        text = " ".join(self._rng.choice(_WORDS) for _ in range(self._rng.randint(1, 3)))
        while len(text) < least:
            text += " " + self._rng.choice(_WORDS)
        return text if len(text) <= most else text[: int(most)]

    def _integer(self, schema: Mapping[str, Any]) -> int:
        step = schema.get("multipleOf", 1)
        step = int(step) if isinstance(step, int | float) and step >= 1 and step == int(step) else 1
        return step * self._multiple(_bounds(schema, 100 * step), step)

    def _number(self, schema: Mapping[str, Any]) -> float:
        step = schema.get("multipleOf")
        if isinstance(step, int | float) and step > 0:
            bounds = _bounds(schema, 100 * step)
            for _ in range(_NUM_TRIES):
                value = step * self._multiple(bounds, step)
                if value / step == int(value / step):  # else a reader would not find it a multiple
                    break
            return value
        low, high = _bounds(schema, 100)
        drawn = self._rng.uniform(low, high)
        rounded = round(drawn, 2)
        return rounded if low <= rounded <= high else drawn

    def _multiple(self, bounds: tuple[float, float], step: float) -> int:
        """How often ``step`` fits into a number within the bounds."""
        first, last = math.ceil(bounds[0] / step), math.floor(bounds[1] / step)
        return self._rng.randint(first, max(first, last))


_KIND_BY_KEYS = (
    (frozenset(("properties", "required", "additionalProperties", "minProperties", "patternProperties")), "object"),
    (frozenset(("items", "prefixItems", "minItems", "uniqueItems")), "array"),
    (frozenset(("minimum", "maximum", "multipleOf", "exclusiveMinimum", "exclusiveMaximum")), "number"),
)
"""What a schema that names no type is about."""


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _count(schema: Mapping[str, Any], key: str, default: float) -> float:
    """How many a schema says there must or may be; ``default`` where it says nothing, or nonsense."""
    value = schema.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        return default
    return min(value, _MOST)


def _of_type(values: list[Any], kind: Any) -> list[Any]:
    """Those of ``values`` that a schema's type allows too; all where that is none."""
    kinds = kind if isinstance(kind, list) else [kind]
    return [value for value in values if _type_of(value, kinds) in kinds] or values


def _type_of(value: Any, kinds: Sequence[Any]) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer" if "integer" in kinds else "number"
    names = {float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _schema_of(name: str, schema: Mapping[str, Any]) -> Any:
    """What a property of this name must be."""
    properties = _mapping(schema.get("properties"))
    if name in properties:
        return properties[name]
    for pattern, one in _mapping(schema.get("patternProperties")).items():
        with suppress(re.error):  # not every pattern of JavaScript is one of Python
            if re.search(pattern, name):
                return one
    return schema.get("additionalProperties", {})


def _is_same(one: Any, other: Any) -> bool:
    """Whether two values are the same to JSON, which does not take true for 1."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _bounds(schema: Mapping[str, Any], span: float) -> tuple[float, float]:
    """The smallest and the largest number that are allowed, ``span`` apart where only one of them is given."""
    is_whole = schema.get("type") == "integer"
    low = _tightest(schema, "minimum", "exclusiveMinimum", is_whole=is_whole, sign=1)
    high = _tightest(schema, "maximum", "exclusiveMaximum", is_whole=is_whole, sign=-1)
    if low is None:
        low = 0 if high is None or high >= 0 else high - span
    if high is None:
        high = low + span
    return low, max(low, high)


def _tightest(schema: Mapping[str, Any], closed: str, is_open: str, *, is_whole: bool, sign: int) -> float | None:
    """A bound from the keys that say it, moved inwards where it may not be reached itself."""
    found = []
    for key in (closed, is_open):
        bound = schema.get(key)
        if isinstance(bound, bool) or not isinstance(bound, int | float):
            continue
        if is_whole:
            inner = sign * math.ceil(sign * bound)
            bound = inner + sign if key == is_open and inner == bound else inner
        elif key == is_open:
            bound = math.nextafter(bound, sign * math.inf)
        found.append(sign * bound)
    return sign * max(found) if found else None


def _merged(one: Mapping[str, Any], other: Any) -> dict[str, Any]:
    """Both schemas at once, as far as that can be said in one."""
    merged = dict(one)
    for key, value in other.items() if isinstance(other, Mapping) else ():
        mine = merged.get(key)
        merge = _MERGES.get(key)
        merged[key] = value if merge is None or type(mine) is not type(value) else merge(mine, value)
    return merged


def _all_properties(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    both = {name: _merged(one[name], other[name]) for name in one if isinstance(other.get(name), Mapping)}
    return {**one, **other, **{name: schema for name, schema in both.items() if isinstance(one[name], Mapping)}}


_MERGES: dict[str, Callable[[Any, Any], Any]] = {
    "properties": _all_properties,
    "required": lambda one, other: [*one, *(name for name in other if name not in one)],
    "enum": lambda one, other: [item for item in one if item in other] or other,
    "items": _merged,
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
}
"""How two schemas' words about the same thing become one; of other words the last counts."""
