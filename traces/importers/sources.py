"""Where foreign recordings come from: files, folders, globs and stdin, packed or not, as JSON values one at a time."""

from __future__ import annotations

import functools
import glob
import gzip
import importlib
import io
import itertools
import json
import lzma
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import orjson

from traces.jsonl import TraceError

MAX_LINE_BYTES = 128 * 2**20
MAX_DOCUMENT_BYTES = 512 * 2**20
"""What is longer is no recording of agents but damage; the bounds keep memory bounded."""
_PACKED_BY: dict[bytes, str] = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


@dataclass(frozen=True, kw_only=True)
class Source:
    """One file of recordings. What is packed is unpacked, whatever it is called."""

    name: str
    """As a person would find it again."""
    path: Path
    is_named: bool = True
    """False where it was found in a folder: then it need not be a recording."""
    keep: object = None
    """What has to live as long as the file may be read."""

    def open(self) -> IO[bytes]:
        """The unpacked content from its start."""
        try:
            with self.path.open("rb") as raw:
                magic = raw.read(6)
            packed_by = next((name for start, name in _PACKED_BY.items() if magic.startswith(start)), None)
            if packed_by == "gzip":
                return gzip.open(self.path)  # type: ignore[return-value]
            if packed_by == "xz":
                return lzma.open(self.path)
            if packed_by == "zstd":
                return _open_zstd(self.path, self.name)
            return self.path.open("rb")
        except OSError as error:
            raise TraceError(f"{self.name}: {error.strerror}") from None

    @functools.cached_property
    def layout(self) -> str:
        """How the JSON values stand in it: ``lines``, one ``document``, or ``blocks`` with other text between."""
        lines = list(self._first_lines())
        if any(_is_container(line) for line in lines):
            return "lines"
        start = b"".join(lines).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        return "document" if start in (b"{", b"[") else "blocks"

    @functools.cached_property
    def first_value(self) -> Any:
        """The first JSON value in it that is an object or a list; None where there is none."""
        values = (value for _, value in self.values(skip=lambda where, reason: None))
        return next((value for value in values if isinstance(value, dict | list)), None)

    @functools.cached_property
    def first_line(self) -> str:
        """Its first line, at most 4 KiB of it."""
        return next(self._first_lines(), b"")[:4096].decode("utf-8", "replace").strip("\ufeff\r\n")

    def companion(self, name: str) -> Any:
        """The JSON value in the file ``name`` (or packed, ``name.*``) beside it; None where there is none."""
        for path in sorted(self.path.parent.glob(f"{glob.escape(name)}*")):
            return Source(name=str(path), path=path).first_value
        return None

    def siblings(self) -> list[Path]:
        """The other files in its folder, at most 200 of them."""
        others = (path for path in sorted(self.path.parent.iterdir()) if path != self.path and path.is_file())
        return list(itertools.islice(others, 200))

    def values(self, skip: Callable[[str, str], None]) -> Iterator[tuple[str, Any]]:
        """(where, value) of each JSON value; what is not JSON goes to ``skip`` as (where, reason)."""
        if self.layout == "document":
            texts = self._document(skip)
        else:
            texts = self.lines(skip) if self.layout == "lines" else self._blocks(skip)
        for where, text in texts:
            try:
                yield where, parse_json(text)
            except ValueError as error:
                skip(where, f"not JSON: {error}")

    def lines(self, skip: Callable[[str, str], None]) -> Iterator[tuple[str, bytes]]:
        """(where, line) of each line that is not blank."""
        number = 0
        with self._reading(), self.open() as file:
            while line := file.readline(MAX_LINE_BYTES):
                number += 1
                where = f"{self.name}:{number}"
                if len(line) >= MAX_LINE_BYTES and not line.endswith(b"\n"):
                    skip(where, f"a line longer than {MAX_LINE_BYTES >> 20} MiB")
                    while line and not line.endswith(b"\n"):
                        line = file.readline(MAX_LINE_BYTES)
                elif not line.isspace():
                    yield where, line

    def _document(self, skip: Callable[[str, str], None]) -> Iterator[tuple[str, bytes]]:
        """The whole file; as ``blocks`` if it holds several values."""
        with self._reading(), self.open() as file:
            text = file.read(MAX_DOCUMENT_BYTES + 1)
        if len(text) > MAX_DOCUMENT_BYTES:
            skip(self.name, f"longer than {MAX_DOCUMENT_BYTES >> 20} MiB without being JSON lines")
            return
        yield self.name, text

    def _blocks(self, skip: Callable[[str, str], None]) -> Iterator[tuple[str, bytes]]:
        """Objects printed over several lines, each from a line ``{`` to a line ``}``, whatever stands between."""
        first = ""
        block: list[bytes] = []
        num_bytes = 0
        for where, line in self.lines(skip):
            bare = line.rstrip()
            if not block and bare != b"{":
                continue
            first = first if block else where
            block.append(line)
            num_bytes += len(line)
            if bare == b"}" or num_bytes > MAX_LINE_BYTES:
                yield first, b"".join(block)
                block, num_bytes = [], 0

    def _first_lines(self) -> Iterator[bytes]:
        with self._reading(), self.open() as file:
            for _ in range(5):
                line = file.readline(MAX_LINE_BYTES)
                if not line or len(line) >= MAX_LINE_BYTES:
                    return
                yield line

    def _reading(self) -> _Reading:
        return _Reading(self.name)


