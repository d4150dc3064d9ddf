"""The timed path, on a real socket against a server whose every byte is known."""

from __future__ import annotations

import orjson
import pytest
from aiohttp import web

from loadgen.call import Call, Completion
from loadgen.context import Conversation, user_message
from loadgen.prompt_ids import PromptIds
from loadgen.target import Target
from loadgen.transports.http import HttpTransport
from mockserver import tokens
from mockserver.clock import WallClock
from mockserver.prompt import PromptEncoder
from tests.loadgen.sse_server import CUT, DONE, ROLE, STOP, TOKEN, USAGE, Script, scripted_server, serving

REPLY = {"role": "assistant", "content": " x x"}


def took(duration_s: float, expected_s: float) -> bool:
    """Never less than expected, and no more than a busy machine adds."""
    return expected_s - 0.002 <= duration_s <= expected_s + 0.4


def make_call(call_id: str = "t/react#0", *, tools: tuple[str, ...] = ()) -> Call:
    conversation = Conversation(tools=tools, messages=[user_message("hëllo")])
    return Call(
        call_id=call_id, task_id="t", agent_id="t/react", conversation=conversation, reply=REPLY, num_output_tokens=3
    )


async def complete(script: Script, *, base_url_end: str = "", **target: object) -> Completion:
    async with scripted_server(*script) as server:
        return await send(server.url + base_url_end, **target)


async def send(url: str, **target: object) -> Completion:
    async with HttpTransport(Target(base_url=url, model="m", **target), WallClock()) as transport:  # type: ignore[arg-type]
        return await transport.complete(make_call())


@pytest.mark.wall_clock
async def test_times_are_those_of_the_first_and_the_last_token() -> None:
    """The role chunk comes 0.5 s before the first token, the finish reason 0.5 s after the last, usage later still."""
    answer = await complete(
        [(0.5, ROLE), (0.5, TOKEN), (0.5, TOKEN + TOKEN), (0.5, STOP), (0.5, USAGE + DONE)], base_url_end="/v1/"
    )

    assert answer.error is None
    assert answer.first_token_at is not None
    assert answer.last_token_at is not None
    assert took(answer.first_token_at - answer.sent_at, 1.0)
    assert took(answer.last_token_at - answer.sent_at, 1.5)
    assert took(answer.ended_at - answer.sent_at, 2.0)  # the agent has it all
    assert len(answer.chunk_at) == 3
    assert (answer.num_prompt_tokens, answer.num_cached_tokens, answer.num_output_tokens) == (7, 4, 3)
    assert (answer.status, answer.finish_reason) == (200, "stop")


@pytest.mark.wall_clock
async def test_a_stream_that_stalls_is_measured_not_cut_off() -> None:
    answer = await complete([(0.0, ROLE + TOKEN), (0.6, TOKEN + STOP + USAGE + DONE)])

    assert answer.error is None
    first, second = answer.chunk_at
    assert took(second - first, 0.6)


async def test_an_error_inside_a_stream_fails_the_call() -> None:
    answer = await complete(
        [(0.0, ROLE + TOKEN), (0.0, b'data: {"error":{"message":"out of memory","code":500}}\n\n'), (0.0, DONE)]
    )

    assert answer.error == "out of memory (500)"
    assert answer.status == 200


async def test_a_cut_connection_fails_the_call() -> None:
    answer = await complete([(0.0, ROLE + TOKEN), (0.05, CUT)])

    assert answer.error is not None
    assert answer.status == 200


async def test_a_refusal_is_told_with_its_status_and_text() -> None:
    async with scripted_server() as server:
        server.refuse = lambda _: web.json_response({"error": {"message": "too long", "code": 400}}, status=400)
        refused = await send(server.url)
        server.refuse = lambda _: web.Response(text="<html>\nno</html>", status=502)
        puzzling = await send(server.url)
        server.refuse = lambda _: web.json_response({"detail": "Not Found"}, status=404)
        missing = await send(server.url)

    assert (refused.status, refused.error) == (400, "HTTP 400: too long (400)")
    assert (puzzling.status, puzzling.error) == (502, "HTTP 502: <html> no</html>")
    assert missing.error == "HTTP 404: Not Found"


