"""The openai SDK drives the server unchanged. Importing it takes a second of CPU, so it is imported here only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from openai import AsyncOpenAI, BadRequestError

from mockserver.api.app import serve
from tests.mockserver.api.conftest import HELLO, settings
from tests.mockserver.api.test_chat import WEATHER


@pytest_asyncio.fixture
async def sdk() -> AsyncIterator[AsyncOpenAI]:
    """An SDK client of a running server."""
    told = settings(served_model_name=("mock",), enable_prompt_tokens_details=True, api_key=("key",))
    async with serve(told) as base_url, AsyncOpenAI(base_url=f"{base_url}/v1", api_key="key") as client:
        yield client


async def test_models_are_listed(sdk: AsyncOpenAI) -> None:
    assert [model.id async for model in sdk.models.list()] == ["mock"]


async def test_whole_answer_has_text_and_usage(sdk: AsyncOpenAI) -> None:
    answer = await sdk.chat.completions.create(model="mock", messages=_messages(), max_completion_tokens=12)

    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 12
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


async def test_stream_ends_with_usage(sdk: AsyncOpenAI) -> None:
    stream = await sdk.chat.completions.create(
        model="mock", messages=_messages(), max_completion_tokens=5, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]

    texts = [chunk.choices[0].delta.content for chunk in chunks[1:-1]]
    assert len(texts) == 5
    assert all(texts)
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 5


async def test_tools_are_called_with_arguments_that_their_schema_allows(sdk: AsyncOpenAI) -> None:
    request: dict[str, Any] = {"model": "mock", "messages": _messages(), "tools": [WEATHER], "tool_choice": "required"}
    answer = await sdk.chat.completions.create(**request)
    async with sdk.chat.completions.stream(**request, seed=1) as stream:
        streamed = await stream.get_final_completion()

    for one in (answer, streamed):
        assert one.choices[0].finish_reason == "tool_calls"
        calls = one.choices[0].message.tool_calls
        assert calls
        assert calls[0].function.name == "get_weather"
        assert '"city"' in calls[0].function.arguments


async def test_error_is_raised_with_the_servers_words(sdk: AsyncOpenAI) -> None:
    with pytest.raises(BadRequestError, match="temperature must be in") as caught:
        await sdk.chat.completions.create(model="mock", messages=_messages(), temperature=9)

    assert caught.value.param == "temperature"


async def test_plain_completion(sdk: AsyncOpenAI) -> None:
    answer = await sdk.completions.create(model="mock", prompt="Once upon a time", max_tokens=7)

    assert answer.choices[0].text
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 7


def _messages() -> Any:
    return HELLO
