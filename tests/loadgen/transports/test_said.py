"""What a model said, from the deltas of its stream."""

from __future__ import annotations

from typing import Any

from loadgen.transports.said import Said


def said(*choices: dict[str, Any]) -> dict[str, Any]:
    one = Said()
    for choice in choices:
        one.take(choice)
    return one.message()


def delta(**fields: Any) -> dict[str, Any]:
    return {"index": 0, "delta": fields}


def part(index: int, *, call_id: str | None = None, name: str | None = None, arguments: str = "") -> dict[str, Any]:
    return {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}


def test_content_is_joined_and_reasoning_is_left_out() -> None:
    message = said(
        delta(role="assistant", content=""),
        delta(reasoning="hm"),
        delta(reasoning_content="hm"),
        delta(content="a"),
        delta(content=" b") | {"token_ids": [5]},
    )

    assert message == {"role": "assistant", "content": "a b"}


def test_parallel_tool_calls_are_put_together_by_their_place() -> None:
    message = said(
        delta(tool_calls=[part(0, call_id="x", name="look", arguments="")]),
        delta(tool_calls=[part(0, arguments='{"a"')]),
        delta(tool_calls=[part(1, call_id="y", name="find", arguments="{}")]),
        delta(tool_calls=[part(0, arguments=":1}")]),
    )

    assert message["content"] is None
    assert [(call["id"], call["function"]) for call in message["tool_calls"]] == [
        ("x", {"name": "look", "arguments": '{"a":1}'}),
        ("y", {"name": "find", "arguments": "{}"}),
    ]


def test_plain_completions_have_text_and_ids() -> None:
    message = said({"index": 0, "text": "a", "token_ids": [5]}, {"index": 0, "text": " b", "token_ids": [6, 7]})

    assert message == {"role": "assistant", "content": "a b", "token_ids": [5, 6, 7]}


def test_other_choices_and_nulls_are_passed_over() -> None:
    message = said(
        delta(content=None, tool_calls=None), {"index": 1, "delta": {"content": "no"}}, {"index": 0, "text": None}
    )

    assert message == {"role": "assistant", "content": ""}
