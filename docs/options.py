"""Write the tables of settings in ``docs/*.md`` anew from the classes that define them: ``make docs``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from loadgen.config import Settings
from mockserver.api.settings import ServerSettings

DOCS = Path(__file__).parent
HEAD = "| flag | default | what |\n| --- | --- | --- |\n"


def table_of(settings: type[Any]) -> str:
    """One row a setting, in the order of their definition."""
    return HEAD + "".join(_row(field) for field in dataclasses.fields(settings))


def _row(field: dataclasses.Field[Any]) -> str:
    flags = ["--" + field.name.replace("_", "-"), *field.metadata["flags"]]
    text = field.metadata["help"].replace("|", "\\|")
    only = field.metadata.get("only")
    default = _shown(field.default)
    return (
        f"| {', '.join(f'`{flag}`' for flag in flags)} | {default and f'`{default}`'} "
        f"| {text}{f' (`{only}` only)' if only else ''} |\n"
    )


def _shown(default: Any) -> str:
    if default is None:
        return ""
    if isinstance(default, bool):
        return "on" if default else "off"
    return " ".join(map(str, default)) if isinstance(default, tuple) else str(default)


def main() -> None:
    """Replace each page's table, which is the last thing on it."""
    for name, settings in (("mockserver", ServerSettings), ("loadgen", Settings)):
        page = DOCS / f"{name}.md"
        before, _, _ = page.read_text(encoding="utf-8").partition(HEAD)
        page.write_text(before + table_of(settings), encoding="utf-8")


if __name__ == "__main__":
    main()
