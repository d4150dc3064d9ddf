"""Serving traces as CSV: a time and two token counts a request, as Azure and BurstGPT publish them."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

from traces.importers.fields import get_time
from traces.importers.log import BadRecord, ImportLog
from traces.importers.sources import Source
from traces.trajectory import RecordedPrompt, Trajectory, Turn

NAME = "csv"
_TIMES = ("timestamp", "arrival_timestamp", "arrived_at")
_PROMPTS = ("contexttokens", "request tokens", "num_prefill_tokens", "prompt_tokens", "input_length")
_OUTPUTS = ("generatedtokens", "response tokens", "num_decode_tokens", "completion_tokens", "output_length")


def recognises(value: Any) -> bool:
    """Whether ``value``, the first line of a file, is a header of such a table."""
    if not isinstance(value, str):
        return False
    columns = {column.strip().lower() for column in value.split(",")}
    return bool(columns & set(_PROMPTS)) and bool(columns & set(_OUTPUTS))


def read(source: Source, log: ImportLog) -> Iterator[Trajectory]:
    """Each request of ``source`` as a task of one call; what cannot be used goes to ``log``."""
    lines = source.lines(log.skip)
    header_where, header = next(lines, (source.name, b""))
    try:
        names = [name.strip().lower() for name in _cells(header)]
    except BadRecord as error:
        log.skip(header_where, str(error))
        return
    log.note("requests known by their token counts only: no two prompts share anything")
    first_at: float | None = None
    for number, (where, line) in enumerate(lines):
        try:
            row = dict(zip(names, _cells(line), strict=False))
            at = next((time for name in _TIMES if (time := get_time(row, name)) is not None), None)
            first_at = at if first_at is None else first_at
            task_id = f"request-{number:06d}"
            prompt = RecordedPrompt(num_tokens=_count(row, _PROMPTS), block_size=16, scope=task_id)
            yield Trajectory(
                task_id=task_id,
                turns=(Turn(num_output_tokens=_count(row, _OUTPUTS), prompt=prompt),),
                source=NAME,
                model=row.get("model", ""),
                started_at=None if at is None or first_at is None else max(at - first_at, 0.0),
            )
        except BadRecord as error:
            log.skip(where, str(error))


def _cells(line: bytes) -> list[str]:
    try:
        return next(csv.reader([line.decode("utf-8-sig", "replace").strip("\r\n")]), [])
    except csv.Error as error:
        raise BadRecord(f"not CSV: {error}") from None


def _count(row: dict[str, str], names: tuple[str, ...]) -> int:
    text = next((row[name] for name in names if name in row), "").strip(" ")
    if not (text.isascii() and text.isdecimal()) or len(text) > 12:
        raise BadRecord("a token count that is no number")
    return int(text)
