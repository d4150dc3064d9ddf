"""What is asked of a server before a run, on a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from loadgen import capabilities
from loadgen.server_view import ServerView, new_session
from loadgen.target import Target, TargetError
from mockserver.clock import WallClock
from tests.loadgen.sse_server import DONE, STOP, TOKEN, USAGE, scripted_server, serving
from traces.record import SERVER_COUNTS

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
MODELS = {"object": "list", "data": [{"id": "tiny", "max_model_len": 4096}, {"id": "other"}]}


def says(body: object, *, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        if isinstance(body, str):
            return web.Response(text=body, status=status, headers=headers)
        return web.json_response(body, status=status, headers=headers)

    return answer


@asynccontextmanager
async def viewing(routes: dict[tuple[str, str], Answer]) -> AsyncIterator[ServerView]:
    async with serving(routes) as url, new_session() as session:
        yield ServerView(
            target=Target(base_url=f"{url}/v1", model="", headers={"authorization": "Bearer k"}), session=session
        )


async def test_models_context_and_metrics_are_found_out() -> None:
    routes = {("GET", "/v1/models"): says(MODELS), ("GET", "/metrics"): says("vllm:num_requests_running 1\n")}
    async with viewing(routes) as view:
        await view.find_out()

        assert view.model_names == ("tiny", "other")
        assert view.max_model_len == 4096
        assert view.time_scale is None
        assert not view.is_mock
        assert view.has_metrics


async def test_a_server_of_ours_shows_its_clock_and_scale() -> None:
    routes = {
        ("GET", "/v1/models"): says(MODELS, headers={"x-replayrig-time-scale": "20"}),
        ("GET", "/metrics"): says("replayrig:simulated_seconds 500.0\n"),
        ("GET", "/replayrig/status"): says({"simulated_s": 500.0, "engine": {}}),
    }
    async with viewing(routes) as view:
        clock = WallClock(20.0)
        await view.find_out()
        offset_s = await view.clock_offset_s(clock)

        assert (view.is_mock, view.time_scale) == (True, 20.0)
        assert offset_s is not None
        assert 480.0 < offset_s <= 500.0


async def test_a_server_of_ours_is_asked_whose_blocks_it_evicted() -> None:
    counts = dict.fromkeys(SERVER_COUNTS, 3)
    routes = {
        ("GET", "/v1/models"): says(MODELS),
        ("GET", "/metrics"): says("replayrig:simulated_seconds 500.0\n"),
        ("GET", "/replayrig/status"): says({"simulated_s": 500.0, "engine": counts, "evictions": {"t/react": 2}}),
    }
    async with viewing(routes) as view:
        await view.find_out()
        sample = await view.sample(WallClock())

    assert sample is not None
    assert (sample.num_evicted_blocks, sample.evicted_by_agent) == (3, {"t/react": 2})


async def test_a_server_without_metrics_is_asked_for_them_once() -> None:
    num_asked = 0

    async def no_metrics(_: web.Request) -> web.StreamResponse:
        nonlocal num_asked
        num_asked += 1
        return web.Response(status=404)

    async with viewing({("GET", "/v1/models"): says(MODELS), ("GET", "/metrics"): no_metrics}) as view:
        await view.find_out()
        assert await view.sample(WallClock()) is None
        assert await view.clock_offset_s(WallClock()) is None

    assert num_asked == 1


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (says({"error": "Unauthorized"}, status=401), "HTTP 401: Unauthorized"),
        (says("<html>"), "not a list of models"),
        (says({"data": []}), "not a list of models"),
        (says([1]), "not a list of models"),
    ],
)
async def test_what_is_not_a_model_server_is_refused_in_one_line(answer: Answer, text: str) -> None:
    async with viewing({("GET", "/v1/models"): answer}) as view:
        with pytest.raises(TargetError, match=text) as caught:
            await view.find_out()

    assert "/v1/models" in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_server_that_is_still_starting_is_waited_for() -> None:
    num_asked = 0

    async def later(request: web.Request) -> web.StreamResponse:
        nonlocal num_asked
        num_asked += 1
        return await (says(MODELS) if num_asked > 1 else says("loading", status=503))(request)

    async with viewing({("GET", "/v1/models"): later}) as view:
        await view.find_out(ready_timeout_s=10.0)

        assert view.model_names[0] == "tiny"


async def test_the_prefix_cache_is_reset_or_the_run_does_not_start() -> None:
    path = ("POST", "/reset_prefix_cache")
    async with viewing({path: says({"success": True})}) as view:
        await view.reset_prefix_cache()
    async with viewing({path: says("")}) as view:
        await view.reset_prefix_cache()
    async with viewing({path: says({"success": False})}) as view:
        with pytest.raises(TargetError, match="requests are running"):
            await view.reset_prefix_cache()
    async with viewing({}) as view:
        with pytest.raises(TargetError, match="VLLM_SERVER_DEV_MODE"):
            await view.reset_prefix_cache()


async def test_what_a_server_can_do_is_seen_in_one_small_call() -> None:
    async with scripted_server((0.0, TOKEN * 3 + STOP + USAGE + DONE)) as server:
        target = Target(base_url=server.url, model="m", scripted=False, exact=True)
        same, found = await capabilities.find_out(target, WallClock())

    assert same == target
    assert (found.usage_in_streams, found.cached_tokens, found.exact_lengths) == (True, True, True)
    assert server.bodies[0]["min_tokens"] == server.bodies[0]["max_completion_tokens"] == 3
    assert server.bodies[0]["ignore_eos"] is True
    assert "replayrig" not in server.bodies[0]


async def test_a_server_that_refuses_exact_lengths_is_asked_without_them() -> None:
    async with scripted_server((0.0, TOKEN + STOP + DONE)) as server:
        refusal = {"error": {"message": "unknown ignore_eos"}}
        server.refuse = lambda number: None if number else web.json_response(refusal, status=400)
        target, found = await capabilities.find_out(
            Target(base_url=server.url, model="m", scripted=False, exact=True), WallClock()
        )

    assert not target.exact
    assert (found.usage_in_streams, found.cached_tokens, found.exact_lengths) == (False, False, False)
    assert "token counts are unknown" in found.in_words()
    assert "ignore_eos" not in server.bodies[1]


async def test_a_server_that_answers_nothing_is_refused() -> None:
    async with scripted_server() as server:
        server.refuse = lambda _: web.json_response({"error": {"message": "no such model"}}, status=404)
        with pytest.raises(TargetError, match="no such model"):
            await capabilities.find_out(Target(base_url=server.url, model="m", scripted=False), WallClock())
