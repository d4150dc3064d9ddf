"""State in PostgreSQL: one table, a row for each entry. What was saved is durable."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import asyncpg

from loadgen.stores.store import StoreDownError, StoreError, shown

_MOST_CONNECTIONS = 16
_TIMEOUT_S = 10.0
_TABLE = """
CREATE TABLE IF NOT EXISTS replayrig_state (run text, key text, value bytea NOT NULL, PRIMARY KEY (run, key))
"""
_SAVE = """
INSERT INTO replayrig_state (run, key, value) SELECT $1, * FROM unnest($2::text[], $3::bytea[])
ON CONFLICT (run, key) DO UPDATE SET value = excluded.value
"""

_ERRORS = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


class PostgresStore:
    """A table that all runs share."""

    def __init__(self, pool: asyncpg.Pool, url: str, run: str) -> None:
        self._pool = pool
        self._url = shown(url)
        self._run = run

    @classmethod
    async def open(cls, url: str, run: str) -> PostgresStore:
        """Connect, and make the table where it is missing."""
        try:
            pool = await asyncpg.create_pool(
                url, min_size=0, max_size=_MOST_CONNECTIONS, timeout=_TIMEOUT_S, command_timeout=_TIMEOUT_S
            )
        except (*_ERRORS, ValueError) as error:
            kind = StoreDownError if _is_down(error) else StoreError
            raise kind(f"{shown(url)}: {_one_line(error)}") from None
        store = cls(pool, url, run)
        try:
            async with store._connection() as connection:
                await connection.execute(_TABLE)
        except StoreError:
            pool.terminate()
            raise
        return store

    async def load(self, key: str) -> bytes | None:
        """The entry, or None where there is none."""
        async with self._connection() as connection:
            value: bytes | None = await connection.fetchval(
                "SELECT value FROM replayrig_state WHERE run = $1 AND key = $2", self._run, key
            )
        return value

    async def save(self, entries: Mapping[str, bytes]) -> None:
        """Keep ``entries``, in one statement."""
        async with self._connection() as connection:
            await connection.execute(_SAVE, self._run, list(entries), list(entries.values()))

    async def load_all(self, prefix: str) -> dict[str, bytes]:
        """All entries whose keys start with ``prefix``."""
        async with self._connection() as connection:
            rows = await connection.fetch(
                "SELECT key, value FROM replayrig_state WHERE run = $1 AND starts_with(key, $2)", self._run, prefix
            )
        return {row["key"]: row["value"] for row in rows}

    async def clear(self) -> None:
        """Forget the run."""
        async with self._connection() as connection:
            await connection.execute("DELETE FROM replayrig_state WHERE run = $1", self._run)

    async def close(self) -> None:
        """Close the connections; of a server that is gone, let go of them."""
        self._pool.terminate()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[asyncpg.pool.PoolConnectionProxy]:
        try:
            async with self._pool.acquire() as connection:
                yield connection
        except _ERRORS as error:
            kind = StoreDownError if _is_down(error) else StoreError
            raise kind(f"{self._url}: {_one_line(error)}") from None


def _is_down(error: BaseException) -> bool:
    """Whether it may be back soon: no connection, one that broke, or a server that starts or stops."""
    return isinstance(
        error,
        OSError
        | TimeoutError
        | asyncpg.PostgresConnectionError
        | asyncpg.InterfaceError
        | asyncpg.InternalClientError  # what a connection that breaks within an operation may come to
        | asyncpg.OperatorInterventionError,
    )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
