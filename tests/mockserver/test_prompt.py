"""Prompts: one template, exact ids for replies in the history, memory that is bounded."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mockserver.filler import filler
from mockserver.prompt import Message, PromptEncoder, end_of_turn, text_of
from mockserver.tokens import TokenText, count, decode, encode, num_tokens

TOOL = '{"type":"function","function":{"name":"filesystem-read","parameters":{}}}'
CALL = {"id": "c1", "type": "function", "function": {"name": "filesystem-read", "arguments": '{"path":"/a"}'}}


def make_encoder() -> PromptEncoder:
    return PromptEncoder(block_size=16)


def test_the_template_reads_as_it_is_documented() -> None:
    messages: list[Message] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Read /a."},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
    ]

    text = decode(make_encoder().chat(messages, [TOOL]))

    assert text == (
        "<|im_start|>system\nBe brief.\n\n# Tools\n\nYou may call these functions:\n<tools>\n"
        f"{TOOL}\n</tools>\n\nFor each call answer with a JSON object within <tool_call></tool_call> tags.<|im_end|>\n"
        "<|im_start|>user\nRead /a.<|im_end|>\n"
        '<|im_start|>assistant\n\n<tool_call>\n{"name": "filesystem-read", "arguments": {"path":"/a"}}\n</tool_call>'
        "<|im_end|>\n"
        "<|im_start|>tool\n42<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


contents = st.one_of(st.none(), st.text(max_size=40), st.integers(0, 40).map(lambda n: filler(f"c{n}", n)))
replies = st.builds(
    lambda content, calls: {"role": "assistant", "content": content, "tool_calls": [CALL] * calls},
    contents,
    st.integers(0, 2),
)


@settings(deadline=None)
@given(st.lists(st.tuples(contents, replies), min_size=1, max_size=5))
def test_the_next_prompt_starts_with_this_prompt_and_its_reply(turns: list[tuple[str | None, Message]]) -> None:
    """What makes the next turn hit this turn's blocks, generated ones included."""
    encoder = make_encoder()
    messages: list[Message] = [{"role": "system", "content": "s"}]
    before = b""

    for content, reply in turns:
        messages.append({"role": "user", "content": content})
        prompt = encoder.chat(messages, [TOOL])
        assert prompt.startswith(before)
        before = prompt + encoder.reply(reply)
        messages.append(reply)


def test_a_reply_ends_with_the_end_of_turn_token() -> None:
    reply = make_encoder().reply({"role": "assistant", "content": "hello"})

    assert reply == encode("hello") + end_of_turn()


def test_text_that_carries_its_ids_is_not_tokenised_again() -> None:
    text = TokenText("not what the ids say", encode("hello"))

    assert make_encoder().reply({"role": "assistant", "content": text}) == encode("hello") + end_of_turn()


def test_special_tokens_in_a_users_text_are_ordinary_text() -> None:
    prompt = make_encoder().chat([{"role": "user", "content": "<|im_end|>"}])

    assert prompt.count(end_of_turn()) == 1


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("a", "a"),
        ([], ""),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        (["a"], "a"),
        ([{"type": "refusal", "refusal": "no"}], "no"),
        ([{"type": "image_url", "image_url": {"url": "x"}}], ""),
    ],
)
def test_content_is_a_string_a_list_of_parts_or_nothing(content: object, text: str) -> None:
    assert text_of(content) == text


def test_the_cache_of_texts_is_bounded_and_changes_nothing() -> None:
    encoder = PromptEncoder(block_size=16, max_cache_bytes=20_000)
    texts = [f"text number {number} " * 5 for number in range(500)]

    for text in [*texts, *texts]:
        assert encoder.text(text) == encode(text)

    assert len(encoder._texts._young) + len(encoder._texts._old) < 100


def test_lone_surrogates_which_json_allows_have_tokens_too() -> None:
    assert count("a\ud800b") == num_tokens(encode("a\ud800b")) > 0


@given(st.integers(0, 5000), st.text(max_size=10))
@settings(deadline=None, max_examples=50)
def test_filler_has_the_tokens_that_a_tokenizer_finds_in_it(length: int, seed: str) -> None:
    text = filler(seed, length)

    assert count(text) == length
    assert encode("".join(text)) == text.token_ids  # joined: a plain str that has to be tokenised
