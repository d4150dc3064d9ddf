"""Prompts as token ids: ours for a mock of ours, as many others for any other server."""

from __future__ import annotations

import orjson
import pytest

from loadgen.context import TOKEN_IDS, Conversation, Message, system_message, tool_message, user_message
from loadgen.prompt_ids import PromptIds
from mockserver import tokens
from mockserver.prompt import PromptEncoder

TOOL = '{"type":"function","function":{"name":"look"}}'
VOCABULARY = range(1_000, 1_500)
ASKS: Message = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}],
}
MESSAGES = [system_message("Be brief."), user_message("Look."), ASKS, tool_message("c", "a cat"), user_message("And?")]


def ids_of(maker: PromptIds, conversation: Conversation) -> list[int]:
    text, num_ids = maker.of(conversation)
    ids: list[int] = orjson.loads(b"[%b]" % text)
    assert len(ids) == num_ids
    return ids


def template_ids(messages: list[Message], tools: tuple[str, ...] = (TOOL,)) -> list[int]:
    return tokens.unpack(PromptEncoder(block_size=16).chat(messages, tools))


def test_a_mock_of_ours_gets_the_ids_of_the_chat_template_turn_by_turn() -> None:
    maker = PromptIds()
    conversation = Conversation(tools=(TOOL,), messages=MESSAGES[:2])
    assert ids_of(maker, conversation) == template_ids(MESSAGES[:2])

    for message in MESSAGES[2:]:
        conversation.add(message)

    assert ids_of(maker, conversation) == template_ids(MESSAGES)
    assert ids_of(maker, conversation) == template_ids(MESSAGES)


def test_another_vocabulary_gets_one_of_its_ids_for_each_of_ours() -> None:
    ids = ids_of(PromptIds(VOCABULARY), Conversation(tools=(TOOL,), messages=MESSAGES))

    assert len(ids) == len(template_ids(MESSAGES))
    assert set(ids) <= set(VOCABULARY)
    assert len(set(ids)) > 30


def test_prompts_that_begin_alike_begin_alike_there_and_share_nothing_afterwards() -> None:
    maker = PromptIds(VOCABULARY)
    common = "the same words to begin with "
    one, other = (
        ids_of(maker, Conversation(messages=[user_message(common + end)]))
        for end in (" cat sat on it", " dog sat on it")
    )
    num_same = next(number for number, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
    num_common = len(template_ids([user_message(common)], ())) - 5  # without the message's end and the answer's opening

    assert abs(num_same - num_common) <= 1
    assert sum(a == b for a, b in zip(one[num_same:], other[num_same:], strict=True)) <= 1


def test_a_prompt_is_the_start_of_the_next_whatever_was_asked_in_between() -> None:
    maker = PromptIds(VOCABULARY)
    conversation = Conversation(messages=MESSAGES[:2])
    before = ids_of(maker, conversation)
    conversation.add(ASKS)
    conversation.add(MESSAGES[3])

    after = ids_of(maker, conversation)

    assert after[: len(before)] == before
    assert after == ids_of(PromptIds(VOCABULARY), Conversation(messages=MESSAGES[:4]))


@pytest.mark.parametrize("vocabulary", [None, VOCABULARY])
def test_ids_that_the_server_generated_stand_in_the_prompt_as_they_are(vocabulary: range | None) -> None:
    maker = PromptIds(vocabulary)
    conversation = Conversation(messages=MESSAGES[:2])
    before = ids_of(maker, conversation)
    conversation.add({"role": "assistant", "content": "x", TOKEN_IDS: [7, 8, 9]})
    conversation.add(user_message("And?"))

    after = ids_of(maker, conversation)

    assert after[: len(before) + 3] == [*before, 7, 8, 9]
    # A line's end, and the user's message with its five tokens around it, and the opening of the answer.
    assert len(after) == len(before) + 3 + 1 + tokens.count("And?") + 5 + 3


def test_a_vocabulary_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one id"):
        PromptIds(())
