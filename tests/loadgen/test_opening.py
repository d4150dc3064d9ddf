"""The standstill at a scaled run's start ends with the run, whatever becomes of it."""

from __future__ import annotations

import pytest

from loadgen.http_door import over_http
from loadgen.server_view import ServerView, new_session
from loadgen.target import Target
from mockserver.clock import WallClock
from tests.mockserver.api.conftest import FAST, connected


class BrokenOff(Exception):
    """What ends the run; says whether the server's clock was held then."""


async def test_a_run_that_is_broken_off_in_its_first_instant_lets_the_servers_clock_go() -> None:
    async with connected() as client, new_session() as session:
        server_clock = client.machine.clock
        assert isinstance(server_clock, WallClock)
        target = Target(base_url=client.server.base_url, model="m")
        view, clock = ServerView(target=target, session=session), WallClock(FAST)
        await view.find_out()

        async def run() -> None:
            async with over_http(target, clock, view):
                raise BrokenOff(server_clock.is_held)

        with pytest.raises(ExceptionGroup) as caught:
            await run()

        assert caught.group_contains(BrokenOff, match="True")
        assert not server_clock.is_held
