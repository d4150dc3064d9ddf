"""Whose blocks a server evicts, as it tells those who ask."""

from __future__ import annotations

import json

from mockserver.engine.chains import ChainRun
from mockserver.owners import BlockOwners
from tests.mockserver.api.conftest import Client, connected


async def evictions(client: Client) -> dict[str, int]:
    _, text = await client.get("/replayrig/status?evictions")
    found: dict[str, int] = json.loads(text)["evictions"]
    return found


async def test_evicted_blocks_are_told_by_session_and_once() -> None:
    async with connected(num_gpu_blocks_override=33, max_model_len=512, block_size=16) as client:
        assert await evictions(client) == {}
        for name in ("a", "b"):
            messages = [{"role": "user", "content": f"{name} counts: " + f"{name} one two three four five " * 40}]
            await client.chat(messages=messages, max_tokens=20, session_id=name)

        told = await evictions(client)

        assert set(told) == {"a"}
        assert told["a"] == client.machine.driver.snapshot().num_evicted_blocks > 0
        assert await evictions(client) == {}


async def test_who_does_not_ask_for_evictions_takes_none() -> None:
    async with connected() as client:
        _, text = await client.get("/replayrig/status")

    assert "evictions" not in json.loads(text)


def test_the_first_session_owns_a_chain_and_the_oldest_chains_are_forgotten() -> None:
    owners = BlockOwners(max_chains=2)
    for chain_id, session_id in ((0, "a"), (0, "b"), (1, "b"), (2, "c")):
        owners.note((ChainRun(chain_id, 0, 4),), session_id)

    assert owners.sessions == ("b", "c")
