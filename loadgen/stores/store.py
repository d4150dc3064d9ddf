"""Where agents' state is kept: the seam, and the stores by the scheme of their URL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol
from urllib.parse import urlsplit


class StateStore(Protocol):
    """Entries of one run, by key."""

    async def load(self, key: str) -> bytes | None:
        """The entry, or None where there is none."""
        ...

    async def save(self, entries: Mapping[str, bytes]) -> None:
        """Keep ``entries``, all of them or none; doing so twice is the same as once."""
        ...

    async def load_all(self, prefix: str) -> dict[str, bytes]:
        """All entries whose keys start with ``prefix``."""
        ...

    async def clear(self) -> None:
        """Forget the run."""
        ...

    async def close(self) -> None:
        """Let go of what it holds."""
        ...


class StoreError(OSError):
    """A state store cannot be used as it is told to; the text is one line for who named it."""


class StoreDownError(StoreError):
    """A state store does not answer now; it may be back soon."""


Opener = Callable[[str, str], Awaitable[StateStore]]
"""Takes a URL and the run's name. Raises StoreDownError where nobody answers."""


async def _memory(url: str, run: str) -> StateStore:
    from loadgen.stores.memory import MemoryStore  # noqa: PLC0415  (each store is loaded when it is named)

    return MemoryStore()


async def _sqlite(url: str, run: str) -> StateStore:
    from loadgen.stores.sqlite import SqliteStore  # noqa: PLC0415

    return SqliteStore(url.partition(":")[2].removeprefix("//"), run)


async def _redis(url: str, run: str) -> StateStore:
    try:
        from loadgen.stores.redis import RedisStore  # noqa: PLC0415
    except ImportError:
        raise StoreError("a state in Redis needs its client: pip install 'replayrig[redis]'") from None
    return await RedisStore.open(url, run)


async def _postgres(url: str, run: str) -> StateStore:
    try:
        from loadgen.stores.postgres import PostgresStore  # noqa: PLC0415
    except ImportError:
        raise StoreError("a state in PostgreSQL needs its client: pip install 'replayrig[postgres]'") from None
    return await PostgresStore.open(url, run)


OPENERS: dict[str, Opener] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "redis": _redis,
    "rediss": _redis,
    "unix": _redis,
    "postgresql": _postgres,
    "postgres": _postgres,
}
IN_PROCESS = frozenset({"memory", "sqlite"})
"""Stores that need no socket, and so work in virtual time too."""


HIDDEN = ":***@"
"""What stands for a password where a URL is shown."""


def scheme_of(url: str) -> str:
    """The store that ``url`` names; ValueError where there is none."""
    scheme = url.partition(":")[0]
    if scheme not in OPENERS:
        raise ValueError(
            f"state must be memory:, sqlite:FILE, redis://HOST:PORT/DB or postgresql://USER@HOST/DB, got {shown(url)!r}"
        )
    return scheme


def shown(url: str) -> str:
    """``url`` without the password in it."""
    try:
        password = urlsplit(url).password
    except ValueError:
        return url.partition(":")[0]
    return url if password is None else url.replace(f":{password}@", HIDDEN)


@asynccontextmanager
async def open_store(url: str, run: str) -> AsyncIterator[StateStore]:
    """The store at ``url``, for the entries of ``run``."""
    store = await OPENERS[scheme_of(url)](url, run)
    try:
        yield store
    finally:
        await store.close()
