"""Other people's clients drive the server unchanged, each where it is installed.

    pip install anthropic instructor langchain-openai litellm openai-agents 'pydantic-ai-slim[openai]'

None of them is a dependency of ours; docs/compatibility.md says which versions were tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from pydantic import BaseModel

from mockserver.api.app import serve
from tests.mockserver.api.conftest import HELLO, settings
from tests.mockserver.api.test_chat import WEATHER

pytestmark = pytest.mark.filterwarnings("default")  # theirs are not ours to heed
_TOOL: Any = WEATHER["function"]


class Person(BaseModel):
    """What a model is asked to fill in."""

    name: str
    age: int


@pytest_asyncio.fixture
async def url() -> AsyncIterator[str]:
    """A running server that calls its tools every other time."""
    async with serve(settings(served_model_name=("mock",), tool_call_probability=0.5)) as base_url:
        yield base_url


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


async def test_litellm(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # no download at import
    litellm: Any = pytest.importorskip("litellm")
    call: dict[str, Any] = {"model": "hosted_vllm/mock", "api_base": f"{url}/v1", "api_key": "k", "messages": HELLO}

    whole = await litellm.acompletion(**call, max_tokens=12)
    stream = await litellm.acompletion(**call, max_tokens=12, stream=True)
    streamed = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
    called = await litellm.acompletion(**call, max_tokens=250, tools=[WEATHER], tool_choice="required")

    assert whole.usage.completion_tokens == 12
    assert "".join(streamed)
    assert called.choices[0].message.tool_calls[0].function.name == "get_weather"


async def test_langchain(url: str) -> None:
    langchain: Any = pytest.importorskip("langchain_openai")
    model = langchain.ChatOpenAI(model="mock", base_url=f"{url}/v1", api_key="k", max_tokens=250)
    with_tools = model.bind_tools([WEATHER], tool_choice="any")

    assert (await model.ainvoke("hi")).content
    assert "".join([chunk.content async for chunk in model.astream("hi")])
    assert (await with_tools.ainvoke("weather?")).tool_calls[0]["name"] == "get_weather"
    chunks = [chunk async for chunk in with_tools.astream("weather?")]
    merged = chunks[0]
    for chunk in chunks[1:]:
        merged += chunk
    assert merged.tool_calls[0]["args"]["city"]
    assert isinstance(await model.with_structured_output(Person).ainvoke("who?"), Person)


async def test_pydantic_ai(url: str) -> None:
    pydantic_ai: Any = pytest.importorskip("pydantic_ai")
    models: Any = pytest.importorskip("pydantic_ai.models.openai")
    providers: Any = pytest.importorskip("pydantic_ai.providers.openai")
    model = models.OpenAIChatModel("mock", provider=providers.OpenAIProvider(base_url=f"{url}/v1", api_key="k"))

    answer = await pydantic_ai.Agent(model, tools=[get_weather]).run("weather?")
    structured = await pydantic_ai.Agent(model, output_type=Person).run("who?")
    async with pydantic_ai.Agent(model).run_stream("hello") as streamed:
        text = await streamed.get_output()

    assert isinstance(answer.output, str)
    assert isinstance(structured.output, Person)
    assert text


async def test_anthropic(url: str) -> None:
    anthropic: Any = pytest.importorskip("anthropic")
    tool = {"name": "get_weather", "input_schema": _TOOL["parameters"]}
    call: dict[str, Any] = {"model": "mock", "messages": HELLO}
    forced: dict[str, Any] = {**call, "max_tokens": 250, "tools": [tool], "tool_choice": {"type": "any"}}
    async with anthropic.AsyncAnthropic(base_url=url, api_key="k") as client:
        whole = await client.messages.create(**call, max_tokens=20)
        async with client.messages.stream(**call, max_tokens=20) as stream:
            streamed = "".join([text async for text in stream.text_stream])
        called = await client.messages.create(**forced)
        async with client.messages.stream(**forced) as stream:
            streamed_call = await stream.get_final_message()
        counted = await client.messages.count_tokens(**call)

    assert whole.stop_reason == "max_tokens"
    assert streamed
    assert called.stop_reason == streamed_call.stop_reason == "tool_use"
    assert called.content[-1].name == streamed_call.content[-1].name == "get_weather"
    assert counted.input_tokens == whole.usage.input_tokens


async def test_openai_agents(url: str) -> None:
    agents: Any = pytest.importorskip("agents")
    openai: Any = pytest.importorskip("openai")
    agents.set_tracing_disabled(True)
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k") as client:
        agents.set_default_openai_client(client)
        agent = agents.Agent(name="a", model="mock", tools=[agents.function_tool(get_weather)])
        answer = await agents.Runner.run(agent, "weather?", max_turns=50)
        streamed = agents.Runner.run_streamed(agent, "weather?", max_turns=50)
        events = [event async for event in streamed.stream_events()]

    assert isinstance(answer.final_output, str)
    assert isinstance(streamed.final_output, str)
    assert events


async def test_instructor(url: str) -> None:
    instructor: Any = pytest.importorskip("instructor")
    openai: Any = pytest.importorskip("openai")
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k") as plain:
        client = instructor.from_openai(plain)
        person = await asyncio.wait_for(
            client.chat.completions.create(model="mock", response_model=Person, messages=HELLO), 10
        )

    assert isinstance(person, Person)
