"""Where settings come from: flags before environment before TOML file before defaults.

Unknown keys are refused wherever they appear, and every complaint is one line that names its source.
"""

from __future__ import annotations

import argparse
import dataclasses
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from pydantic import TypeAdapter, ValidationError

from loadgen.config import SECRETS, Settings

ENV_PREFIX = "LOADGEN_"


class SettingsError(Exception):
    """A setting is unknown or makes no sense; its text is one line for the person who set it."""


class OneLineParser(argparse.ArgumentParser):
    """Complaints are one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print."""
        raise SettingsError(message)


def add_flags(parser: argparse.ArgumentParser, command: str) -> None:
    """Every setting of ``command`` as a flag."""
    parser.add_argument("--config", metavar="FILE", help="TOML file with any of these settings")
    for one in dataclasses.fields(Settings):
        if one.metadata["only"] not in ("", command):
            continue
        flags = [flag_of(one.name), *one.metadata["flags"]]
        text = f"{one.metadata['help']}{_shown_default(one.default)}".replace("%", "%%")
        kinds = _kinds(one.name)
        if bool in kinds:
            parser.add_argument(*flags, dest=one.name, action=argparse.BooleanOptionalAction, help=text)
        elif _is_list(one.name):
            parser.add_argument(*flags, dest=one.name, action="extend", nargs="+", metavar="TEXT", help=text)
        else:
            metavar = "N" if kinds & {int, float} else "TEXT"
            parser.add_argument(*flags, dest=one.name, metavar=metavar, help=text)


def load_settings(flags: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """Settings from parsed flags, the environment and the TOML file that one of them names."""
    given = dict(flags)
    config_file = given.pop("config", None) or environ.get(f"{ENV_PREFIX}CONFIG")
    merged: dict[str, tuple[str, Any]] = {}
    if config_file:
        merged.update(_from_toml(Path(config_file)))
    merged.update(_from_environment(environ))
    merged.update({name: (flag_of(name), value) for name, value in given.items()})
    return _validated(merged)


def flag_of(name: str) -> str:
    """The flag of a setting."""
    return "--" + name.replace("_", "-")


def dashed(argument: str) -> str:
    """vLLM takes ``--max_num_seqs`` for ``--max-num-seqs``; so do we."""
    if not argument.startswith("--"):
        return argument
    flag, equals, value = argument.partition("=")
    return flag.replace("_", "-") + equals + value


def _validated(merged: Mapping[str, tuple[str, Any]]) -> Settings:
    values = {name: value for name, (_, value) in merged.items()}
    try:
        return TypeAdapter(Settings).validate_python(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        text = first["msg"].removeprefix("Value error, ")
        if name in merged:
            source, value = merged[name]
            raise SettingsError(f"{source}: {text}{'' if name in SECRETS else f', got {value!r}'}") from None
        raise SettingsError(text) from None


def _from_toml(path: Path) -> dict[str, tuple[str, Any]]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: not TOML: {error}") from None
    found = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in _names():
            raise SettingsError(f"{path}: unknown setting {key!r}")
        # A flag takes text, so does the class: time_scale = 20 means "20".
        found[name] = (f"{path}: {key}", str(value) if _kinds(name) == {str} else value)
    return found


def _from_environment(environ: Mapping[str, str]) -> dict[str, tuple[str, Any]]:
    found: dict[str, tuple[str, Any]] = {}
    for variable, text in environ.items():
        if not variable.startswith(ENV_PREFIX) or variable == f"{ENV_PREFIX}CONFIG":
            continue
        name = variable.removeprefix(ENV_PREFIX).lower()
        if name not in _names():
            raise SettingsError(f"unknown environment variable {variable}")
        value: Any = text
        if _is_list(name):
            value = tuple(part.strip() for part in text.split(",") if part.strip())
        found[name] = (variable, value)
    return found


def _shown_default(default: Any) -> str:
    if default is None:
        return ""
    if isinstance(default, tuple):
        return f" [default: {' '.join(default)}]" if default else ""
    return f" [default: {str(default).lower() if isinstance(default, bool) else default}]"


def _names() -> set[str]:
    return {one.name for one in dataclasses.fields(Settings)}


def _kinds(name: str) -> set[Any]:
    hint = typing.get_type_hints(Settings)[name]
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return set(typing.get_args(hint)) - {types.NoneType}
    return {hint}


def _is_list(name: str) -> bool:
    return any(typing.get_origin(kind) is tuple for kind in _kinds(name))
