from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loadgen.context import user_message
from loadgen.recorded_text import NO_TEXT, RecordedText
from mockserver import tokens
from mockserver.prompt import PromptEncoder
from traces.trajectory import RecordedPrompt

SIZE = 16


def a_prompt(num_tokens: int, *hashes: int, kept: int = 0, scope: str = "") -> RecordedPrompt:
    return RecordedPrompt(
        num_tokens=num_tokens, block_size=SIZE, block_hashes=hashes, num_kept_blocks=kept, scope=scope
    )


def num_prompt_tokens(text: RecordedText) -> int:
    return tokens.num_tokens(PromptEncoder(block_size=SIZE).chat([user_message(text.text)]))


def test_recorded_prompts_share_text_exactly_where_they_share_blocks() -> None:
    one = NO_TEXT.followed_by(a_prompt(48, 1, 2, 3))
    other = NO_TEXT.followed_by(a_prompt(58, 1, 2, 4))

    assert (num_prompt_tokens(one), num_prompt_tokens(other)) == (48, 58)
    assert one.text.token_ids[: 32 * 4] == other.text.token_ids[: 32 * 4]
    assert one.text.token_ids[32 * 4 : 36 * 4] != other.text.token_ids[32 * 4 : 36 * 4]


def test_equal_hashes_mean_equal_text_within_a_scope_only() -> None:
    one = NO_TEXT.followed_by(a_prompt(48, 1, 2, scope="a"))

    assert NO_TEXT.followed_by(a_prompt(48, 1, 2, scope="a")) == one
    assert NO_TEXT.followed_by(a_prompt(48, 1, 2, scope="b")).text.token_ids[:64] != one.text.token_ids[:64]


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.lists(st.integers(0, 9), max_size=5), st.integers(-20, 40)),
        min_size=1,
        max_size=6,
    )
)
def test_a_prompt_made_from_the_one_before_is_the_one_made_whole(steps: list[tuple[int, list[int], int]]) -> None:
    """Whatever is left out, and wherever a prompt ends: inside its blocks or behind them."""
    text = NO_TEXT
    hashes: tuple[int, ...] = ()
    for kept, new, more in steps:
        hashes = hashes[:kept] + tuple(new)
        num_tokens = max(len(hashes) * SIZE + more, 9)
        text = text.followed_by(a_prompt(num_tokens, *new, kept=kept))

        assert text == NO_TEXT.followed_by(a_prompt(num_tokens, *hashes))
        assert text == text.followed_by(a_prompt(num_tokens, *hashes))
        assert num_prompt_tokens(text) == num_tokens
        assert tokens.encode(str(text.text)) == text.text.token_ids
