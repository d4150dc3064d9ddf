"""Settings from flags before environment before a TOML file before defaults, for any frozen dataclass of settings.

Each field is defined once, by ``setting``: its type, default, help text and flags. Unknown keys are refused wherever
they appear, and every complaint is one line that names its source.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import tomllib
import types
import typing
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

from pydantic import TypeAdapter, ValidationError

S = TypeVar("S")


class SettingsError(Exception):
    """A setting is unknown or makes no sense; its text is one line for the person who set it."""


def setting(default: Any, text: str, *, flags: tuple[str, ...] = (), only: str = "") -> Any:
    """A field with its help text, further flags for it, and the commands it belongs to where not all have it."""
    return dataclasses.field(default=default, metadata={"help": text, "flags": flags, "only": only})


class OneLineParser(argparse.ArgumentParser):
    """Complaints are one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print."""
        raise SettingsError(message)


class SettingsReader(Generic[S]):
    """Reads one class of settings from all its sources."""

    def __init__(self, settings_class: type[S], *, env_prefix: str, secrets: Collection[str] = ()) -> None:
        self._class = settings_class
        self._env_prefix = env_prefix
        self._secrets = secrets
        """Settings whose values no complaint repeats."""
        self._fields = {one.name: one for one in dataclasses.fields(settings_class)}  # type: ignore[arg-type]  # a dataclass

    def add_flags(
        self, parser: argparse.ArgumentParser, command: str = "", *, names: Collection[str] | None = None
    ) -> None:
        """Every setting (of ``command``), or those of ``names``, as a flag; the parser must suppress defaults."""
        if names is None:
            parser.add_argument("--config", metavar="FILE", help="TOML file with any of these settings")
        for name, one in self._fields.items():
            if one.metadata["only"] and command not in one.metadata["only"].split():
                continue
            if names is not None and name not in names:
                continue
            flags = [flag_of(name), *one.metadata["flags"]]
            text = f"{one.metadata['help']}{_shown_default(one.default)}".replace("%", "%%")
            kinds = self._kinds(name)
            if bool in kinds:
                parser.add_argument(*flags, dest=name, action=argparse.BooleanOptionalAction, help=text)
            elif self._is_list(name):
                parser.add_argument(*flags, dest=name, action="extend", nargs="+", metavar="TEXT", help=text)
            else:
                metavar = "N" if kinds & {int, float} else "TEXT"
                parser.add_argument(*flags, dest=name, metavar=metavar, help=text)

    def load(self, flags: Mapping[str, Any], environ: Mapping[str, str]) -> S:
        """The settings from parsed flags, the environment and the TOML file that one of them names."""
        given = dict(flags)
        config_file = given.pop("config", None) or environ.get(f"{self._env_prefix}CONFIG")
        merged: dict[str, tuple[str, Any]] = {}
        if config_file:
            merged.update(self._from_toml(Path(config_file)))
        merged.update(self._from_environment(environ))
        merged.update({name: (flag_of(name), value) for name, value in given.items()})
        return self._validated(merged)

    def load_over(
        self, stored: Mapping[str, Any], flags: Mapping[str, Any], environ: Mapping[str, str], names: Collection[str]
    ) -> S:
        """``stored`` settings, but for those of ``names`` that flags or the environment give anew."""
        merged = {name: (f"the stored {name}", value) for name, value in stored.items()}
        given = self._from_environment(environ)
        merged.update({name: value for name, value in given.items() if name in names})
        merged.update({name: (flag_of(name), value) for name, value in flags.items()})
        return self._validated(merged)

    def _validated(self, merged: Mapping[str, tuple[str, Any]]) -> S:
        values = {name: value for name, (_, value) in merged.items()}
        try:
            return TypeAdapter(self._class).validate_python(values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = str(first["loc"][0]) if first["loc"] else ""
            text = first["msg"].removeprefix("Value error, ")
            if name in merged:
                source, value = merged[name]
                shown = "" if name in self._secrets else f", got {value!r}"
                raise SettingsError(f"{source}: {text}{shown}") from None
            raise SettingsError(text) from None

    def _from_toml(self, path: Path) -> dict[str, tuple[str, Any]]:
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
        except tomllib.TOMLDecodeError as error:
            raise SettingsError(f"{path}: not TOML: {error}") from None
        found = {}
        for key, value in table.items():
            name = key.replace("-", "_")
            if name not in self._fields:
                raise SettingsError(f"{path}: unknown setting {key!r}")
            # A flag takes text, so does the class: time_scale = 20 means "20".
            found[name] = (f"{path}: {key}", str(value) if self._kinds(name) == {str} else value)
        return found

    def _from_environment(self, environ: Mapping[str, str]) -> dict[str, tuple[str, Any]]:
        found: dict[str, tuple[str, Any]] = {}
        for variable, text in environ.items():
            if not variable.startswith(self._env_prefix) or variable == f"{self._env_prefix}CONFIG":
                continue
            name = variable.removeprefix(self._env_prefix).lower()
            if name not in self._fields:
                raise SettingsError(f"unknown environment variable {variable}")
            value: Any = text
            if self._is_list(name):
                value = tuple(part.strip() for part in text.split(",") if part.strip())
            found[name] = (variable, value)
        return found

    @functools.cached_property
    def _hints(self) -> dict[str, Any]:
        return typing.get_type_hints(self._class)

    def _kinds(self, name: str) -> set[Any]:
        hint = self._hints[name]
        if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
            return set(typing.get_args(hint)) - {types.NoneType}
        return {hint}

    def _is_list(self, name: str) -> bool:
        return any(typing.get_origin(kind) is tuple for kind in self._kinds(name))


def flag_of(name: str) -> str:
    """The flag of a setting."""
    return "--" + name.replace("_", "-")


def dashed(argument: str) -> str:
    """vLLM takes ``--max_num_seqs`` for ``--max-num-seqs``; so do we."""
    if not argument.startswith("--"):
        return argument
    flag, equals, value = argument.partition("=")
    return flag.replace("_", "-") + equals + value


def _shown_default(default: Any) -> str:
    if default is None or default == ():
        return ""
    if isinstance(default, tuple):
        return f" [default: {' '.join(map(str, default))}]"
    return f" [default: {str(default).lower() if isinstance(default, bool) else default}]"