async def test_a_server_that_is_not_there_is_one_line() -> None:
    answer = await send("http://127.0.0.1:9")

    assert answer.status is None
    assert answer.error is not None
    assert "127.0.0.1" in answer.error
    assert "\n" not in answer.error


async def test_the_body_holds_the_history_the_tools_and_the_recorded_reply() -> None:
    async with scripted_server((0.0, TOKEN + STOP + USAGE + DONE)) as server:
        target = Target(base_url=server.url, model="m", headers={"authorization": "Bearer k"}, extra_body={"top_k": 1})
        async with HttpTransport(target, WallClock()) as transport:
            call = make_call(tools=('{"type":"function"}',))
            await transport.complete(call)
            call.conversation.add(REPLY)
            await transport.complete(call)
    first, second = server.bodies

    assert first == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "top_k": 1,
        "tools": [{"type": "function"}],
        "messages": [{"role": "user", "content": "hëllo"}],
        "session_id": "t/react",
        "replayrig": {"first_at_once": True, "reply": REPLY},
    }
    assert second["messages"] == [{"role": "user", "content": "hëllo"}, REPLY]
    assert server.headers[0]["authorization"] == "Bearer k"


async def test_what_was_said_is_told_where_it_is_wanted_and_never_of_a_call_that_failed() -> None:
    whole = [(0.0, ROLE + TOKEN * 2 + STOP + USAGE + DONE)]
    cut = [(0.0, ROLE + TOKEN), (0.05, CUT)]

    answers = [
        (await complete(script, keeps_answers=wanted)).answer
        for script, wanted in ((whole, True), (whole, False), (cut, True))
    ]

    assert answers == [{"role": "assistant", "content": " x x"}, None, None]


async def test_ids_go_to_plain_completions_with_the_length_that_is_wanted() -> None:
    bodies = []

    async def answer(request: web.Request) -> web.StreamResponse:
        bodies.append(orjson.loads(await request.read()))
        text = b'data: {"choices":[{"index":0,"text":" x","token_ids":[5],"finish_reason":"length"}]}\n\n'
        return web.Response(body=text + USAGE + DONE, content_type="text/event-stream")

    async with serving({("POST", "/v1/completions"): answer}) as url:
        for fields in (
            {"scripted": True},
            {"scripted": False, "exact": True},
            {"scripted": False, "keeps_answers": True},
        ):
            target = Target(base_url=url, model="m", **fields)  # type: ignore[arg-type]
            async with HttpTransport(target, WallClock(), PromptIds()) as transport:
                done = await transport.complete(make_call())

    prompt = tokens.unpack(PromptEncoder(block_size=16).chat([user_message("hëllo")]))
    assert [body.pop("prompt") for body in bodies] == [prompt] * 3
    common = {"model": "m", "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 3}
    assert bodies == [
        common | {"session_id": "t/react", "replayrig": {"first_at_once": True, "reply": REPLY}},
        common | {"min_tokens": 3, "ignore_eos": True},
        common | {"return_token_ids": True},
    ]
    assert (done.num_prompt_tokens, done.expected_prompt_tokens) == (7, len(prompt))
    assert done.answer == {"role": "assistant", "content": " x", "token_ids": [5]}


async def test_one_connection_serves_one_call_after_the_other() -> None:
    async with scripted_server((0.0, TOKEN + STOP + USAGE + DONE)) as server:
        async with HttpTransport(Target(base_url=server.url, model="m"), WallClock()) as transport:
            answers = [await transport.complete(make_call()) for _ in range(3)]

        assert [answer.error for answer in answers] == [None] * 3
        assert len(set(server.peers)) == 1
