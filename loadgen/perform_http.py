"""A run over HTTP: the server is started or found, asked what it can do, and prompts are made for it."""

from __future__ import annotations

import uuid
from dataclasses import replace

from loadgen import prompt_making
from loadgen.config import OWN_MOCK, Settings
from loadgen.http_door import over_http as door_over_http
from loadgen.own_mock import own_mock
from loadgen.perform import Performance
from loadgen.server_view import ServerView, new_session
from loadgen.target import Target, TargetError
from loadgen.warm_up import send_warm_ups
from mockserver.clock import WallClock


async def over_http(run: Performance) -> None:
    """The run over HTTP, against a mock of our own or the server at the given URL."""
    if run.shard.server_url is not None:
        await _at_url(run, run.shard.server_url)
    elif run.settings.target == OWN_MOCK:
        run.directory.mkdir(parents=True, exist_ok=True)
        log_file = run.directory / "server.log"
        async with own_mock(run.settings, time_scale=run.time_scale, log_file=log_file) as url:
            await _at_url(run, url)
    else:
        await _at_url(run, run.settings.target)


async def _at_url(run: Performance, url: str) -> None:
    settings = run.settings
    async with new_session() as session:
        headers = settings.headers()
        server = ServerView(target=Target(base_url=url, model="", headers=headers), session=session)
        await server.find_out(ready_timeout_s=settings.ready_check_timeout_sec)
        rate = _agreed_rate(settings, server, run.time_scale)
        clock = WallClock(rate)
        target = Target(
            base_url=url,
            model=settings.model or server.model_names[0],
            headers=headers,
            extra_body=settings.more_body() | ({"cache_salt": uuid.uuid4().hex} if settings.cache_bust else {}),
            scripted=server.is_mock,
            tells_answers=settings.recorded_answers,
            exact=settings.exact_lengths,
            keeps_answers=settings.history == "live",
        )
        tasks = run.shard.of(run.workload.trajectories)
        if server.is_mock:
            prompts = prompt_making.for_mock(settings, target)
        else:
            prompts = await prompt_making.for_foreign(settings, server, target, tasks, clock=clock, shard=run.shard)
            run.notes["server"] = "; ".join(prompts.notes)
        async with run.state(clock) as state:
            if run.shard.is_first and run.past.is_empty:
                if settings.num_warmups:
                    await send_warm_ups(prompts.target, clock, settings.num_warmups, prompts.prompt_ids)
                if settings.reset_prefix_cache:
                    await server.reset_prefix_cache()
            async with door_over_http(
                prompts.target,
                clock,
                server,
                client=settings.client,
                prompt_ids=prompts.prompt_ids,
                warm_up=prompt_making.histories(tasks) if server.is_mock else (),
                starts_at=run.past.ended_at,
                wait_for_start=run.shard.wait_for_start,
                is_alone=run.shard.is_whole,
            ) as door:
                assert run.header is None, "one performance, one run"
                door_for_agents = replace(door, transport=prompts.around(door.transport))
                await run.through(door_for_agents, clock, target=url, page=server.first_page, state=state)


def _agreed_rate(settings: Settings, server: ServerView, own_mock_rate: float) -> float:
    """The server's time scale, which a given one must not contradict."""
    if settings.target == OWN_MOCK:
        return own_mock_rate
    rate = server.time_scale or 1.0
    asked = settings.fixed_time_scale
    if asked is not None and asked != rate:
        raise TargetError(f"{settings.target} runs at time scale {rate:g}, not at the {asked:g} of --time-scale")
    return rate
