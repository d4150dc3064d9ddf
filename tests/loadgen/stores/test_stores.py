"""Every store does the same, the servers for real."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadgen.stores.store import StateStore, StoreDownError, StoreError, open_store, scheme_of, shown
from tests.loadgen.stores.servers import Server, free_port, postgres_server, redis_server

KINDS = ("memory", "sqlite", "redis", "postgres")


@pytest.fixture(scope="module")
def redis() -> Iterator[Server]:
    with redis_server() as server:
        yield server


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    with postgres_server() as server:
        yield server


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    kind: str = request.param
    if kind == "memory":
        return "memory:"
    if kind == "sqlite":
        return f"sqlite:{tmp_path / 'state.db'}"
    server: Server = request.getfixturevalue(kind)
    return server.url


async def test_what_was_saved_is_loaded(url: str) -> None:
    async with open_store(url, "one") as store:
        await store.clear()
        await store.save({"agent/a": b"\x00first", "call/1": b"c"})
        await store.save({"agent/a": b"second", "call/2": b"d"})

        assert await store.load("agent/a") == b"second"
        assert await store.load("agent/b") is None
        assert await store.load_all("call/") == {"call/1": b"c", "call/2": b"d"}
        assert await store.load_all("call_") == {}


async def test_saving_twice_is_saving_once(url: str) -> None:
    async with open_store(url, "twice") as store:
        await store.clear()
        for _ in range(2):
            await store.save({"call/1": b"c"})

        assert await store.load_all("") == {"call/1": b"c"}


async def test_many_agents_at_once(url: str) -> None:
    async with open_store(url, "many") as store:
        await store.clear()

        async def work(number: int, store: StateStore = store) -> None:
            for step in range(3):
                await store.save({f"agent/{number}": b"%d" % step, f"call/{number}/{step}": b"x" * 1000})

        async with asyncio.TaskGroup() as group:
            for number in range(200):
                group.create_task(work(number))

        assert len(await store.load_all("call/")) == 600
        assert set((await store.load_all("agent/")).values()) == {b"2"}


@pytest.mark.parametrize("url", KINDS[1:], indirect=True)
async def test_runs_do_not_see_each_other_and_are_there_when_it_is_opened_again(url: str) -> None:
    async with open_store(url, "here") as here, open_store(url, "there") as there:
        await here.save({"run": b"h"})
        await there.clear()

        assert await there.load("run") is None
    async with open_store(url, "here") as again:
        assert await again.load("run") == b"h"


@pytest.mark.parametrize("name", ["redis", "postgres"])
async def test_a_server_that_was_killed_is_down_and_then_has_everything(
    name: str, request: pytest.FixtureRequest
) -> None:
    server: Server = request.getfixturevalue(name)
    async with open_store(server.url, "killed") as store:
        await store.save({"call/1": b"c"})
        server.kill()
        with pytest.raises(StoreDownError, match=r"127\.0\.0\.1|[Cc]onnect"):
            await store.load("call/1")
        server.start()
        for _ in range(100):  # it recovers before it answers
            try:
                value = await store.load("call/1")
                break
            except StoreDownError:
                await asyncio.sleep(0.1)

        assert value == b"c"


@pytest.mark.parametrize("scheme", ["redis", "postgresql"])
async def test_nobody_there_is_one_line_without_the_password(scheme: str) -> None:
    pytest.importorskip("redis" if scheme == "redis" else "asyncpg")
    url = f"{scheme}://user:secret@127.0.0.1:{free_port()}/0"

    with pytest.raises(StoreDownError, match=r"user:\*\*\*@127") as caught:
        async with open_store(url, "run"):
            pass

    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["sqlite:", "sqlite:/no/such/folder/state.db"])
async def test_a_file_that_cannot_be_opened_is_one_line(url: str) -> None:
    with pytest.raises(StoreError, match="sqlite:"):
        async with open_store(url, "run"):
            pass


async def test_a_file_that_is_no_database_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("hello, this is not a database, and it is long enough to be looked at" * 20)

    with pytest.raises(StoreError, match="not a database"):
        async with open_store(f"sqlite:{tmp_path / 'x.db'}", "run"):
            pass


def test_unknown_stores_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"redis://HOST:PORT/DB or postgresql://USER@HOST/DB, got 'mysql://me:\*\*\*@h/x'"
    ):
        scheme_of("mysql://me:pw@h/x")
    assert shown("redis://h/0") == "redis://h/0"
