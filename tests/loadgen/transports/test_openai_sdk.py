from __future__ import annotations

from aiohttp import web

from loadgen.call import Call, Completion
from loadgen.context import Conversation, user_message
from loadgen.target import Target
from loadgen.transports.openai_sdk import OpenAITransport
from mockserver.clock import WallClock
from tests.loadgen.sse_server import DONE, ROLE, STOP, TOKEN, USAGE, ScriptedServer, scripted_server

REPLY = {"role": "assistant", "content": " x x"}


async def complete(server: ScriptedServer, **target: object) -> Completion:
    call = Call(
        call_id="t/react#0",
        task_id="t",
        agent_id="t/react",
        conversation=Conversation(
            tools=('{"type":"function","function":{"name":"f"}}',), messages=[user_message("hi")]
        ),
        reply=REPLY,
        num_output_tokens=3,
    )
    async with OpenAITransport(Target(base_url=server.url, model="m", **target), WallClock()) as transport:  # type: ignore[arg-type]
        return await transport.complete(call)


async def test_the_sdk_sees_the_same_answer() -> None:
    async with scripted_server((0.0, ROLE + TOKEN), (0.05, TOKEN + STOP + USAGE + DONE)) as server:
        answer = await complete(server)

    assert answer.error is None
    assert (answer.num_prompt_tokens, answer.num_cached_tokens, answer.num_output_tokens) == (7, 4, 3)
    assert len(answer.chunk_at) == 2
    assert answer.finish_reason == "stop"
    assert server.bodies[0]["replayrig"] == {"first_at_once": True, "reply": REPLY}
    assert server.bodies[0]["session_id"] == "t/react"
    assert server.bodies[0]["tools"][0]["function"]["name"] == "f"


async def test_the_sdk_tells_what_was_said_where_it_is_asked_to() -> None:
    async with scripted_server((0.0, ROLE + TOKEN * 2 + STOP + USAGE + DONE)) as server:
        answer, silent = await complete(server, keeps_answers=True), await complete(server)

    assert answer.answer == {"role": "assistant", "content": " x x"}
    assert silent.answer is None


async def test_a_server_that_is_not_ours_is_asked_for_the_length() -> None:
    async with scripted_server((0.0, TOKEN + STOP + USAGE + DONE)) as server:
        await complete(server, scripted=False, exact=True, extra_body={"top_k": 1})

    body = server.bodies[0]
    assert (body["min_tokens"], body["ignore_eos"], body["max_completion_tokens"], body["top_k"]) == (3, True, 3, 1)
    assert body["tool_choice"] == "none"


async def test_refusals_and_missing_servers_are_errors_in_one_line() -> None:
    async with scripted_server() as server:
        server.refuse = lambda _: web.json_response({"error": {"message": "too long", "code": 400}}, status=400)
        refused = await complete(server)
    gone = await complete(ScriptedServer(url="http://127.0.0.1:9"))

    assert refused.status == 400
    assert refused.error is not None
    assert "too long" in refused.error
    assert gone.error is not None
    assert "\n" not in gone.error
