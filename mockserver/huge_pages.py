"""The heap on huge pages, where the system has them for those who ask.

A simulation walks over hundreds of megabytes of small objects. On 4 KiB pages nearly every step of that also misses the
processor's table of pages, which a virtual machine looks up in two tables: with neighbours that take the caches the
reference experiment cost 16 to 22 CPU seconds, and 11 to 12 on huge pages, the same bytes written; a call over HTTP
cost its client 2 ms, and 1.4 (benchmarks/virtual.py, benchmarks/client.py; Linux 6.18, glibc 2.36, Python 3.11).

Linux gives huge pages to memory that asks for them (``madvise``), glibc's malloc asks when it is told to
(``glibc.malloc.hugetlb``, malloc tunables in glibc's manual), and Python takes glibc's malloc instead of its own when
it is told to (``PYTHONMALLOC``). Both are told at a process's start, so a command that wants this starts anew.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_SETTINGS = {"PYTHONMALLOC": "malloc", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
_SWITCH = "REPLAYRIG_HUGE_PAGES"
"""In the environment: ``0`` turns this off. We set it to ``asked`` for the process that starts anew."""
_MODES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_SINCE_GLIBC = (2, 35)


def environ() -> dict[str, str]:
    """The environment for a process of ours that is about to start; as it is where huge pages are not to be had."""
    return {**os.environ, **_SETTINGS} if _is_wanted() else dict(os.environ)


def restart() -> None:
    """Start this very process anew on huge pages; does nothing the second time, or where they are not to be had.

    To be called before anything is imported or done that would have to be done again.
    """
    if os.environ.get(_SWITCH) == "asked":
        for name in (_SWITCH, *_SETTINGS):
            os.environ.pop(name, None)  # whatever this process starts decides for itself
    elif _is_wanted() and sys.executable:
        sys.stdout.flush()
        sys.stderr.flush()
        command = [sys.executable, *sys.orig_argv[1:]]
        try:
            os.execve(sys.executable, command, {**os.environ, **_SETTINGS, _SWITCH: "asked"})
        except OSError:
            return  # then as it is


def _is_wanted() -> bool:
    """Whether the system offers them, and nobody has chosen an allocator or said no."""
    if sys.flags.dev_mode or os.environ.get(_SWITCH) == "0" or any(name in os.environ for name in _SETTINGS):
        return False
    try:
        return "[madvise]" in _MODES.read_text() and _glibc() >= _SINCE_GLIBC
    except OSError:
        return False


def _glibc() -> tuple[int, ...]:
    """The version of glibc; nothing where the C library is another."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        return tuple(int(part) for part in version.split(".")) if name == "glibc" else ()
    except (ValueError, OSError):
        return ()
