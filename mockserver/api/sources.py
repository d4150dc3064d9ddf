"""Where settings come from: flags before environment before TOML file before defaults.

Unknown keys are refused wherever they appear, and every complaint is one line that names its source.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pydantic import TypeAdapter, ValidationError

from mockserver.api.settings import ServerSettings

ENV_PREFIX = "MOCKSERVER_"


class SettingsError(Exception):
    """A setting is unknown or makes no sense; its text is one line for the person who set it."""


def load_settings(argv: Sequence[str], environ: Mapping[str, str]) -> ServerSettings:
    """Settings from a command line, the environment and the TOML file that one of them names."""
    flags = vars(_parser().parse_args([_dashed(argument) for argument in argv]))
    config_file = flags.pop("config", None) or environ.get(f"{ENV_PREFIX}CONFIG")
    merged: dict[str, tuple[str, Any]] = {}
    if config_file:
        merged.update(_from_toml(Path(config_file)))
    merged.update(_from_environment(environ))
    merged.update({name: (_flag(name), value) for name, value in flags.items()})
    return _validated(merged)


def _validated(merged: Mapping[str, tuple[str, Any]]) -> ServerSettings:
    values = {name: value for name, (_, value) in merged.items()}
    try:
        return TypeAdapter(ServerSettings).validate_python(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        text = first["msg"].removeprefix("Value error, ")
        if name in merged:
            raise SettingsError(f"{merged[name][0]}: {text}, got {merged[name][1]!r}") from None
        raise SettingsError(text) from None


def _from_toml(path: Path) -> dict[str, tuple[str, Any]]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: not TOML: {error}") from None
    names = _names()
    found = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in names:
            raise SettingsError(f"{path}: unknown setting {key!r}")
        found[name] = (f"{path}: {key}", value)
    return found


def _from_environment(environ: Mapping[str, str]) -> dict[str, tuple[str, Any]]:
    fields = {field.name: field for field in dataclasses.fields(ServerSettings)}
    found: dict[str, tuple[str, Any]] = {}
    for variable, text in environ.items():
        if not variable.startswith(ENV_PREFIX) or variable == f"{ENV_PREFIX}CONFIG":
            continue
        name = variable.removeprefix(ENV_PREFIX).lower()
        if name not in fields:
            raise SettingsError(f"unknown environment variable {variable}")
        value: Any = text
        if _is_list(name):
            value = tuple(part.strip() for part in text.split(",") if part.strip())
        found[name] = (variable, value)
    return found


class _OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SettingsError(message)


def _parser() -> argparse.ArgumentParser:
    parser = _OneLineParser(
        prog="mockserver",
        description="An OpenAI-compatible server whose tokens appear when a vLLM node's would.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", help="TOML file with any of these settings")
    for field in dataclasses.fields(ServerSettings):
        flags = [_flag(field.name), *field.metadata["flags"]]
        text = f"{field.metadata['help']} [{_shown_default(field.default)}]".replace("%", "%%")
        if _kinds(field.name) & {bool}:
            parser.add_argument(*flags, dest=field.name, action=argparse.BooleanOptionalAction, help=text)
        elif _is_list(field.name):
            parser.add_argument(*flags, dest=field.name, action="extend", nargs="+", metavar="TEXT", help=text)
        else:
            parser.add_argument(*flags, dest=field.name, metavar=_metavar(field.name), help=text)
    return parser


def _shown_default(default: Any) -> str:
    if default is None or default == ():
        return "default: none" if default == () else "default: the profile's, or none"
    return f"default: {str(default).lower() if isinstance(default, bool) else default}"


def _names() -> set[str]:
    return {field.name for field in dataclasses.fields(ServerSettings)}


@functools.cache
def _hints() -> dict[str, Any]:
    return typing.get_type_hints(ServerSettings)


def _kinds(name: str) -> set[Any]:
    hint = _hints()[name]
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return set(typing.get_args(hint))
    return {hint}


def _is_list(name: str) -> bool:
    return any(typing.get_origin(kind) is tuple for kind in _kinds(name))


def _metavar(name: str) -> str:
    kinds = _kinds(name)
    return "N" if kinds & {int, float} else "TEXT"


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _dashed(argument: str) -> str:
    """vLLM takes ``--max_num_seqs`` for ``--max-num-seqs``; so do we."""
    if not argument.startswith("--"):
        return argument
    flag, equals, value = argument.partition("=")
    return flag.replace("_", "-") + equals + value
