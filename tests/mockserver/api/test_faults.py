"""Faults on demand: each kind as a client meets it, by header, by share, and switched while the server runs."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from mockserver.api.faults import FaultError, Faults, faults_from_json, parsed_fault
from mockserver.clock import WallClock
from tests.mockserver.api.conftest import HELLO, Client, connected

CHAT = "/v1/chat/completions"
BODY = {"messages": HELLO, "max_tokens": 4, "temperature": 0}


async def ask(client: Client, fault: str, *, stream: bool = False) -> tuple[int, dict[str, str], bytes]:
    headers = {"x-replayrig-fault": fault}
    url = client.server.base_url + CHAT
    async with client.session.post(url, json={**BODY, "stream": stream}, headers=headers) as response:
        return response.status, dict(response.headers), await response.read()


@pytest.mark.parametrize(("kind", "status"), [("429", 429), ("500", 500), ("503", 503)])
async def test_error_is_answered_instead(client: Client, kind: str, status: int) -> None:
    got, headers, body = await ask(client, kind)

    assert got == status
    assert b'"error"' in body
    assert ("Retry-After" in headers) == (kind == "429")


@pytest.mark.parametrize(
    ("kind", "stream"), [("reset", False), ("reset", True), ("truncate", False), ("truncate", True)]
)
async def test_connection_breaks(client: Client, kind: str, stream: bool) -> None:
    with pytest.raises(aiohttp.ClientError):
        await ask(client, kind, stream=stream)

    assert client.machine.live_request_ids == set()


@pytest.mark.parametrize("kind", ["stall=3", "slow-first-token=3"])
@pytest.mark.parametrize("stream", [False, True])
async def test_answer_comes_late_but_whole(client: Client, kind: str, stream: bool) -> None:
    began_at = client.machine.clock.now()

    status, _, body = await ask(client, kind, stream=stream)

    assert status == 200
    assert client.machine.clock.now() - began_at > 3.0
    assert body.endswith(b"data: [DONE]\n\n") == stream


async def test_malformed_event_is_sent_among_good_ones(client: Client) -> None:
    _, _, body = await ask(client, "malformed", stream=True)

    events = [block for block in body.split(b"\n\n") if block]
    assert sum(not block.endswith((b"}", b"[DONE]")) for block in events) == 1
    assert events[-1] == b"data: [DONE]"


async def test_unknown_fault_is_refused(client: Client) -> None:
    status, _, body = await ask(client, "meteor")

    assert status == 400
    assert b"known are 429, 500" in body


async def test_share_of_requests_is_hit_and_the_switch_works_while_running() -> None:
    async with connected(fault=("500=0.5",), seed=3) as client:
        url = client.server.base_url
        first = [(await client.post(CHAT, BODY))[0] for _ in range(20)]
        async with client.session.put(f"{url}/replayrig/faults", json={"503": {"share": 1.0}}) as response:
            shown = await response.json()
        second = [(await client.post(CHAT, BODY))[0] for _ in range(3)]
        async with client.session.delete(f"{url}/replayrig/faults") as response:
            assert (await response.json())["faults"] == {}
        third = (await client.post(CHAT, BODY))[0]
        _, metrics = await client.get("/metrics")

    assert set(first) == {200, 500}
    assert shown["faults"] == {"503": {"share": 1.0, "seconds": 0.0}}
    assert (second, third) == ([503] * 3, 200)
    assert f'replayrig:faults_total{{kind="500"}} {float(first.count(500))}' in metrics


def test_same_seed_hits_the_same_requests() -> None:
    def hits(seed: int) -> list[bool]:
        faults = Faults([parsed_fault("500=0.3")], seed=seed, clock=WallClock())
        return [faults.draw({}) is not None for _ in range(50)]

    assert hits(1) == hits(1)
    assert hits(1) != hits(2)


@pytest.mark.parametrize("text", ["meteor=0.1", "500=2", "500=x", "stall=0.5:-1"])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(FaultError):
        parsed_fault(text)


@pytest.mark.parametrize("data", [[], {"500": "much"}, {"500": {"share": 0.1, "what": 1}}, {"500": True}])
def test_nonsense_json_is_refused(data: Any) -> None:
    with pytest.raises(FaultError):
        faults_from_json(data)
