"""Files with one task a record, and files with one call a record, where those of a conversation follow each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from traces.importers.log import BadRecord, ImportLog
from traces.importers.sources import Source
from traces.trajectory import Trajectory


def read_each(source: Source, log: ImportLog, read: Callable[[Any, ImportLog], Trajectory]) -> Iterator[Trajectory]:
    """A trajectory from each record; ``read`` raises BadRecord where there is none in it."""
    for where, value in source.values(log.skip):
        for record in value if isinstance(value, list) else [value]:
            try:
                yield read(record, log)
            except BadRecord as error:
                log.skip(where, str(error))


def read_groups(
    source: Source,
    log: ImportLog,
    *,
    key: Callable[[Any], str],
    read: Callable[[str, list[Any], ImportLog], Trajectory],
) -> Iterator[Trajectory]:
    """Trajectories from runs of records with equal keys; ``key`` and ``read`` raise BadRecord where there is none."""
    group: list[Any] = []
    group_key = ""
    group_where = source.name
    for where, record in source.values(log.skip):
        for one in record if isinstance(record, list) else [record]:
            try:
                one_key = key(one)
            except BadRecord as error:
                log.skip(where, str(error))
                continue
            if group and one_key != group_key:
                yield from _read(group_key, group, group_where, log, read)
                group = []
            if not group:
                group_key, group_where = one_key, where
            group.append(one)
    if group:
        yield from _read(group_key, group, group_where, log, read)


def _read(
    key: str,
    group: list[Any],
    where: str,
    log: ImportLog,
    read: Callable[[str, list[Any], ImportLog], Trajectory],
) -> Iterator[Trajectory]:
    try:
        yield read(key, group, log)
    except BadRecord as error:
        log.skip(where, str(error))
