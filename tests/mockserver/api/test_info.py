"""The endpoints around completions: models, tokenizer, metrics."""

from __future__ import annotations

import json
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.mockserver.api.conftest import HELLO, Client, connected


async def metrics(client: Client) -> dict[str, float]:
    """Values by name, labels other than the model's and engine's kept."""
    _, text = await client.get("/metrics")
    values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {key: value for key, value in sample.labels.items() if key not in ("engine", "model_name")}
            values[sample.name + (str(labels) if labels else "")] = sample.value
    return values


async def test_models_lists_every_name() -> None:
    async with connected(served_model_name=("a", "b")) as client:
        _, answer = await client.post("/tokenize", {"prompt": "x"})
        async with client.session.get(f"{client.server.base_url}/v1/models") as response:
            listed = await response.json()
        chat = await client.chat(model="b", max_tokens=1)

    assert [card["id"] for card in listed["data"]] == ["a", "b"]
    assert listed["data"][0]["max_model_len"] == answer["max_model_len"]
    assert chat["model"] == "a"


async def test_tokenize_and_detokenize_are_inverse(client: Client) -> None:
    _, tokens = await client.post("/tokenize", {"prompt": "Hello there, 🦜", "return_token_strs": True})
    _, text = await client.post("/detokenize", {"tokens": tokens["tokens"]})

    assert text == {"prompt": "Hello there, 🦜"}
    assert tokens["count"] == len(tokens["tokens"]) == len(tokens["token_strs"])


async def test_tokenized_conversation_is_the_prompt_of_a_chat(client: Client) -> None:
    _, tokens = await client.post("/tokenize", {"messages": HELLO})
    answer = await client.chat(max_tokens=1, return_token_ids=True)

    assert answer["prompt_token_ids"] == tokens["tokens"]
    assert answer["usage"]["prompt_tokens"] == tokens["count"]


async def test_unknown_token_has_no_text_and_a_number_too_large_is_refused(client: Client) -> None:
    _, unknown = await client.post("/detokenize", {"tokens": [10**9]})
    status, _ = await client.post("/detokenize", {"tokens": [10**10]})

    assert unknown == {"prompt": ""}
    assert status == 400


@pytest.mark.parametrize("stream", [False, True])
async def test_metrics_count_what_the_answers_say(stream: bool) -> None:
    async with connected() as client:
        prompt: list[dict[str, Any]] = [{"role": "user", "content": "word " * 100}]
        for _ in range(2):
            if stream:
                await client.stream(messages=prompt, max_tokens=10)
            else:
                await client.chat(messages=prompt, max_tokens=10)
        values = await metrics(client)
        usage = (await client.chat(messages=prompt, max_tokens=1))["usage"]

    num_prompt_tokens = usage["prompt_tokens"]
    num_cached = (num_prompt_tokens - 1) // 16 * 16
    assert values["vllm:prompt_tokens_total"] == 2 * num_prompt_tokens
    assert values["vllm:generation_tokens_total"] == 20
    assert values["vllm:prefix_cache_queries_total"] == 2 * num_prompt_tokens
    assert values["vllm:prefix_cache_hits_total"] == num_cached
    assert values["vllm:request_success_total{'finished_reason': 'length'}"] == 2
    assert values["vllm:time_to_first_token_seconds_count"] == 2
    assert values["vllm:inter_token_latency_seconds_count"] == 18
    assert values["vllm:inter_token_latency_seconds_sum"] == pytest.approx(18 * 0.004, rel=0.01)
    assert values["vllm:request_decode_time_seconds_sum"] == pytest.approx(18 * 0.004, rel=0.01)
    assert values["vllm:num_requests_running"] == 0
    assert values["vllm:kv_cache_usage_perc"] == 0
    assert values["replayrig:num_generated_tokens_total"] == 20
    assert values["replayrig:busy_seconds_total"] > 18 * 0.004


async def test_steps_are_counted_by_their_tokens() -> None:
    async with connected(async_scheduling=False, max_num_batched_tokens=512) as client:
        usage = (await client.chat(messages=[{"role": "user", "content": "word " * 1000}], max_tokens=5))["usage"]
        seen = await metrics(client)

    # The first of the prompt's steps brings no token and is not counted; its last one stands for all of it.
    assert usage["prompt_tokens"] > 512
    assert seen["vllm:iteration_tokens_total_count"] == 5
    assert seen["vllm:iteration_tokens_total_sum"] == usage["prompt_tokens"] + 5


async def test_every_rank_has_its_own_figures() -> None:
    async with connected(data_parallel_size=2, served_model_name=("mock",)) as client:
        for _ in range(3):
            body = {"messages": HELLO, "max_tokens": 4}
            status, _ = await client.post("/v1/chat/completions", body, **{"X-data-parallel-rank": "1"})
            assert status == 200
        _, text = await client.get("/metrics")

    for name, values in (("generation_tokens_total", (0, 12)), ("time_to_first_token_seconds_count", (0, 3))):
        for rank, value in enumerate(values):
            assert f'vllm:{name}{{engine="{rank}",model_name="mock"}} {value}.0' in text
    assert text.count("vllm:cache_config_info{") == 2


async def test_every_engine_field_is_shown_under_our_own_prefix(client: Client) -> None:
    await client.chat(max_tokens=1)
    values = await metrics(client)

    for name in (
        *("num_running", "num_waiting", "num_blocks", "num_used_blocks", "num_cached_blocks", "num_steps_total"),
        *("busy_seconds_total", "occupancy_seconds_total", "num_evicted_blocks_total", "simulated_seconds"),
        *("lag_seconds{'quantile': '0.99'}", "lag_seconds_count"),
    ):
        assert f"replayrig:{name}" in values


async def test_health_version_ping_and_load_answer(client: Client) -> None:
    assert await client.get("/health") == (200, "")
    assert await client.get("/ping") == (200, "")
    assert await client.get("/version") == (200, '{"version":"0.32.0"}')
    assert await client.get("/load") == (200, '{"server_load":0}')


async def test_development_endpoints_can_be_switched_off() -> None:
    async with connected(dev_mode=False) as client:
        assert (await client.post("/reset_prefix_cache", {}))[0] == 404


async def test_server_info_shows_no_key() -> None:
    async with connected(api_key=("very-secret",)) as client:
        status, text = await client.get("/server_info")

    assert status == 200
    assert "very-secret" not in text


async def test_description_names_every_path_and_its_body(client: Client) -> None:
    _, text = await client.get("/openapi.json")
    described = json.loads(text)

    reference = described["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]
    assert reference["schema"]["$ref"] == "#/components/schemas/ChatRequest"
    assert "messages" in described["components"]["schemas"]["ChatRequest"]["properties"]
    for path in ("/docs", "/redoc"):
        status, page = await client.get(path)
        assert (status, "/openapi.json" in page) == (200, True)
