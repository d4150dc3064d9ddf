"""Chat answers: envelope, streams, limits, scripts, tools."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mockserver.prompt import PromptEncoder
from mockserver.tokens import count, num_tokens
from tests.mockserver.api.conftest import HELLO, Client, connected

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["city", "days"],
        },
    },
}


@pytest.mark.parametrize("has_cache", [False, True])
async def test_a_server_without_a_cache_remembers_no_blocks(has_cache: bool) -> None:
    async with connected(enable_prefix_caching=has_cache) as client:
        answer = await client.chat(max_tokens=40)
        remembered = client.machine.encoder.chains.num_tokens

    assert answer["usage"]["completion_tokens"] > 0
    assert (remembered > 0) == has_cache


async def test_answer_has_all_keys_of_vllm_in_its_order(client: Client) -> None:
    answer = await client.chat(max_tokens=8)

    assert list(answer) == [
        *("id", "object", "created", "model", "choices", "service_tier", "system_fingerprint", "usage"),
        *("prompt_logprobs", "prompt_token_ids", "prompt_text", "kv_transfer_params", "ec_transfer_params", "metrics"),
    ]
    choice = answer["choices"][0]
    assert list(choice) == [
        *("index", "message", "logprobs", "finish_reason", "stop_reason", "token_ids", "routed_experts"),
    ]
    assert list(choice["message"]) == [
        *("role", "content", "refusal", "annotations", "audio", "function_call", "reasoning"),
    ]
    assert choice["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 8
    assert count(choice["message"]["content"]) == 8


async def test_stream_is_role_then_one_chunk_a_token_then_done(client: Client) -> None:
    events = await client.stream(max_tokens=4)

    deltas = [event["choices"][0]["delta"] for event in events[:-1]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert all(list(delta) == ["content"] for delta in deltas[1:])
    assert len(deltas) == 5
    assert events[-2]["choices"][0]["finish_reason"] == "length"
    assert "system_fingerprint" in events[-2]
    assert events[-1] == "[DONE]"


async def test_stream_and_whole_answer_say_the_same(client: Client) -> None:
    whole = await client.chat(max_tokens=20, temperature=0)
    events = await client.stream(max_tokens=20, temperature=0)

    text = "".join(event["choices"][0]["delta"]["content"] for event in events[:-1])

    assert text == whole["choices"][0]["message"]["content"]


async def test_usage_comes_in_a_chunk_of_its_own_when_asked_for(client: Client) -> None:
    events = await client.stream(max_tokens=3, stream_options={"include_usage": True})

    usage = events[-2]
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 3
    assert "prompt_tokens_details" not in usage["usage"]
    assert "system_fingerprint" not in events[-3]


async def test_usage_on_every_chunk_counts_up(client: Client) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = await client.stream(max_tokens=3, stream_options=options)

    assert [event["usage"]["completion_tokens"] for event in events[:-1]] == [0, 1, 2, 3, 3]


async def test_reply_of_the_script_is_given_word_for_word_and_its_blocks_are_hit_by_the_next_turn() -> None:
    reply = {
        "role": "assistant",
        "content": "Let me look. " * 20,
        "tool_calls": [
            {"id": "call_7", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
        ],
    }
    async with connected(block_size=16) as client:
        first = await client.chat(tools=[WEATHER], replayrig={"reply": reply})
        message = first["choices"][0]["message"]
        second = await client.chat(
            messages=[*HELLO, {**reply}, {"role": "tool", "tool_call_id": "call_7", "content": "rain"}],
            tools=[WEATHER],
            max_tokens=1,
            replayrig={},
        )

    assert message["content"] == reply["content"]
    assert message["tool_calls"] == reply["tool_calls"]
    assert first["choices"][0]["finish_reason"] == "tool_calls"
    assert first["usage"]["completion_tokens"] == num_tokens(PromptEncoder(block_size=16).reply(reply))
    num_before = first["usage"]["total_tokens"]
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == (num_before - 1) // 16 * 16


async def test_script_brings_the_models_own_times(client: Client) -> None:
    script: dict[str, Any] = {"replayrig": {"reply": {"role": "assistant", "content": "Good."}}}
    events = await client.stream(stream_options={"include_usage": True}, **script)

    times = events[-2]["replayrig"]
    assert times["arrived_at"] <= times["scheduled_at"] < times["first_token_at"] < times["last_token_at"]
    assert times["last_token_at"] <= times["delivered_at"]
    assert events[-3]["choices"][0]["finish_reason"] == "stop"


async def test_script_of_a_length_alone_gives_filler_of_that_length(client: Client) -> None:
    answer = await client.chat(replayrig={"num_output_tokens": 37})

    assert answer["usage"]["completion_tokens"] == 37
    assert answer["choices"][0]["finish_reason"] == "stop"


async def test_script_cut_by_the_limit_ends_in_length_and_shows_the_call_as_text(client: Client) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    script: dict[str, Any] = {"replayrig": {"reply": {"role": "assistant", "content": None, "tool_calls": [call]}}}

    whole = await client.chat(max_tokens=9, tools=[WEATHER], **script)
    events = await client.stream(max_tokens=14, tools=[WEATHER], **script)

    assert whole["choices"][0]["finish_reason"] == "length"
    assert "tool_calls" not in whole["choices"][0]["message"]
    assert "<tool_call>" in whole["choices"][0]["message"]["content"]
    assert "tool_calls" in events[1]["choices"][0]["delta"]
    assert events[-2]["choices"][0]["finish_reason"] == "length"


async def test_what_shows_first_of_a_call_comes_before_the_interval_is_over_for_who_asks(client: Client) -> None:
    """As of vLLM, tokens that show nothing are a first chunk that is not sent; the next has a whole interval."""
    call = {"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    reply = {"role": "assistant", "content": None, "tool_calls": [call]}

    async def chunks(**asked: Any) -> list[Any]:
        events = await client.stream(
            tools=[WEATHER], stream_interval=64, return_token_ids=True, replayrig={"reply": reply, **asked}
        )
        return [event["choices"][0] for event in events[1:-1]]

    _, at_the_end = await chunks()
    _, named, the_rest = await chunks(first_at_once=True)

    function = at_the_end["delta"]["tool_calls"][0]["function"]
    assert function == {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
    assert named["delta"]["tool_calls"][0]["function"] == {"name": "get_weather"}
    assert named["token_ids"] + the_rest["token_ids"] == at_the_end["token_ids"]
    assert the_rest["delta"]["tool_calls"][0]["function"]["arguments"] == '{"city": "Oslo"}'


async def test_streamed_tool_call_names_the_function_first_and_then_spells_the_arguments(client: Client) -> None:
    events = await client.stream(tools=[WEATHER], tool_choice="required", parallel_tool_calls=False, seed=3)

    calls = [delta["tool_calls"][0] for event in events[1:-2] if (delta := event["choices"][0]["delta"])]
    assert list(calls[0]) == ["id", "type", "index", "function"]
    assert calls[0]["function"] == {"name": "get_weather"}
    arguments = json.loads("".join(call["function"]["arguments"] for call in calls[1:]))
    assert arguments["city"] in ("Oslo", "Rome")
    assert 1 <= arguments["days"] <= 9
    assert events[-2]["choices"][0]["delta"] == {}
    assert events[-2]["choices"][0]["finish_reason"] == "tool_calls"


async def test_named_tool_is_called_and_finishes_with_stop(client: Client) -> None:
    choice = {"type": "function", "function": {"name": "get_weather"}}
    answer = await client.chat(tools=[WEATHER], tool_choice=choice)

    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "get_weather"


async def test_stop_string_cuts_the_text_and_is_named(client: Client) -> None:
    whole = await client.chat(max_tokens=20, temperature=0)
    text = whole["choices"][0]["message"]["content"]
    stop = text[30:33]

    stopped = await client.chat(max_tokens=20, temperature=0, stop=[stop])
    events = await client.stream(max_tokens=20, temperature=0, stop=[stop])

    choice = stopped["choices"][0]
    assert choice["message"]["content"] == text[: text.index(stop)]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)
    streamed = "".join(event["choices"][0]["delta"].get("content", "") for event in events[:-1])
    assert streamed == text[: text.index(stop)]


async def test_two_choices_are_told_apart_by_their_index(client: Client) -> None:
    events = await client.stream(max_tokens=3, n=2, temperature=1)

    indices = [event["choices"][0]["index"] for event in events[:-1]]
    assert indices[:2] == [0, 1]
    assert sorted(indices) == [0] * 4 + [1] * 4


async def test_second_choice_hits_the_first_ones_blocks() -> None:
    prompt = [{"role": "user", "content": "word " * 500}]
    async with connected(enable_prompt_tokens_details=True) as client:
        answer = await client.chat(messages=prompt, n=2, max_tokens=2, temperature=1)
        snapshot = client.machine.driver.snapshot()

    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert snapshot.num_cached_prompt_tokens == answer["usage"]["prompt_tokens"] // 16 * 16


async def test_logprobs_come_for_every_token(client: Client) -> None:
    answer = await client.chat(max_tokens=3, logprobs=True, top_logprobs=2)

    rows = answer["choices"][0]["logprobs"]["content"]
    assert [row["token"] for row in rows]
    assert len(rows) == 3
    assert all(len(row["top_logprobs"]) == 2 for row in rows)
    assert "".join(row["token"] for row in rows) == answer["choices"][0]["message"]["content"]


async def test_limit_below_the_natural_length_is_filled(client: Client) -> None:
    answer = await client.chat(max_tokens=200)

    assert answer["usage"]["completion_tokens"] == 200


async def test_ignoring_the_end_fills_any_limit(client: Client) -> None:
    answer = await client.chat(max_tokens=1500, ignore_eos=True)

    assert answer["usage"]["completion_tokens"] == 1500
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_reply_without_a_limit_ends_by_itself(client: Client) -> None:
    answer = await client.chat()

    assert answer["choices"][0]["finish_reason"] == "stop"


async def test_structured_output_slows_decode_by_the_profiles_overhead() -> None:
    async with connected(profile="llama-3.1-8b-1xh100") as client:
        overhead = client.machine.profile.guided_decoding_overhead

        async def seconds(**body: Any) -> float:
            answer = await client.chat(replayrig={"num_output_tokens": 60}, **body)
            times = answer["replayrig"]
            return float(times["last_token_at"] - times["first_token_at"])

        plain = await seconds()
        as_json = await seconds(response_format={"type": "json_object"})
        own_accord = await seconds(tools=[WEATHER], tool_choice="auto")
        forced = await seconds(tools=[WEATHER], tool_choice="required")

    assert as_json == pytest.approx(plain * (1 + overhead), rel=0.01)
    assert forced == pytest.approx(own_accord * (1 + overhead), rel=0.01)
