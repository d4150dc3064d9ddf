"""State in this process: gone with it."""

from __future__ import annotations

from collections.abc import Mapping


class MemoryStore:
    """A dictionary."""

    def __init__(self) -> None:
        self._value_by_key: dict[str, bytes] = {}

    async def load(self, key: str) -> bytes | None:
        """The entry, or None where there is none."""
        return self._value_by_key.get(key)

    async def save(self, entries: Mapping[str, bytes]) -> None:
        """Keep ``entries``."""
        self._value_by_key.update(entries)

    async def load_all(self, prefix: str) -> dict[str, bytes]:
        """All entries whose keys start with ``prefix``."""
        return {key: value for key, value in self._value_by_key.items() if key.startswith(prefix)}

    async def clear(self) -> None:
        """Forget everything."""
        self._value_by_key.clear()

    async def close(self) -> None:
        """Nothing is held open."""
