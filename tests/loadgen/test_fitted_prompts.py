"""Histories made for a server that counts otherwise: as long as ours, at every call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import orjson

from loadgen.context import Conversation, Message, assistant_message, system_message, tool_message, user_message
from loadgen.fitted_prompts import FittedPrompts
from loadgen.token_counts import CountError
from mockserver import tokens
from mockserver.filler import filler
from mockserver.prompt import PromptEncoder
from tests.loadgen.fakes import make_call
from tests.loadgen.other_tokenizer import count_prompt
from traces.trajectory import Turn

TOOLS = tuple(
    orjson.dumps(
        {"type": "function", "function": {"name": f"do-{number}", "description": str(filler(f"tool/{number}", 40))}}
    ).decode()
    for number in range(3)
)


async def count(messages: Sequence[Message], tools: Sequence[str]) -> int:
    return count_prompt(messages, tools)


def make_history(task: str = "a", *, num_rounds: int = 4, tools: tuple[str, ...] = TOOLS) -> Conversation:
    """A system prompt, a task, and rounds of a tool call with its result."""
    conversation = Conversation(tools=tools)
    conversation.add(system_message(filler("system", 200)))
    conversation.add(user_message(filler(f"task/{task}", 80)))
    for number in range(num_rounds):
        call = make_call(f"{task}-{number}", "mail", result=filler(f"{task}/{number}", 60))
        conversation.add(assistant_message(Turn(content=filler(f"said/{task}/{number}", 12), tool_calls=(call,))))
        conversation.add(tool_message(call.call_id, call.result))
    return conversation


def ours(conversation: Conversation, num_messages: int) -> int:
    encoder = PromptEncoder(block_size=16)
    return tokens.num_tokens(encoder.chat(conversation.messages[:num_messages], conversation.tools))


def prompt_of(twin: Conversation) -> tuple[object, ...]:
    return (twin.tools, *map(orjson.dumps, twin.messages))


def test_every_prompt_of_a_growing_history_is_as_long_there_as_here() -> None:
    history = make_history()

    async def run() -> None:
        prompts = FittedPrompts(count)
        for num_messages in range(2, len(history.messages) + 1, 2):
            twin, num_expected = await prompts.twin(history, num_messages)
            assert num_expected == ours(history, num_messages)
            assert count_prompt(twin.messages, twin.tools) == num_expected
            assert [one["role"] for one in twin.messages] == [one["role"] for one in history.messages[:num_messages]]

    asyncio.run(run())


def test_a_prompt_is_the_start_of_the_next_and_equal_histories_have_equal_twins() -> None:
    async def run() -> None:
        prompts = FittedPrompts(count)
        one, other = make_history(), make_history()
        before = prompt_of((await prompts.twin(one, 4))[0])
        after = prompt_of((await prompts.twin(one))[0])
        num_asked = prompts.num_pieces
        same = prompt_of((await prompts.twin(other))[0])

        assert after[: len(before)] == before
        assert same == after
        assert prompts.num_pieces == num_asked

    asyncio.run(run())


def test_tasks_that_share_tools_and_system_prompt_share_them_there() -> None:
    async def run() -> None:
        prompts = FittedPrompts(count)
        one, other = [prompt_of((await prompts.twin(make_history(task)))[0]) for task in ("a", "b")]

        assert one[:2] == other[:2]
        assert one[2] != other[2]

    asyncio.run(run())


def test_what_is_too_long_is_made_up_for_later() -> None:
    """A tool call of names and numbers cannot be cut; the result that comes with it is too short to make up for it."""
    conversation = Conversation(messages=[user_message(filler("task", 50))])
    for number, size in enumerate((1, 1, 200)):
        call = make_call(f"c{number}", "mail", result=filler(f"r{number}", size))
        conversation.add(assistant_message(Turn(tool_calls=(call,) * 3)))
        conversation.add(tool_message(call.call_id, call.result))

    async def run() -> list[int]:
        prompts = FittedPrompts(count)
        differences = []
        for num_messages in (1, 3, 5, 7):
            twin, num_expected = await prompts.twin(conversation, num_messages)
            differences.append(count_prompt(twin.messages, twin.tools) - num_expected)
        return differences

    differences = asyncio.run(run())

    assert differences[0] == differences[-1] == 0
    assert all(one >= 0 for one in differences)


def test_tools_without_a_system_prompt_and_prompts_of_one_message_fit_too() -> None:
    async def run() -> None:
        for tools in ((), TOOLS):
            history = Conversation(tools=tools, messages=[user_message(filler("task", 300))])
            twin, num_expected = await FittedPrompts(count).twin(history)

            assert count_prompt(twin.messages, twin.tools) == num_expected == ours(history, 1)

    asyncio.run(run())


def test_live_answers_stay_as_they_are_and_what_is_recorded_is_fitted_around_them() -> None:
    history = make_history(num_rounds=2)

    async def run() -> None:
        twin, _ = await FittedPrompts(count, answers_are_live=True).twin(history)

        for number, message in enumerate(history.messages):
            assert (twin.messages[number] is message) == (message["role"] == "assistant")
        assert len(twin.messages) == len(history.messages)

    asyncio.run(run())


def test_what_the_server_does_not_count_is_sent_as_it_is() -> None:
    async def refuse(messages: Sequence[Message], _: Sequence[str]) -> int:
        raise CountError("no")

    history = make_history(num_rounds=1)

    async def run() -> None:
        prompts = FittedPrompts(refuse)
        twin, _ = await prompts.twin(history)

        assert twin.messages == history.messages
        assert twin.tools == history.tools
        assert prompts.num_left > 0

    asyncio.run(run())
