"""A client may hold the server's clock: what it sends meanwhile arrives at one instant."""

from __future__ import annotations

import asyncio
import json

from tests.mockserver.api.conftest import HELLO, Client


async def test_requests_are_taken_in_and_answered_when_time_goes_on(client: Client) -> None:
    url = f"{client.server.base_url}/replayrig/clock"
    async with client.session.put(url) as response:
        held = await response.json()
    body = {"messages": HELLO, "max_tokens": 2, "replayrig": {}}
    asked = [asyncio.create_task(client.post("/v1/chat/completions", body)) for _ in range(3)]
    await asyncio.wait(asked, timeout=0.1)
    status = json.loads((await client.get("/replayrig/status"))[1])
    none_done = not any(one.done() for one in asked)
    async with client.session.delete(url) as response:
        released = await response.json()
    answers = [(await one)[1] for one in asked]

    assert held["held"]
    assert none_done
    assert (status["num_requests"], status["engine"]["num_waiting"]) == (3, 3)
    assert status["simulated_s"] == held["simulated_s"]
    assert not released["held"]
    assert {answer["replayrig"]["arrived_at"] for answer in answers} == {held["simulated_s"]}


async def test_a_client_that_is_gone_does_not_stop_time_for_ever(client: Client) -> None:
    async with client.session.put(f"{client.server.base_url}/replayrig/clock") as response:
        assert response.status == 200
    machine = client.machine
    assert machine.end_of_hold is not None
    left_s = machine.end_of_hold.when() - asyncio.get_running_loop().time()

    assert 50.0 < left_s <= 60.0


async def test_releasing_a_clock_that_nobody_holds_changes_nothing(client: Client) -> None:
    async with client.session.delete(f"{client.server.base_url}/replayrig/clock") as response:
        assert (response.status, (await response.json())["held"]) == (200, False)
