from __future__ import annotations

import orjson

from loadgen.context import (
    Conversation,
    assistant_message,
    system_message,
    text_of_recorded_prompt,
    tool_message,
    user_message,
)
from mockserver import tokens
from mockserver.prompt import PromptEncoder
from tests.loadgen.fakes import make_call
from traces.trajectory import RecordedPrompt, Turn


def test_messages_are_serialised_once_and_joined() -> None:
    conversation = Conversation(tools=('{"type":"function"}',))
    conversation.add(system_message("be kind"))
    first = bytes(conversation.messages_json())

    conversation.add(user_message('häß\n"x"'))
    second = bytes(conversation.messages_json())

    assert second.startswith(first)
    assert orjson.loads(second + b"]") == conversation.messages
    assert conversation.tools_json() == b'[{"type":"function"}]'


def test_a_conversation_without_tools_has_no_tools_json() -> None:
    assert Conversation().tools_json() == b""


def test_tool_calls_and_results_are_native_messages() -> None:
    call = make_call("c1", "mail", result="sent")

    assert assistant_message(Turn(content="", tool_calls=(call,))) == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "mail-do", "arguments": "{}"}}],
    }
    assert tool_message("c1", "sent") == {"role": "tool", "tool_call_id": "c1", "content": "sent"}
    assert assistant_message(Turn(content="hello")) == {"role": "assistant", "content": "hello"}


def test_recorded_prompts_share_text_exactly_where_they_share_blocks() -> None:
    one = text_of_recorded_prompt(RecordedPrompt(num_tokens=48, block_size=16), (1, 2, 3))
    other = text_of_recorded_prompt(RecordedPrompt(num_tokens=58, block_size=16), (1, 2, 4))

    for prompt, num_tokens in ((one, 48), (other, 58)):
        encoder = PromptEncoder(block_size=16)
        assert tokens.num_tokens(encoder.chat([user_message(prompt)])) == num_tokens
    assert tokens.encode(str(one)) == one.token_ids
    assert tokens.encode(str(other)) == other.token_ids
    assert one.token_ids[: 32 * 4] == other.token_ids[: 32 * 4]
    assert one.token_ids[32 * 4 : 36 * 4] != other.token_ids[32 * 4 : 36 * 4]
