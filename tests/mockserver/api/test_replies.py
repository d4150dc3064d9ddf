"""Replies as tokens: where they end, and what each token shows."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockserver.api.replies import Kind, Limits, Span, generate, pieces, prose, scripted
from mockserver.api.views import chat_deltas, chat_view, plain_chat_deltas, texts_by_token
from mockserver.prompt import PromptEncoder, end_of_turn
from mockserver.tokens import decode, encode, num_tokens

ENCODER = PromptEncoder(block_size=16)
CALLS = [
    {"function": {"name": "read_file", "arguments": '{"path": "/tmp/ä", "lines": [1, 2]}'}},
    {"function": {"name": "noop", "arguments": "{}"}},
]


@pytest.mark.parametrize(
    "message",
    [
        {"content": "Good morning."},
        {"content": "Naïve café 🦜 日本語"},
        {"content": None, "tool_calls": CALLS},
        {"content": "First this.", "tool_calls": CALLS[:1]},
        {"content": None},
    ],
)
def test_scripted_reply_has_the_tokens_that_the_next_prompt_will_have(message: dict[str, object]) -> None:
    reply = generate(scripted(message, ENCODER), Limits(max_tokens=1000), seed="")

    assert reply.token_ids == ENCODER.reply(message)
    assert reply.finish_reason == "stop"


@given(st.text(max_size=60))
def test_pieces_of_a_text_join_to_the_text(text: str) -> None:
    shown = text.encode("utf-8", "replace").decode()

    assert "".join(pieces(encode(text))) == shown


def test_piece_of_an_unfinished_character_is_held_back() -> None:
    ids = encode("🦜")

    texts = pieces(ids)

    assert num_tokens(ids) > 1
    assert texts == ["", "", "🦜"][-len(texts) :]


def test_deltas_spell_the_message_that_the_whole_answer_has() -> None:
    message = {"content": "Two calls: ", "tool_calls": CALLS}
    reply = generate(scripted(message, ENCODER), Limits(max_tokens=1000), seed="")
    ids = ["call-a", "call-b"]

    deltas = [json.loads(delta) for delta in chat_deltas(reply, ids) if delta is not None]
    view = chat_view(reply, ids)

    assert "".join(delta["content"] or "" for delta in deltas) == view.content == message["content"]
    for index, call in enumerate(CALLS):
        parts = [one for delta in deltas for one in delta.get("tool_calls", ()) if one["index"] == index]
        assert parts[0] == {
            "id": ids[index],
            "type": "function",
            "index": index,
            "function": {"name": call["function"]["name"]},
        }
        assert "".join(part["function"]["arguments"] for part in parts[1:]) == call["function"]["arguments"]
    assert len(chat_deltas(reply, ids)) == num_tokens(reply.token_ids)


def test_parallel_calls_can_be_forbidden() -> None:
    reply = generate(scripted({"content": None, "tool_calls": CALLS}, ENCODER), Limits(max_tokens=1000), seed="")

    view = chat_view(reply, ["a", "b"], parallel=False)
    deltas = [json.loads(delta) for delta in chat_deltas(reply, ["a", "b"], parallel=False) if delta is not None]

    assert [call.name for call in view.tool_calls] == ["read_file"]
    assert {call["index"] for delta in deltas for call in delta["tool_calls"]} == {0}


def test_plain_text_takes_the_short_way_to_the_same_deltas() -> None:
    reply = generate(prose("seed", 50), Limits(max_tokens=1000), seed="")

    assert plain_chat_deltas(reply) == chat_deltas(reply, [])


@pytest.mark.parametrize("num_kept", range(1, 40))
def test_reply_cut_anywhere_is_either_whole_calls_or_raw_text(num_kept: int) -> None:
    whole = ENCODER.reply({"content": "Hm.", "tool_calls": CALLS})
    reply = generate(scripted({"content": "Hm.", "tool_calls": CALLS}, ENCODER), Limits(max_tokens=num_kept), seed="")

    view = chat_view(reply, ["a", "b"])

    assert num_tokens(reply.token_ids) == min(num_kept, num_tokens(whole))
    if view.tool_calls:
        assert view.content == "Hm."
    else:
        assert decode(whole).startswith((view.content or "").rstrip("\N{REPLACEMENT CHARACTER}"))


def test_stop_string_is_found_across_tokens_and_counts_the_token_that_completes_it() -> None:
    ids = encode(" alpha beta gamma delta")
    spans = (Span(Kind.TEXT, ids), Span(Kind.END, end_of_turn()))

    reply = generate(spans, Limits(max_tokens=100, stop=("a be",)), seed="")

    assert (reply.finish_reason, reply.stop_reason) == ("stop", "a be")
    assert "".join(texts_by_token(reply)) == " alph"
    assert num_tokens(reply.token_ids) == 2


def test_stop_string_stays_in_the_text_if_asked() -> None:
    spans = (Span(Kind.TEXT, encode(" alpha beta gamma")), Span(Kind.END, end_of_turn()))

    reply = generate(spans, Limits(max_tokens=100, stop=("bet",), include_stop=True), seed="")

    assert "".join(texts_by_token(reply)) == " alpha bet"


def test_stop_string_may_not_end_the_reply_before_its_least_length() -> None:
    spans = (Span(Kind.TEXT, encode(" one two one two one two")), Span(Kind.END, end_of_turn()))

    reply = generate(spans, Limits(max_tokens=100, stop=("two",), min_tokens=3), seed="")

    assert "".join(texts_by_token(reply)) == " one two one "


def test_stop_token_is_counted_and_not_shown() -> None:
    ids = encode(" one two three")
    stop_id = int.from_bytes(ids[4:8], "little")

    reply = generate(
        (Span(Kind.TEXT, ids), Span(Kind.END, end_of_turn())),
        Limits(max_tokens=100, stop_token_ids=frozenset([stop_id])),
        seed="",
    )

    assert (reply.finish_reason, reply.stop_reason) == ("stop", stop_id)
    assert chat_view(reply, []).content == " one"
    assert num_tokens(reply.token_ids) == 2


def test_least_length_puts_the_end_off() -> None:
    reply = generate(prose("seed", 3), Limits(max_tokens=100, min_tokens=20), seed="s")

    assert num_tokens(reply.token_ids) == 21
    assert reply.finish_reason == "stop"


def test_ignored_end_fills_the_limit() -> None:
    reply = generate(prose("seed", 3), Limits(max_tokens=20, ignore_eos=True), seed="s")

    assert num_tokens(reply.token_ids) == 20
    assert reply.finish_reason == "length"
