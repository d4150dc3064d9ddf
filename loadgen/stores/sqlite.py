"""State in an SQLite file: no server, and what was saved survives a kill -9 of this process."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from loadgen.stores.store import StoreDownError, StoreError

_TABLE = "CREATE TABLE IF NOT EXISTS state (run TEXT, key TEXT, value BLOB NOT NULL, PRIMARY KEY (run, key))"


class SqliteStore:
    """One table. A statement takes microseconds and is not worth a thread, which virtual time would refuse."""

    def __init__(self, path: str, run: str) -> None:
        if not path:
            raise StoreError("a state in SQLite needs a file: sqlite:FILE")
        self._path = path
        self._run = run
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, timeout=5.0)
        except sqlite3.Error as error:
            raise StoreError(f"sqlite:{path}: {error}") from None
        try:
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")
            self._connection.execute(_TABLE)
        except sqlite3.Error as error:
            self._connection.close()
            raise StoreError(f"sqlite:{path}: {error}") from None

    async def load(self, key: str) -> bytes | None:
        """The entry, or None where there is none."""
        row = self._execute("SELECT value FROM state WHERE run = ? AND key = ?", self._run, key).fetchone()
        return None if row is None else bytes(row[0])

    async def save(self, entries: Mapping[str, bytes]) -> None:
        """Keep ``entries``, in one transaction."""
        self._execute("BEGIN IMMEDIATE")
        try:
            for key, value in entries.items():
                self._execute("INSERT OR REPLACE INTO state VALUES (?, ?, ?)", self._run, key, value)
            self._execute("COMMIT")
        except StoreError:
            if self._connection.in_transaction:
                self._connection.rollback()
            raise

    async def load_all(self, prefix: str) -> dict[str, bytes]:
        """All entries whose keys start with ``prefix``."""
        rows = self._execute(
            "SELECT key, value FROM state WHERE run = ? AND substr(key, 1, ?) = ?", self._run, len(prefix), prefix
        )
        return {key: bytes(value) for key, value in rows}

    async def clear(self) -> None:
        """Forget the run."""
        self._execute("DELETE FROM state WHERE run = ?", self._run)

    async def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _execute(self, statement: str, *values: object) -> sqlite3.Cursor:
        try:
            return self._connection.execute(statement, values)
        except sqlite3.OperationalError as error:  # locked, disk full, file gone
            raise StoreDownError(f"sqlite:{self._path}: {error}") from None
        except sqlite3.Error as error:
            raise StoreError(f"sqlite:{self._path}: {error}") from None
