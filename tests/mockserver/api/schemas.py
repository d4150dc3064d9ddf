"""Schemas as a stranger might write them, each with a value that it allows: strategies for hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "query", "limit", "path", "options", "x-y", "été", "$ref_", "0"])
Schema = dict[str, Any]
PATTERNS = [
    r"^[a-z]+$",
    r"^\d{3}-\d{4}$",
    r"^(yes|no)$",
    r"[A-Z]{2,5}",
    r"^\S+@\S+\.com$",
    r"^[^\s/]{1,8}(/[^\s/]{1,8})*$",
]
FORMATS = ["date-time", "date", "time", "email", "uri", "uuid", "ipv4", "ipv6", "hostname", "duration", "made-up"]
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.text(max_size=3), st.sampled_from([0.5, -1.25]))


@st.composite
def integers(draw: st.DrawFn) -> Schema:
    """With bounds of every kind, and a multiple between them."""
    low = draw(st.integers(-1000, 1000))
    high = low + draw(st.integers(0, 100))
    schema: Schema = {"type": "integer"}
    schema |= draw(st.sampled_from([{}, {"minimum": low}, {"exclusiveMinimum": low - 1}, {"minimum": low - 0.5}]))
    schema |= draw(st.sampled_from([{}, {"maximum": high}, {"exclusiveMaximum": high + 1}, {"maximum": high + 0.5}]))
    if draw(st.booleans()):
        schema["multipleOf"] = draw(st.integers(1, max(1, high - low)))
        if "minimum" in schema or "exclusiveMinimum" in schema:
            schema.pop("maximum", None)
            schema.pop("exclusiveMaximum", None)
    return schema


@st.composite
def numbers(draw: st.DrawFn) -> Schema:
    """With bounds that may be very near each other."""
    low = draw(st.floats(-1e6, 1e6, allow_nan=False))
    width = draw(st.sampled_from([0.001, 0.1, 1.0, 250.0]))
    schema: Schema = {"type": "number"}
    schema |= draw(st.sampled_from([{}, {"minimum": low}, {"exclusiveMinimum": low}]))
    schema |= draw(st.sampled_from([{}, {"maximum": low + width}, {"exclusiveMaximum": low + width}]))
    return schema


@st.composite
def strings(draw: st.DrawFn) -> Schema:
    """With lengths, or a pattern, or a format."""
    schema: Schema = {"type": "string"}
    kind = draw(st.sampled_from(["plain", "length", "pattern", "format"]))
    if kind == "length":
        least = draw(st.integers(0, 60))
        schema |= draw(st.sampled_from([{}, {"minLength": least}]))
        schema |= draw(st.sampled_from([{}, {"maxLength": least + draw(st.integers(0, 5))}]))
    elif kind == "pattern":
        schema["pattern"] = draw(st.sampled_from(PATTERNS))
    elif kind == "format":
        schema["format"] = draw(st.sampled_from(FORMATS))
    return schema


def enums() -> st.SearchStrategy[Schema]:
    """One of several values, or just one."""
    several = st.lists(SCALARS, min_size=1, max_size=4).map(lambda values: {"enum": values})
    return st.one_of(several, SCALARS.map(lambda value: {"const": value}))


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Schema]) -> Schema:
    """With properties, some required, some of those undescribed; closed, open, or open to one kind."""
    properties = draw(st.dictionaries(NAMES, inner, max_size=4))
    schema: Schema = {"type": "object", "properties": properties}
    required = [name for name in sorted(properties) if draw(st.booleans())]
    extra = draw(st.one_of(st.just(None), st.booleans(), inner))
    if extra is not None:
        schema["additionalProperties"] = extra
    if extra is not False and draw(st.booleans()):
        required.append("undescribed")
    if draw(st.booleans()) or required:
        schema["required"] = required
    num_possible = len(properties) + (0 if extra is False else 3)
    if draw(st.booleans()):
        schema["minProperties"] = draw(st.integers(0, num_possible))
    if draw(st.booleans()):
        schema["maxProperties"] = draw(st.integers(max(len(required), schema.get("minProperties", 0)), 8))
    return schema


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[Schema]) -> Schema:
    """With as many items as it says, the first of kinds of their own, or all different."""
    schema: Schema = {"type": "array"}
    if draw(st.booleans()):
        schema["uniqueItems"] = True
        schema["items"] = draw(st.sampled_from([{"type": "integer"}, {"type": "string"}, {"enum": [1, 2, 3, 4, 5]}]))
    elif draw(st.booleans()):
        schema["items"] = draw(inner)
    if "uniqueItems" not in schema and draw(st.booleans()):
        schema["prefixItems"] = draw(st.lists(inner, min_size=1, max_size=3))
    least = draw(st.integers(0, 5))
    schema |= draw(st.sampled_from([{}, {"minItems": least}]))
    schema |= draw(st.sampled_from([{}, {"maxItems": max(least, draw(st.integers(0, 5)))}]))
    return schema


@st.composite
def combinations(draw: st.DrawFn, inner: st.SearchStrategy[Schema]) -> Schema:
    """Any of several, exactly one of those that exclude each other, or all of several that agree."""
    kind = draw(st.sampled_from(["anyOf", "oneOf", "allOf", "nullable"]))
    if kind == "anyOf":
        return {"anyOf": draw(st.lists(inner, min_size=1, max_size=3))}
    if kind == "oneOf":
        return {"oneOf": [draw(integers()), draw(strings()), {"type": "null"}, draw(objects(inner))]}
    if kind == "allOf":
        one, other = draw(st.dictionaries(NAMES, inner, max_size=2)), draw(inner)
        parts = [{"type": "object", "properties": one, "required": sorted(one)}, {"properties": {"only here": other}}]
        return {"allOf": [*parts, {"required": ["only here"]}]}
    return {"type": [draw(st.sampled_from(["string", "integer", "boolean"])), "null"]}


SCHEMAS_OF_ALL_KINDS: st.SearchStrategy[Schema] = st.recursive(
    st.one_of(integers(), numbers(), strings(), enums(), st.sampled_from([{}, {"type": "boolean"}, {"type": "null"}])),
    lambda inner: st.one_of(objects(inner), arrays(inner), combinations(inner)),
    max_leaves=8,
)


@st.composite
def with_definitions(draw: st.DrawFn) -> Schema:
    """A tree of nodes whose values have a schema of their own, referred to by name."""
    node = {
        "type": "object",
        "properties": {
            "value": {"$ref": "#/$defs/value"},
            "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
        },
        "required": ["value"],
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/node"}, "more": draw(SCHEMAS_OF_ALL_KINDS)},
        "required": ["root", "more"],
        "$defs": {"node": node, "value": draw(SCHEMAS_OF_ALL_KINDS)},
    }
