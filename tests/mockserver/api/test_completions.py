"""Plain completions: text and ids, batches, echo, streams."""

from __future__ import annotations

from mockserver.tokens import count
from tests.mockserver.api.conftest import Client, connected

PATH = "/v1/completions"


async def test_answer_has_all_keys_of_vllm_in_its_order(client: Client) -> None:
    _, answer = await client.post(PATH, {"prompt": "Once upon a time", "temperature": 0})

    assert list(answer) == [
        *("id", "object", "created", "model", "choices", "service_tier", "system_fingerprint", "usage"),
        *("kv_transfer_params", "ec_transfer_params", "metrics"),
    ]
    choice = answer["choices"][0]
    assert list(choice) == [
        *("index", "text", "logprobs", "finish_reason", "stop_reason", "token_ids", "prompt_logprobs"),
        *("prompt_token_ids", "routed_experts"),
    ]
    assert answer["id"].startswith("cmpl-")
    assert answer["usage"]["completion_tokens"] == 16
    assert count(choice["text"]) == 16


async def test_prompt_of_ids_is_counted_as_given_and_hit_when_repeated() -> None:
    async with connected(enable_prompt_tokens_details=True) as client:
        body = {"prompt": list(range(500, 550)), "max_tokens": 3}
        _, first = await client.post(PATH, body)
        _, again = await client.post(PATH, body)

    assert first["usage"]["prompt_tokens"] == 50
    assert first["usage"]["prompt_tokens_details"] == {
        "cached_tokens": 0,
        "created_cache_tokens": None,
        "multimodal_tokens": None,
    }
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 48


async def test_batch_gives_a_choice_for_each_prompt(client: Client) -> None:
    _, answer = await client.post(PATH, {"prompt": [[101, 102, 103], [104, 105]], "max_tokens": 3})

    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert answer["usage"] == {
        "prompt_tokens": 5,
        "total_tokens": 11,
        "completion_tokens": 6,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }


async def test_stream_has_no_role_chunk(client: Client) -> None:
    events = await client.stream(PATH, prompt="Once", max_tokens=3, stream_options={"include_usage": True})

    assert list(events[0]["choices"][0]) == [
        *("index", "text", "logprobs", "finish_reason", "stop_reason", "prompt_token_ids", "token_ids"),
    ]
    assert [event["choices"][0]["finish_reason"] for event in events[:3]] == [None, None, "length"]
    assert events[3]["usage"] == {"prompt_tokens": 1, "total_tokens": 4, "completion_tokens": 3}


async def test_echo_repeats_the_prompt_with_logprobs(client: Client) -> None:
    _, answer = await client.post(PATH, {"prompt": "abc def", "max_tokens": 2, "echo": True, "logprobs": 1})

    choice = answer["choices"][0]
    assert choice["text"].startswith("abc def")
    assert choice["logprobs"]["token_logprobs"][0] is None
    assert "".join(choice["logprobs"]["tokens"]) == choice["text"]
    assert choice["logprobs"]["text_offset"][:2] == [0, 3]
    assert choice["prompt_logprobs"][0] is None


async def test_tokens_can_be_sent_several_to_a_chunk(client: Client) -> None:
    events = await client.stream(PATH, prompt="x", max_tokens=10, stream_interval=4, return_token_ids=True)

    assert [len(event["choices"][0]["token_ids"]) for event in events[:-1]] == [1, 4, 4, 1]


async def test_unknown_token_is_refused(client: Client) -> None:
    status, answer = await client.post(PATH, {"prompt": [1, 200_000]})

    assert (status, answer["error"]["message"]) == (400, "Token id 200000 is out of vocabulary")


async def test_what_only_the_engine_finds_reaches_a_stream_as_an_event(client: Client) -> None:
    status, whole = await client.post("/v1/completions", {"prompt": [1, 10**8], "max_tokens": 2})
    events = await client.stream("/v1/completions", prompt=[1, 10**8], max_tokens=2)

    assert (status, whole["error"]["message"]) == (400, "Token id 100000000 is out of vocabulary")
    assert events == [whole, "[DONE]"]
