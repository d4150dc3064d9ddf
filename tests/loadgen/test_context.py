from __future__ import annotations

import orjson

from loadgen.context import (
    Conversation,
    assistant_message,
    system_message,
    tool_message,
    user_message,
)
from tests.loadgen.fakes import make_call
from traces.trajectory import Turn


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
