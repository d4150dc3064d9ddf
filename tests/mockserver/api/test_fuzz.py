"""A short fuzz run; ``python -m tests.mockserver.api.fuzz 10000`` is the long one."""

from __future__ import annotations

from tests.mockserver.api.fuzz import fuzz


async def test_nothing_odd_makes_the_server_fail_hang_or_leak() -> None:
    fuzzer = await fuzz(600, seed=1)

    assert fuzzer.complaints == []
    assert fuzzer.num_by_status["200"] > 50
