"""The ``loadgen`` command: what it is asked for, on huge pages where that is worth a second start."""

from __future__ import annotations

import gc
import sys
from typing import NoReturn

from mockserver import huge_pages

_GC_THRESHOLDS = (1_000_000, 20, 100)
"""A workload is a million objects that stay, and a run adds as many records: looking them all through for garbage again
and again costs a tenth of a run, and finds none. The same goes for what is imported."""
_LONG = ("run", "experiment", "sweep", "resume", "probe")


def command_line() -> NoReturn:
    """The command as a whole process."""
    if sys.argv[1:2] and sys.argv[1] in _LONG:
        huge_pages.restart()
    gc.set_threshold(*_GC_THRESHOLDS)
    from loadgen import commands  # noqa: PLC0415  (half a second, which a restart would spend twice)

    commands.command_line()


if __name__ == "__main__":
    command_line()
