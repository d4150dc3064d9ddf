"""What is made from a schema validates against it; what is made from a pattern matches it."""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from mockserver.api.errors import ApiError
from mockserver.api.instances import check_schema, instance
from mockserver.api.patterns import matching
from tests.mockserver.api.schemas import SCHEMAS_OF_ALL_KINDS, with_definitions

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


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(schema=st.one_of(SCHEMAS_OF_ALL_KINDS, with_definitions()), seed=st.integers(0, 1000))
def test_value_made_from_any_schema_is_valid(schema: dict[str, Any], seed: int) -> None:
    Draft202012Validator.check_schema(schema)

    Draft202012Validator(schema).validate(instance(schema, Random(seed)))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "array", "items": {"$ref": "#"}, "minItems": 3},
        {
            "type": "object",
            "properties": {name: {"type": "array", "items": {"$ref": "#"}} for name in "abcdefgh"},
            "required": list("abcdefgh"),
        },
        {"type": "array", "minItems": 10**9, "uniqueItems": True, "items": {"const": 1}},
        {"type": "string", "minLength": 10**12},
        {"type": "string", "minLength": "many", "maxLength": None, "pattern": 7},
        {"type": "object", "patternProperties": {"(": {"type": "string"}}, "required": ["x"], "minProperties": 1e9},
        {"type": "integer", "minimum": "low", "maximum": True, "multipleOf": 0},
    ],
    ids=lambda schema: json.dumps(schema)[:60],
)
def test_schema_that_has_no_end_or_makes_no_sense_still_gives_a_value_of_bounded_size(schema: dict[str, Any]) -> None:
    assert len(json.dumps(instance(schema, Random(0)))) < 12_000_000


def test_arguments_for_every_tool_of_the_recorded_agents_are_valid(shared_dir: Path) -> None:
    patterns = ("toolathlon/hf_record*", "atif-harbor/**/*.json", "agentperf/**/*.xz", "openhands/*.xz")
    files = [path for pattern in patterns for path in sorted((shared_dir / "data").glob(pattern))]

    schemas = tool_schemas_in(files)

    for schema in schemas:
        check_schema(schema)
        for seed in range(20):
            Draft202012Validator(schema).validate(instance({"type": "object", **schema}, Random(seed)))
    assert len(schemas) > 60


def tool_schemas_in(files: list[Path]) -> list[dict[str, Any]]:
    """The parameters of all tools in the recordings, each once."""
    found = (one for file in files for record in _records(file) for one in _tool_schemas(record))
    return list({json.dumps(one): one for one in found}.values())


def _records(file: Path) -> Iterator[Any]:
    """The JSON values of a file, lines or one document, where it has tools at all."""
    text = lzma.decompress(file.read_bytes()).decode() if file.suffix == ".xz" else file.read_text("utf-8")
    if '"parameters' in text or 'parameters\\"' in text:
        yield from map(json.loads, text.strip().split("\n") if ".jsonl" in file.name else [text])


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
