"""The heap on huge pages, where the system has them for those who ask. ``python -m mockserver.huge_pages MODULE ...``.

A simulation walks over hundreds of megabytes of small objects. On 4 KiB pages nearly every step of that also misses the
processor's table of pages, which a virtual machine looks up in two tables: with neighbours that take the caches the
reference experiment cost 16 to 22 CPU seconds, and 11 to 12 on huge pages, the same bytes written; a call over HTTP
cost its client 2 ms, and 1.4 (benchmarks/virtual.py, benchmarks/client.py; Linux 6.18, glibc 2.36, Python 3.11).

Linux gives huge pages to memory that asks for them (``madvise``), and glibc's malloc asks when a process is started
with word of it (``glibc.malloc.hugetlb``, malloc tunables in glibc's manual), so a command that wants this starts anew.
Python's own allocator then takes its arenas from malloc in place of mapping them (``PyObject_SetArenaAllocator``). To
leave every object to malloc instead (``PYTHONMALLOC``) costs 5 % more, and with 29,500 tasks 10 %.
"""

from __future__ import annotations

import atexit
import os
import runpy
import sys

_TUNABLES = "GLIBC_TUNABLES"
_ALLOCATOR = "PYTHONMALLOC"
_IS_KNOWN = sys.implementation.name == "cpython" and sys.version_info < (3, 14)
"""Whether this Python is one of those with which we have tried the change of arenas; another leaves all to malloc."""
_SETTINGS = (
    # One heap for all, which keeps what it has: a mapping of its own would have huge pages from 2 MiB on only.
    {_TUNABLES: "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=268435456"}
    if _IS_KNOWN
    else {_TUNABLES: "glibc.malloc.hugetlb=1", _ALLOCATOR: "malloc"}
)
_SWITCH = "REPLAYRIG_HUGE_PAGES"
"""In the environment: ``0`` turns this off. We set it to ``asked`` for the process that starts anew."""
_MODES = "/sys/kernel/mm/transparent_hugepage/enabled"
_SINCE_GLIBC = (2, 35)
_PYMEM_DOMAIN_RAW = 0
_ARENA_BYTES = 2**20
_SIZE_CLASSES = range(48, 513, 16)
"""Bytes of the small objects that have pools of their own; all but the smallest, which no ``bytes`` fits into."""
_BYTES_HEADER = sys.getsizeof(b"")
_FOR_GOOD: list[bytes] = []
"""In a process that was started anew: what keeps the first arenas from being freed."""
_FIRST_ARENAS_BYTES = 4 * 2**20
"""More than a Python has before it has imported anything."""


def command(module: str, *arguments: str) -> list[str]:
    """What starts ``module`` as a process of its own, which is on huge pages if it gets the ``environ()`` for it."""
    return [sys.executable, "-m", "mockserver.huge_pages", module, *arguments]


def environ() -> dict[str, str]:
    """The environment for a process of ours that is about to start, and will call ``restart`` before all else.

    As it is where huge pages are not to be had.
    """
    return {**os.environ, **_SETTINGS, _SWITCH: "asked"} if _is_wanted() else dict(os.environ)


def restart() -> None:
    """Start this very process anew on huge pages; where it has been, take Python's objects there.

    Does nothing where they are not to be had, or when it is called once more. To be called before anything is imported
    or done that would have to be done again.
    """
    if _FOR_GOOD:
        return
    if os.environ.get(_SWITCH) == "asked":
        _FOR_GOOD.append(b"started anew")
        for name in (_SWITCH, *_SETTINGS):
            os.environ.pop(name, None)  # whatever this process starts decides for itself
        if _IS_KNOWN:
            _take_arenas_from_malloc()
    elif _is_wanted() and sys.executable:
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environ())
        except OSError:
            return  # then as it is


def _is_wanted() -> bool:
    """Whether the system offers them, and nobody has chosen an allocator or said no."""
    if sys.flags.dev_mode or os.environ.get(_SWITCH) == "0" or _TUNABLES in os.environ or _ALLOCATOR in os.environ:
        return False
    try:
        with open(_MODES, encoding="ascii") as modes:
            return "[madvise]" in modes.read() and _glibc() >= _SINCE_GLIBC
    except OSError:
        return False


def _glibc() -> tuple[int, ...]:
    """The version of glibc; nothing where the C library is another."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        return tuple(int(part) for part in version.split(".")) if name == "glibc" else ()
    except (ValueError, OSError):
        return ()


def _take_arenas_from_malloc() -> None:
    """Let Python's allocator take the memory for small objects from malloc from now on.

    Python frees through the new functions what it had from the old ones, so what it has must not come to be freed: the
    first arenas, and at the end the stack of the main thread.
    """
    try:
        import ctypes  # noqa: PLC0415  (a Python that was built without it keeps its arenas where they are)

        python, libc = ctypes.pythonapi, ctypes.CDLL(None)
        heap_begin = _heap_begin()
    except (ImportError, OSError, StopIteration):
        return
    libc.sbrk.argtypes, libc.sbrk.restype = [ctypes.c_ssize_t], ctypes.c_void_p
    libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    block = libc.malloc(_ARENA_BYTES)
    is_in_heap = block is not None and heap_begin <= block < libc.sbrk(0)
    libc.free(block)
    if not is_in_heap:
        return  # another malloc than glibc's, or one that gets no more of the heap
    raw = (ctypes.c_void_p * 5)()  # PyMemAllocatorEx: its context, malloc, calloc, realloc and free
    python.PyMem_GetAllocator(_PYMEM_DOMAIN_RAW, raw)
    context, malloc, _, _, free = raw
    # The functions of a PyObjectArenaAllocator take the same arguments, and its free one more.
    python.PyObject_SetArenaAllocator((ctypes.c_void_p * 3)(context, malloc, free))
    no_free = ctypes.cast(libc.getpid, ctypes.c_void_p).value
    atexit.register(python.PyObject_SetArenaAllocator, (ctypes.c_void_p * 3)(context, malloc, no_free))

    for size in _SIZE_CLASSES:
        for _ in range(_FIRST_ARENAS_BYTES // size):
            _FOR_GOOD.append(bytes(size - _BYTES_HEADER))
            if heap_begin <= id(_FOR_GOOD[-1]) < libc.sbrk(0):
                break  # the first arenas are full, as far as objects of this size can fill them


def _heap_begin() -> int:
    """The address where malloc's heap begins. OSError or StopIteration where that is not known."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return next(int(line.partition("-")[0], 16) for line in maps if line.endswith("[heap]\n"))


def main() -> None:
    """Run a module as a process of its own, on huge pages."""
    restart()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    from mockserver import huge_pages  # noqa: PLW0406  (as others know it, who may ask for it once more)

    huge_pages.main()
