from __future__ import annotations

import functools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.agents.react import react
from loadgen.context import Conversation, Message, system_message, tool_message, user_message
from loadgen.context_policy import ASK_FOR_A_SUMMARY, ContextPolicy, ContextPolicyName, rounds_of
from loadgen.harness import Harness
from loadgen.room import message_tokens
from mockserver import tokens
from mockserver.filler import filler
from tests.loadgen.fakes import make_call, make_task, replay_virtually
from traces.trajectory import Trajectory, Turn

HEAD: list[Message] = [system_message("You are helpful."), user_message("Do it.")]
HEAD_TOKENS = sum(map(message_tokens, HEAD))


def make_rounds(sizes: Sequence[int]) -> list[Message]:
    """Rounds of an answer without words and a tool's result; each holds about as many tokens as its size says."""
    messages: list[Message] = []
    for number, size in enumerate(sizes):
        messages.append({"role": "assistant", "content": None, "tool_calls": []})
        messages.append(tool_message(f"c{number}", filler(f"{number}", size)))
    return messages


def cut(name: ContextPolicyName, sizes: Sequence[int], *, max_tokens: int) -> list[Message]:
    policy = ContextPolicy(name=name, max_tokens=max_tokens, summary_tokens=10)
    return policy.cut(Conversation(messages=[*HEAD, *make_rounds(sizes)])).messages


def size_of(messages: Sequence[Message]) -> int:
    return sum(map(message_tokens, messages))


@pytest.mark.parametrize("name", ["truncate", "window", "keep-prefix"])
def test_a_history_within_the_limit_is_left_alone(name: ContextPolicyName) -> None:
    policy = ContextPolicy(name=name, max_tokens=1000, summary_tokens=10)
    conversation = Conversation(messages=[*HEAD, *make_rounds([100, 100])])

    assert policy.cut(conversation) is conversation


def test_a_window_keeps_the_start_and_drops_as_little_as_possible() -> None:
    kept = cut("window", [100, 100, 100], max_tokens=300)

    assert kept == [*HEAD, *make_rounds([100, 100, 100])[2:]]


def test_keep_prefix_makes_room_for_the_calls_to_come() -> None:
    kept = cut("keep-prefix", [100, 100, 100, 100], max_tokens=440)

    assert kept == [*HEAD, *make_rounds([100, 100, 100, 100])[4:]]


def test_truncating_takes_the_oldest_whatever_it_is() -> None:
    kept = cut("truncate", [100, 100, 100], max_tokens=360)

    assert kept == [HEAD[1], *make_rounds([100, 100, 100])]


@given(
    name=st.sampled_from(("truncate", "window", "keep-prefix")),
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=12),
    max_tokens=st.integers(1, 2000),
)
def test_what_is_left_fits_or_is_one_round_and_its_end_is_the_histories_end(
    name: ContextPolicyName, sizes: list[int], max_tokens: int
) -> None:
    whole = [*HEAD, *make_rounds(sizes)]

    kept = cut(name, sizes, max_tokens=max_tokens)

    head, rounds = rounds_of(kept)
    assert size_of(kept) <= max_tokens or len(rounds) == 1 or kept == whole
    assert kept[len(head) :] == whole[len(whole) - len(kept) + len(head) :]
    assert all(one[0]["role"] == "assistant" for one in rounds), "no result stands without the call that asked for it"
    if name != "truncate":
        assert head == HEAD


def steps(num_steps: int) -> Trajectory:
    return make_task(
        "t",
        *(
            Turn(tool_calls=(make_call(f"c{number}", "mail", result=filler(f"{number}", 100), latency_s=0.0),))
            for number in range(num_steps)
        ),
    )


def replayed(name: ContextPolicyName, *, max_tokens: int) -> tuple[Harness, dict[str, list[Message]], int]:
    policy = ContextPolicy(name=name, max_tokens=max_tokens, summary_tokens=20)
    harness = Harness(context_policy=policy)
    recorder, transport = replay_virtually(react, steps(8), harness=harness)
    return harness, transport.prompts, recorder.num_overhead_calls


def test_a_summary_costs_a_call_and_stands_for_all_but_the_last_round() -> None:
    harness, prompts, num_overhead_calls = replayed("summarise", max_tokens=700)

    asked = [call_id for call_id, prompt in prompts.items() if prompt[-1]["content"] == ASK_FOR_A_SUMMARY]
    assert harness.num_summaries == num_overhead_calls == len(asked) > 0
    after = prompts[f"t/react#{int(asked[0].partition('#')[2]) + 1}"]
    assert [message["role"] for message in after] == ["system", "user", "user", "assistant", "tool"]
    assert tokens.count(after[2]["content"]) == 20
    assert len(prompts) == 8 + num_overhead_calls


def test_a_sliding_window_moves_at_every_call_and_keep_prefix_in_leaps() -> None:
    window, _, _ = replayed("window", max_tokens=600)
    leaps, prompts, _ = replayed("keep-prefix", max_tokens=600)

    assert window.num_cuts > leaps.num_cuts > 0
    assert all(prompt[:2] == prompts["t/react#0"][:2] for prompt in prompts.values())


def test_a_summary_that_would_replace_next_to_nothing_is_not_asked_for() -> None:
    harness, _, _ = replayed("summarise", max_tokens=1)

    assert harness.num_summaries < 8
    policy = ContextPolicy(name="summarise", max_tokens=1, summary_tokens=50)
    assert not policy.is_worth_a_summary(Conversation(messages=[*HEAD, *make_rounds([60, 500])]))
    assert policy.is_worth_a_summary(Conversation(messages=[*HEAD, *make_rounds([100, 500])]))


@pytest.mark.parametrize("field", ["max_tokens", "summary_tokens"])
def test_nothing_is_no_limit(field: str) -> None:
    make = functools.partial(ContextPolicy, name="window", **{"max_tokens": 1, "summary_tokens": 1, field: 0})

    with pytest.raises(ValueError, match=f"{field} of a context policy must be at least 1, got 0"):
        make()
