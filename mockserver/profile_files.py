"""Profiles of the user's own: TOML in and out.

name = "my-server"
model = "my-org/my-model"
num_gpus = 1
kv_bytes_per_token = 131072
kv_pool_bytes = 40e9
max_num_seqs = 256
max_num_batched_tokens = 8192
max_model_len = 32768

[step_cost]
kind = "fitted"            # constant, table, roofline or fitted; further keys are those of mockserver/engine/cost.py
floor_s = 0.006
per_prefill_token_s = 2.1e-5
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from mockserver.engine.cost import ConstantRates, FittedCost, Roofline, TableCost
from mockserver.engine.profiles import PROFILES, Profile, get_profile

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
STEP_COSTS: dict[str, type[ConstantRates | TableCost | Roofline | FittedCost]] = {
    "constant": ConstantRates,
    "table": TableCost,
    "roofline": Roofline,
    "fitted": FittedCost,
}


class ProfileError(ValueError):
    """Whoever names a profile that is not there, or a file that does not describe one, meets this."""


def find_profile(name_or_path: str) -> Profile:
    """A built-in profile, or the one in a TOML file (a path has a ``.toml`` suffix or a slash)."""
    if name_or_path in PROFILES:
        return get_profile(name_or_path)
    path = Path(name_or_path)
    if path.suffix == ".toml" or "/" in name_or_path:
        return read_profile(path)
    raise ProfileError(f"unknown profile {name_or_path!r}: known are {', '.join(PROFILES)}, or a path to a .toml file")


def read_profile(path: Path) -> Profile:
    """The profile in a TOML file; ProfileError says what is wrong with it in one line."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"{path}: not TOML: {error}") from None
    cost_table = table.pop("step_cost", None)
    if not isinstance(cost_table, dict):
        raise ProfileError(f"{path}: a profile needs a [step_cost] table")
    kind = cost_table.pop("kind", None)
    if kind not in STEP_COSTS:
        raise ProfileError(f"{path}: step_cost.kind must be one of {', '.join(STEP_COSTS)}, got {kind!r}")
    step_cost = _made(STEP_COSTS[kind], cost_table, f"{path}: step_cost")
    values = {"name": path.stem, "description": f"read from {path.name}", "model": path.stem} | table
    return _made(Profile, values, str(path), step_cost=step_cost)


def _made(kind: type[T], values: Mapping[str, Any], where: str, **given: Any) -> T:
    """An instance of a dataclass from a TOML table: every key known, every value of its type."""
    known = {field.name: field for field in fields(kind) if field.name not in given}
    for name in values:
        if name not in known:
            raise ProfileError(f"{where}: unknown key {name!r}: known are {', '.join(sorted(known))}")
    for name, field in known.items():
        if name not in values and field.default is MISSING and field.default_factory is MISSING:
            raise ProfileError(f"{where}: {name} is missing")
    types = get_type_hints(kind)
    converted = {}
    for name, value in values.items():
        try:
            converted[name] = TypeAdapter(types[name]).validate_python(value)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]["msg"]
            raise ProfileError(f"{where}: {name}: {problem}, got {value!r}") from None
    try:
        return kind(**converted, **given)
    except ValueError as error:
        raise ProfileError(f"{where}: {error}") from None


def write_profile(path: Path, profile: Profile) -> None:
    """Write a profile so that ``read_profile`` gives it back."""
    path.write_text(profile_toml(profile), encoding="utf-8")


def profile_toml(profile: Profile) -> str:
    """A profile as TOML text."""
    kind = next((kind for kind, cost in STEP_COSTS.items() if isinstance(profile.step_cost, cost)), None)
    if kind is None:
        raise ProfileError(f"a {type(profile.step_cost).__name__} has no TOML form")
    lines = _toml_lines(profile, skipped={"step_cost", "sources"})
    lines += ["", "[step_cost]", f'kind = "{kind}"', *_toml_lines(profile.step_cost)]
    if profile.sources:
        lines += [
            "",
            "[sources]",
            *(f"{json.dumps(key)} = {json.dumps(text)}" for key, text in profile.sources.items()),
        ]
    return "\n".join(lines) + "\n"


def _toml_lines(values: Any, skipped: Collection[str] = ()) -> list[str]:
    lines = []
    for field in fields(values):
        value = getattr(values, field.name)
        if field.name not in skipped and value is not None:
            # JSON's strings, numbers, booleans and arrays are TOML's too, once non-ASCII is escaped.
            lines.append(f"{field.name} = {json.dumps(value)}")
    return lines
