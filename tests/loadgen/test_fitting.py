"""The search for a text that a server counts as it is to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

import orjson
import pytest

from loadgen.context import Message, tool_message, user_message
from loadgen.fitting import Piece, fit, piece_of_messages, piece_of_tool
from mockserver.filler import filler
from tests.loadgen.other_tokenizer import count_prompt, count_text

T = TypeVar("T")
TOOL = orjson.dumps(
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": str(filler("tool", 30)),
            "parameters": {"properties": {"at": {"type": "string", "description": str(filler("at", 30))}}},
        },
    }
).decode()


def fitted(messages: Sequence[Message], num_tokens: int, seed: int = 0) -> tuple[list[Message], int]:
    async def count(one: list[Message]) -> int:
        return count_prompt(one)

    return asyncio.run(fit(piece_of_messages(messages), num_tokens, count, seed=seed))


@pytest.mark.parametrize("num_tokens", [20, 113, 400, 1_000, 5_000])
def test_a_text_is_cut_or_filled_up_to_exactly_what_is_wanted(num_tokens: int) -> None:
    text = str(filler("text", 300))

    built, counted = fitted([user_message(text)], num_tokens)

    assert counted == count_prompt(built) == num_tokens
    content = built[0]["content"]
    assert content[:12] == text[:12]


def test_a_good_first_guess_saves_counts() -> None:
    num_counts = []

    async def count(one: list[Message]) -> int:
        num_counts.append(1)
        return count_prompt(one)

    piece = piece_of_messages([user_message(str(filler("text", 300)))])
    for share in (1.0, 0.48):
        num_counts.append(0)
        assert asyncio.run(fit(piece, 313, count, seed=0, share=share))[1] == 313

    whole, guessed = (len(part) for part in "".join(map(str, num_counts)).split("0")[1:])
    assert guessed < whole


def test_what_cannot_be_short_enough_is_as_short_as_it_can_be() -> None:
    built, counted = fitted([user_message("some words")], 5)

    assert built == [user_message("")]
    assert counted == count_prompt(built) > 5


def test_equal_texts_become_equal_texts_and_another_seed_fills_up_with_other_words() -> None:
    text = str(filler("text", 20))
    one, same, other = (fitted([user_message(text)], 200, seed) for seed in (0, 0, 1))

    assert one == same
    assert one != other


def test_tool_calls_keep_their_names_and_stay_json() -> None:
    call = {
        "id": "c",
        "type": "function",
        "function": {"name": "write", "arguments": orjson.dumps({"to": "a", "text": str(filler("a", 90))}).decode()},
    }
    asks: Message = {"role": "assistant", "content": None, "tool_calls": [call]}

    built, counted = fitted([asks, tool_message("c", str(filler("b", 90)))], 100)

    assert counted == 100
    function = built[0]["tool_calls"][0]["function"]
    assert function["name"] == "write"
    assert orjson.loads(function["arguments"])["to"] == "a"
    assert built[0]["content"] is None
    assert built[1]["tool_call_id"] == "c"
    assert asks["tool_calls"][0] is call


def test_arguments_that_are_no_json_are_left_alone() -> None:
    asks: Message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"function": {"name": "w", "arguments": "{"}}],
    }

    assert fitted([asks], 100)[0] == [asks]


@pytest.mark.parametrize("num_tokens", [60, 90, 200])
def test_of_a_tool_only_descriptions_change(num_tokens: int) -> None:
    async def count(one: str) -> int:
        return count_text(one)

    text, counted = asyncio.run(fit(piece_of_tool(TOOL), num_tokens, count, seed=0))

    function = orjson.loads(text)["function"]
    assert abs(counted - num_tokens) <= 1
    assert function["name"] == "look"
    assert function["parameters"]["properties"]["at"]["type"] == "string"


def test_a_tool_without_a_description_gets_one_where_it_is_to_be_longer() -> None:
    async def count(one: str) -> int:
        return count_text(one)

    text, counted = asyncio.run(fit(piece_of_tool('{"type":"function","function":{"name":"a"}}'), 40, count, seed=0))

    assert counted == 40
    assert orjson.loads(text)["function"]["description"]


def test_a_part_in_which_nothing_may_change_is_measured_only() -> None:
    async def count(_: str) -> int:
        return 7

    piece: Piece[str] = Piece(texts=(), build=lambda _: "x")
    assert asyncio.run(fit(piece, 9, count, seed=0)) == ("x", 7)
    assert piece_of_tool("not json").build(()) == "not json"
