"""What an import found, left out and had to guess: counted, with the first place of each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from traces.jsonl import TraceError


class BadRecord(Exception):
    """A record cannot be used; the text says why, in words that are the same for all records of that kind."""


@dataclass(eq=False, slots=True)
class ImportLog:
    """The summary of one import, in the making."""

    strict: bool = False
    """Raise TraceError at the first record that would be skipped."""
    paths: frozenset[Path] = frozenset()
    """All files of this import: a file may be read with another one."""
    num_files: int = 0
    num_skipped_by_reason: Counter[str] = field(default_factory=Counter)
    first_skipped_by_reason: dict[str, str] = field(default_factory=dict)
    num_by_note: Counter[str] = field(default_factory=Counter)
    num_tasks_by_format: Counter[str] = field(default_factory=Counter)

    def skip(self, where: str, reason: str) -> None:
        """What stands at ``where`` is left out."""
        if self.strict:
            raise TraceError(f"{where}: {reason}")
        self.num_skipped_by_reason[reason] += 1
        self.first_skipped_by_reason.setdefault(reason, where)

    def note(self, what: str, num: int = 1) -> None:
        """Something is not in the file, or was inferred, ``num`` times."""
        if num:
            self.num_by_note[what] += num

    @property
    def num_skipped(self) -> int:
        """How many records were left out."""
        return self.num_skipped_by_reason.total()
