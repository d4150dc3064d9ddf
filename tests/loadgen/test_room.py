from __future__ import annotations

from loadgen.context import Conversation, Message, system_message, tool_message, user_message
from loadgen.room import REMOVED, fitted
from mockserver import tokens
from mockserver.filler import filler
from mockserver.prompt import PromptEncoder


def long_history(num_results: int, num_tokens: int = 100) -> Conversation:
    results = [tool_message(f"c{k}", filler(f"r{k}", num_tokens)) for k in range(num_results)]
    return Conversation(tools=('{"type":"function"}',), messages=[system_message("s"), user_message("u"), *results])


def num_tokens(conversation: Conversation) -> int:
    encoder = PromptEncoder(block_size=16)
    return tokens.num_tokens(encoder.chat(conversation.messages, conversation.tools))


def test_a_history_that_fits_is_left_alone() -> None:
    conversation = long_history(3)

    assert fitted(conversation, num_output_tokens=10, limit=1000) == (conversation, 0)


def test_the_oldest_results_give_way_until_a_quarter_is_free() -> None:
    conversation = long_history(10)

    shorter, num_removed = fitted(conversation, num_output_tokens=50, limit=1000)

    contents = [message["content"] for message in shorter.messages if message["role"] == "tool"]
    assert (
        contents
        == [REMOVED] * num_removed + [message["content"] for message in conversation.messages[2:]][num_removed:]
    )
    assert 600 < num_tokens(shorter) + 50 <= 750
    assert num_tokens(conversation) > 1000


def test_plain_texts_are_counted_only_when_their_bytes_could_be_too_many() -> None:
    """A text of 4,000 bytes is about 1,000 tokens: it may not fit by its bytes, but does by its tokens."""
    words: Message = user_message("another ordinary sentence " * 150)
    conversation = Conversation(messages=[words])

    assert fitted(conversation, num_output_tokens=10, limit=1000) == (conversation, 0)
    assert num_tokens(conversation) <= conversation.num_tokens_at_most < 600


def test_the_bound_follows_a_growing_history() -> None:
    conversation = long_history(2)
    assert fitted(conversation, num_output_tokens=10, limit=500)[1] == 0

    conversation.add(tool_message("x", filler("x", 250)))

    shorter, num_removed = fitted(conversation, num_output_tokens=10, limit=500)
    assert num_removed == 2
    assert shorter.messages[-1] == conversation.messages[-1]


def test_what_no_removal_can_fit_is_sent_as_it_is() -> None:
    conversation = Conversation(messages=[user_message(filler("u", 500))])

    same, num_removed = fitted(conversation, num_output_tokens=10, limit=100)

    assert same.messages == conversation.messages
    assert num_removed == 0


def test_tools_take_room_of_every_conversation_that_has_them() -> None:
    tools = (filler("a schema", 600),)
    results = [tool_message(f"c{k}", filler(f"r{k}", 100)) for k in range(4)]
    for _ in range(2):
        with_tools = Conversation(tools=tools, messages=[user_message("u"), *results])
        without = Conversation(messages=[user_message("u"), *results])

        assert fitted(with_tools, num_output_tokens=10, limit=1000)[1] > 0
        assert fitted(without, num_output_tokens=10, limit=1000)[1] == 0
