"""State in Redis: one hash for each run. It survives a restart of the server where that keeps an append-only file."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TypeVar

from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from loadgen.stores.store import StoreDownError, StoreError, shown

T = TypeVar("T")

_MOST_CONNECTIONS = 32
_TIMEOUT_S = 10.0


class RedisStore:
    """A hash whose fields are the keys; setting several of them is one command, so all are set or none."""

    def __init__(self, client: Redis, url: str, run: str) -> None:
        self._client = client
        self._url = shown(url)
        self._name = f"replayrig:{run}"

    @classmethod
    async def open(cls, url: str, run: str) -> RedisStore:
        """Connect, and ask whether somebody is there."""
        try:
            pool = BlockingConnectionPool.from_url(
                url,
                max_connections=_MOST_CONNECTIONS,
                timeout=None,
                socket_connect_timeout=_TIMEOUT_S,
                socket_timeout=_TIMEOUT_S,
            )
        except ValueError as error:
            raise StoreError(f"{shown(url)}: {error}") from None
        store = cls(Redis.from_pool(pool), url, run)
        try:
            await store._answer(store._client.exists(store._name))
        except StoreError:
            await store.close()
            raise
        return store

    async def load(self, key: str) -> bytes | None:
        """The entry, or None where there is none."""
        return await self._answer(self._client.hget(self._name, key))  # type: ignore[arg-type]  # typed for both kinds of client

    async def save(self, entries: Mapping[str, bytes]) -> None:
        """Keep ``entries``, in one command."""
        await self._answer(self._client.hset(self._name, mapping=dict(entries)))  # type: ignore[arg-type]

    async def load_all(self, prefix: str) -> dict[str, bytes]:
        """All entries whose keys start with ``prefix``."""
        found: dict[str, bytes] = {}
        keys: list[bytes] = await self._answer(self._client.hkeys(self._name))  # type: ignore[arg-type]
        wanted = [key for key in keys if key.startswith(prefix.encode())]
        for start in range(0, len(wanted), 500):
            some = wanted[start : start + 500]
            values: list[bytes | None] = await self._answer(self._client.hmget(self._name, some))  # type: ignore[arg-type]
            found.update({key.decode(): value for key, value in zip(some, values, strict=True) if value is not None})
        return found

    async def clear(self) -> None:
        """Forget the run."""
        await self._answer(self._client.delete(self._name))

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose(close_connection_pool=True)

    async def _answer(self, command: Awaitable[T]) -> T:
        try:
            return await command
        except (RedisConnectionError, RedisTimeoutError, OSError) as error:  # starting up counts as connection error
            raise StoreDownError(f"{self._url}: {_one_line(error)}") from None
        except RedisError as error:
            raise StoreError(f"{self._url}: {_one_line(error)}") from None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
