"""What is made from a schema validates against it; what is made from a pattern matches it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from mockserver.api.errors import ApiError
from mockserver.api.instances import check_schema, instance, matching

SCHEMAS: list[dict[str, Any]] = [
    {"type": "integer", "minimum": 3, "maximum": 4},
    {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 5},
    {"type": "integer", "multipleOf": 7, "minimum": 50, "maximum": 60},
    {"type": "number", "minimum": -1.5, "maximum": -1.25},
    {"type": "number", "exclusiveMinimum": 0, "maximum": 0.5},
    {"type": "string", "minLength": 40, "maxLength": 45},
    {"type": "string", "maxLength": 3},
    {"type": "string", "pattern": "^[A-Z]{3}-\\d{4}$"},
    {"type": "string", "format": "date-time"},
    {"type": "string", "enum": ["a", "b"]},
    {"const": {"a": [1]}},
    {"type": ["string", "null"]},
    {"enum": [1, "x", None]},
    {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    {"oneOf": [{"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]}, {"type": "null"}]},
    {"allOf": [{"type": "object", "required": ["a"]}, {"properties": {"a": {"type": "boolean"}}}]},
    {"type": "array", "items": {"type": "integer"}, "minItems": 5, "maxItems": 6},
    {"type": "array", "items": {"enum": [1, 2, 3, 4]}, "uniqueItems": True, "minItems": 3},
    {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False},
    {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a", "b"],
        "additionalProperties": {"type": "integer"},
    },
    {"type": "object", "properties": {}, "additionalProperties": False},
    {"type": "object", "minProperties": 2, "additionalProperties": {"type": "string"}},
    {
        "$defs": {"p": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
        "$ref": "#/$defs/p",
    },
    {
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "value": {"type": "integer"},
                    "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                },
                "required": ["value", "next"],
            }
        },
        "$ref": "#/$defs/node",
    },
    {"properties": {"a": {"properties": {"b": {"properties": {"c": {"type": "integer"}}, "required": ["c"]}}}}},
    {},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=[json.dumps(schema)[:40] for schema in SCHEMAS])
def test_value_made_from_a_schema_is_valid(schema: dict[str, Any]) -> None:
    Draft202012Validator.check_schema(schema)

    for seed in range(30):
        Draft202012Validator(schema).validate(instance(schema, Random(seed)))


def test_same_seed_makes_the_same_value() -> None:
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in "abcdef"}}

    assert instance(schema, Random("s")) == instance(schema, Random("s"))


def test_arguments_for_every_tool_of_the_recorded_agents_are_valid(shared_dir: Path) -> None:
    files = [
        *(shared_dir / "data" / "toolathlon").glob("hf_record*.json"),
        *(shared_dir / "data" / "atif-harbor" / "golden" / "openhands").glob("*.traces.json"),
    ]
    schemas = {json.dumps(one): one for file in files for one in _tool_schemas(json.loads(file.read_text("utf-8")))}

    for schema in schemas.values():
        check_schema(schema)
        for seed in range(3):
            Draft202012Validator(schema).validate(instance({"type": "object", **schema}, Random(seed)))
    assert len(schemas) > 40


def _tool_schemas(value: Any) -> Iterator[dict[str, Any]]:
    """Parameters of the tools anywhere in a record, JSON within strings too."""
    if isinstance(value, dict):
        if isinstance(value.get("parameters"), dict) and "name" in value:
            yield _without_nulls(value["parameters"])
        for one in value.values():
            yield from _tool_schemas(one)
    elif isinstance(value, list):
        for one in value:
            yield from _tool_schemas(one)
    elif isinstance(value, str) and value[:1] in ("{", "[") and '"parameters"' in value:
        try:
            yield from _tool_schemas(json.loads(value))
        except json.JSONDecodeError:
            return


def _without_nulls(schema: Any) -> Any:
    """Some recorders write every keyword, null where it is not used; null is no valid keyword."""
    if isinstance(schema, dict):
        return {key: _without_nulls(value) for key, value in schema.items() if value is not None}
    return schema


@pytest.mark.parametrize(
    "pattern",
    [
        "[ab]{4}",
        r"\d{3}-\d{4}",
        "(yes|no|maybe)",
        "a+b*c?",
        r"[^a-z]{2}",
        r"(\w)\1",
        ".{3,5}",
        r"\s\S",
        "(?i:ok)",
        "x{0,2}",
    ],
)
def test_text_made_from_a_pattern_matches_it(pattern: str) -> None:
    for seed in range(30):
        assert re.fullmatch(pattern, matching(pattern, Random(seed)))


@pytest.mark.parametrize("pattern", ["(", "(?=x)(?!x)", "[z-a]"])
def test_pattern_beyond_us_still_gives_text(pattern: str) -> None:
    assert isinstance(matching(pattern, Random(0)), str)


def test_type_that_json_does_not_have_is_refused_wherever_it_is() -> None:
    with pytest.raises(ApiError, match="Grammar error: Invalid type: nonsense"):
        check_schema({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "nonsense"}}}})


@pytest.mark.parametrize(
    "schema", [{"type": "integer", "minimum": 5, "maximum": 1}, {"enum": []}, {"$ref": "#/nowhere"}]
)
def test_schema_that_contradicts_itself_still_gives_a_value(schema: dict[str, Any]) -> None:
    instance(schema, Random(0))