class _Reading:
    """Turns what reading a damaged file raises into a TraceError."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        is_zstd_error = type(error).__name__ == "ZstdError"  # of a package that may be missing
        if is_zstd_error or isinstance(error, OSError | EOFError | zlib.error | lzma.LZMAError):
            raise TraceError(f"{self._name}: cannot be read: {error}") from None


def _is_container(line: bytes) -> bool:
    try:
        return isinstance(parse_json(line), dict | list)
    except ValueError:
        return False


def find_sources(patterns: Iterable[str]) -> Iterator[Source]:
    """The files that ``patterns`` name: paths, folders (everything in them), globs, ``-`` for stdin."""
    for pattern in patterns:
        if pattern == "-":
            yield _stdin()
            continue
        path = Path(pattern)
        if path.is_dir():
            for file in sorted(path.rglob("*")):
                hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
                if file.is_file() and not hidden:
                    yield Source(name=str(file), path=file, is_named=False)
        elif path.exists():
            yield Source(name=pattern, path=path)
        else:
            matches = sorted(glob.glob(pattern, recursive=True))
            if not matches:
                raise TraceError(f"{pattern}: no such file")
            yield from find_sources(matches)


def parse_json(text: bytes | str) -> Any:
    """``text`` as a JSON value that can be written again. Raises ValueError with a short reason."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        reason = str(error)
    # What Python's own reader takes and orjson does not: NaN, and halves of surrogate pairs, which are replaced here.
    try:
        value = json.loads(text, parse_constant=lambda _: None)
        return orjson.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise ValueError(reason.partition(": line ")[0]) from None


def _stdin() -> Source:
    """Stdin, kept in a temporary file, because it is read twice: to recognise it and to use it."""
    file = tempfile.NamedTemporaryFile(prefix="traces-stdin-")  # noqa: SIM115  (lives as long as the source)
    shutil.copyfileobj(sys.stdin.buffer, file)
    file.flush()
    return Source(name="<stdin>", path=Path(file.name), keep=file)


def _open_zstd(path: Path, name: str) -> IO[bytes]:
    try:
        zstandard: Any = importlib.import_module("zstandard")  # needed for this compression only
    except ImportError:
        raise TraceError(f"{name}: zstd needs the package zstandard: pip install 'replayrig[zstd]'") from None
    return io.BufferedReader(zstandard.open(path, "rb"))
