"""Bad requests: vLLM's status, type, parameter and words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.mockserver.api.conftest import HELLO, Client, connected

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("fields", "message", "param"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)", "max_tokens"),
        (
            {"temperature": 3},
            "temperature must be in [0, 2], got 3.0. (parameter=temperature, value=3.0)",
            "temperature",
        ),
        ({"top_p": 0}, "top_p must be in (0, 1], got 0.0. (parameter=top_p, value=0.0)", "top_p"),
        ({"n": 0}, "n must be at least 1, got 0.", None),
        ({"n": 2, "temperature": 0}, "n must be 1 when using greedy sampling, got 2.", None),
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens must be less than or equal to max_tokens=8, got 9.", None),
        ({"stop": [""]}, "stop cannot contain an empty string.", None),
        (
            {"tool_choice": "required"},
            "When using `tool_choice`, `tools` must be set. (parameter=tool_choice)",
            "tool_choice",
        ),
        (
            {"stream_options": {"include_usage": True}},
            "Stream options can only be defined when `stream=True`. (parameter=stream_options)",
            "stream_options",
        ),
        ({"messages": []}, "Cannot apply chat template to an empty conversation. Provide at least one message.", None),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "nonsense"}}}},
            "Grammar error: Invalid type: nonsense",
            None,
        ),
    ],
)
async def test_value_out_of_range_is_a_bad_request(
    client: Client, fields: dict[str, Any], message: str, param: str | None
) -> None:
    status, answer = await client.post(CHAT, {"messages": HELLO, **fields})

    assert status == 400
    assert answer["error"] == {"message": message, "type": "BadRequestError", "param": param, "code": 400}


async def test_wrong_type_is_reported_with_its_place(client: Client) -> None:
    status, answer = await client.post(CHAT, {"messages": HELLO, "max_tokens": "abc"})

    assert status == 400
    assert answer["error"] == {
        "message": "1 validation error:\n  {'type': 'int_parsing', 'loc': 'body.max_tokens', 'msg': 'Input should be a "
        "valid integer, unable to parse string as an integer', 'input': 'abc'}",
        "type": "Bad Request",
        "param": "body.max_tokens",
        "code": 400,
    }


async def test_message_without_a_role_is_reported_for_every_kind_of_message(client: Client) -> None:
    status, answer = await client.post(CHAT, {"messages": [{"content": "x"}]})

    assert status == 400
    assert answer["error"]["message"].startswith("11 validation errors:\n")
    assert answer["error"]["message"].endswith("...and 1 more errors")
    assert answer["error"]["param"] == "body.messages.0.ChatCompletionDeveloperMessageParam.role"


async def test_broken_json_is_reported_with_its_position(client: Client) -> None:
    headers = {"Content-Type": "application/json"}
    async with client.session.post(client.server.base_url + CHAT, data=b'{"model": "x", ', headers=headers) as response:
        answer = await response.json()

    assert response.status == 400
    assert answer["error"]["param"] == "body.15"
    assert "Expecting property name enclosed in double quotes" in answer["error"]["message"]


async def test_other_content_type_is_refused(client: Client) -> None:
    async with client.session.post(client.server.base_url + CHAT, data=b"{}") as response:
        answer = await response.json()

    assert response.status == 400
    assert answer["error"]["message"].endswith("Unsupported Media Type: Only 'application/json' is allowed")


async def test_unknown_model_is_not_found(client: Client) -> None:
    status, answer = await client.post(CHAT, {"messages": HELLO, "model": "nope"})

    assert status == 404
    assert answer["error"]["message"].startswith("The model `nope` does not exist. Valid aliases: ")


async def test_prompt_longer_than_the_context_is_refused_in_words_that_clients_look_for() -> None:
    async with connected(max_model_len=100) as client:
        status, answer = await client.post("/v1/completions", {"prompt": list(range(200, 301)), "max_tokens": 4})
        long_status, long_answer = await client.post(CHAT, {"messages": [{"role": "user", "content": "word " * 500}]})

    expected = (
        "This model's maximum context length is 100 tokens. However, your prompt contains at least 101 input tokens, "
        "which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. "
        "(parameter=input_tokens, value=101)"
    )
    assert (status, answer["error"]["message"]) == (400, expected)
    assert (long_status, long_answer["error"]["message"]) == (400, expected)


async def test_output_is_clipped_to_what_the_context_leaves() -> None:
    async with connected(max_model_len=100) as client:
        _, answer = await client.post("/v1/completions", {"prompt": list(range(200, 290)), "max_tokens": 50})

    assert answer["usage"] == {
        "prompt_tokens": 90,
        "total_tokens": 100,
        "completion_tokens": 10,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }


async def test_what_only_the_engine_finds_comes_as_an_event_of_a_stream(client: Client) -> None:
    fields: dict[str, Any] = {"messages": HELLO, "logprobs": True, "top_logprobs": 100}
    status, answer = await client.post(CHAT, fields)
    events = await client.stream(**fields)

    assert status == 400
    assert events == [answer, "[DONE]"]


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/v1/nope", 404, None),
        ("GET", "/", 404, None),
        ("GET", CHAT, 405, "POST"),
        ("POST", "/v1/models", 405, "GET"),
        ("HEAD", "/health", 405, "GET"),
    ],
)
async def test_unknown_path_or_method_is_the_frameworks_error(
    client: Client, method: str, path: str, status: int, allow: str | None
) -> None:
    async with client.session.request(method, client.server.base_url + path) as response:
        text = await response.text()

    assert response.status == status
    assert response.headers.get("allow") == allow
    if method != "HEAD":
        assert text == '{"detail":"%s"}' % ("Not Found" if status == 404 else "Method Not Allowed")  # braces


async def test_trailing_slash_is_redirected(client: Client) -> None:
    url = client.server.base_url
    async with client.session.post(f"{url}{CHAT}/", json={}, allow_redirects=False) as response:
        assert (response.status, response.headers["location"]) == (307, f"{url}{CHAT}")


async def test_keys_guard_the_api_and_leave_the_rest_open() -> None:
    async with connected(api_key=("one", "two")) as client:
        assert await client.get("/v1/models") == (401, '{"error":"Unauthorized"}')
        assert (await client.get("/v1/nope", Authorization="Bearer three"))[0] == 401
        assert (await client.get("/v1/models", Authorization="bearer two"))[0] == 200
        assert (await client.get("/health"))[0] == 200
        assert (await client.get("/version"))[0] == 200


async def test_full_queue_is_answered_as_vllm_does() -> None:
    async with connected(max_num_queued_reqs=1) as client:
        status, answer = await client.post(CHAT, {"messages": HELLO, "n": 2, "max_tokens": 1})

    assert status == 503
    assert answer["error"]["type"] == "Service Unavailable"


async def test_request_id_is_echoed_or_made_up() -> None:
    async with connected(enable_request_id_headers=True) as client:
        url = client.server.base_url
        async with client.session.get(f"{url}/health", headers={"X-Request-Id": "abc"}) as response:
            assert response.headers["x-request-id"] == "abc"
        async with client.session.get(f"{url}/v1/nope") as response:
            assert len(response.headers["x-request-id"]) == 32
        answer = await client.post(CHAT, {"messages": HELLO, "max_tokens": 1}, **{"X-Request-Id": "abc"})
        assert answer[1]["id"] == "chatcmpl-abc"


async def test_body_over_the_limit_is_refused() -> None:
    async with connected(max_body_mb=0.01) as client:
        status, answer = await client.post(CHAT, {"messages": [{"role": "user", "content": "x" * 20_000}]})

    assert status == 413
    assert answer["error"]["code"] == 413
