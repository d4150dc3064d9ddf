"""Workloads made of others: sampled, filtered, scaled, anonymised, and generated like them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mockserver import tokens
from tests.traces.test_jsonl import a_trajectory
from traces import synth
from traces.anonymize import Anonymizer
from traces.jsonl import TraceError, trajectory_line
from traces.like import workload_like
from traces.prompt_size import react_calls, react_steps
from traces.stats import Stats, measure
from traces.trajectory import RecordedPrompt, Subagent, ToolCall, Trajectory, Turn
from traces.transform import Filter, Scale, sample


def tasks(num_tasks: int) -> list[Trajectory]:
    return list(synth.generate(num_tasks=num_tasks))


def test_a_sample_keeps_the_order_and_is_the_same_for_the_same_seed() -> None:
    all_tasks = tasks(20)

    some = sample(iter(all_tasks), 5, seed=1)

    assert len(some) == 5
    assert [all_tasks.index(one) for one in some] == sorted(all_tasks.index(one) for one in some)
    assert sample(all_tasks, 5, seed=1) == some != sample(all_tasks, 5, seed=2)
    assert sample(all_tasks, 50, seed=1) == all_tasks


def test_a_sample_takes_each_task_as_often_as_any_other() -> None:
    numbered = [Trajectory(task_id=str(number), turns=()) for number in range(10)]

    counts = [0] * 10
    for seed in range(2000):
        for one in sample(numbered, 3, seed=seed):
            counts[int(one.task_id)] += 1

    assert all(520 <= count <= 680 for count in counts)  # 600 expected, four deviations either way


def test_filters_keep_what_fits_all_of_them() -> None:
    all_tasks = tasks(40)

    long = [one for one in all_tasks if Filter(min_calls=30, max_calls=60).keeps(one)]
    with_git = [one for one in all_tasks if Filter(domains=frozenset({"github", "git"})).keeps(one)]
    large = [one for one in all_tasks if Filter(min_prompt_tokens=30_000).keeps(one)]

    assert long == [one for one in all_tasks if 30 <= len(one.turns) <= 60]
    for one in all_tasks:
        used = {call.domain for turn in one.turns for call in turn.tool_calls}
        assert (one in with_git) == bool(used & {"github", "git"})
        assert (one in large) == (max(call.num_prompt_tokens for call in react_calls(one)) >= 30_000)
    assert Filter(with_fan_out=True).keeps(a_trajectory())
    assert not Filter(with_fan_out=True).keeps(all_tasks[0])


def test_scaling_lengths_scales_every_text() -> None:
    (task,) = tasks(1)

    scaled = Scale(tokens=2.0).apply(task)

    assert tokens.count(scaled.user_prompt) == 2 * tokens.count(task.user_prompt)
    for before, after in zip(task.turns, scaled.turns, strict=True):
        assert after.num_output_tokens == 2 * (before.num_output_tokens or 0)
        for call_before, call_after in zip(before.tool_calls, after.tool_calls, strict=True):
            assert tokens.count(call_after.result) == 2 * tokens.count(call_before.result)


def test_scaling_recorded_lengths_keeps_what_prompts_share() -> None:
    prompt = RecordedPrompt(num_tokens=150, block_size=64, block_hashes=(1, 2, 3))
    task = Trajectory(task_id="t", turns=(Turn(prompt=prompt, num_output_tokens=8),))

    half = Scale(tokens=0.5).apply(task).turns[0]

    assert half.prompt == replace(prompt, num_tokens=2 * 32 + 11, block_size=32)
    assert half.num_output_tokens == 4
    with pytest.raises(TraceError, match=r"blocks of 64 tokens cannot be scaled by 0\.3: no whole number"):
        Scale(tokens=0.3).apply(task)


def test_scaling_times_leaves_text_alone() -> None:
    scaled = Scale(delays=0.5, arrivals=2.0).apply(a_trajectory())

    assert scaled.started_at == 6.0
    assert scaled.turns[0].tool_calls[0].latency_s == 0.25
    assert scaled.turns[0].spawns[0].delay_s == 0.01
    assert scaled.turns[1].delay_s == 1.0
    assert scaled.user_prompt == a_trajectory().user_prompt
    assert Scale().apply(a_trajectory()) == a_trajectory()


def test_a_factor_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="tokens must be above 0 and below a million, got 0"):
        Scale(tokens=0)


SECRET_WORDS = ["Zanzibar", "launch-codes", "quetzal", "s3cr3t", "Ada Lovelace"]


def confidential() -> Trajectory:
    """A trajectory with a secret in every place that can hold text."""
    call = ToolCall(
        call_id="quetzal-1",
        name="quetzal_search",
        domain="quetzal",
        arguments='{"q":"s3cr3t"}',
        result="Zanzibar " * 40,
    )
    child = Subagent(
        agent_id="quetzal-agent",
        user_prompt="find launch-codes",
        system_prompt="You are Ada Lovelace.",
        turns=(Turn(content="Zanzibar", num_output_tokens=9),),
        tools=tasks(1)[0].tools[:1],
    )
    turns = (
        Turn(content="I ask in Zanzibar", tool_calls=(call,), spawns=(child,), duration_s=2.0),
        Turn(content="done in Zanzibar", user_message="and the launch-codes?", delay_s=1.0),
    )
    return Trajectory(
        task_id="Ada Lovelace's task",
        user_prompt="the s3cr3t of Zanzibar",
        system_prompt="You are Ada Lovelace. " * 30,
        turns=turns,
        metadata={"customer": "quetzal"},
    )


def test_nothing_of_the_text_is_left() -> None:
    line = trajectory_line(Anonymizer().apply(confidential())).decode()

    assert not [word for word in SECRET_WORDS if word in line]


def test_counts_shape_and_times_are_kept() -> None:
    task = confidential()
    anonymous = Anonymizer("key").apply(task)

    def sizes(one: Trajectory) -> list[tuple[int, int, tuple[int, ...]]]:
        return [(call.num_prompt_tokens, call.num_output_tokens, call.num_result_tokens) for call in react_calls(one)]

    assert sizes(anonymous) == sizes(task)
    assert [len(turn.spawns) for turn in anonymous.turns] == [1, 0]
    assert [(turn.duration_s, turn.delay_s) for turn in anonymous.turns] == [(2.0, None), (None, 1.0)]


def test_of_a_real_workload_only_the_text_changes() -> None:
    before = measure(tasks(20))
    anonymizer = Anonymizer("key")
    after = measure(map(anonymizer.apply, tasks(20)))

    assert after.num_prompt_tokens == pytest.approx(before.num_prompt_tokens, rel=1e-4)
    assert after.distinct_tokens == pytest.approx(before.distinct_tokens, rel=1e-3)
    assert after.num_tool_calls_by_domain == before.num_tool_calls_by_domain


def test_texts_that_begin_alike_begin_alike_afterwards() -> None:
    anonymizer = Anonymizer("key")
    shared = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "

    left, right = anonymizer.text(shared * 2 + "left"), anonymizer.text(shared * 2 + "right")

    ids_left, ids_right = tokens.encode(left), tokens.encode(right)
    assert ids_left[: 32 * 4] == ids_right[: 32 * 4]
    assert ids_left[-4:] != ids_right[-4:]


def test_another_secret_gives_another_text() -> None:
    assert Anonymizer("a").text("guess me") != Anonymizer("b").text("guess me")
    assert Anonymizer("a").text("guess me") == Anonymizer("a").text("guess me")


def test_recorded_hashes_are_kept() -> None:
    prompt = RecordedPrompt(num_tokens=10, block_size=4, block_hashes=(1, 2, 3), scope="customer-17")
    task = Trajectory(task_id="t", turns=(Turn(prompt=prompt, num_output_tokens=1),))

    anonymous = Anonymizer().apply(task).turns[0].prompt

    assert anonymous is not None
    assert (anonymous.block_hashes, anonymous.num_tokens) == ((1, 2, 3), 10)
    assert "customer" not in anonymous.scope


def test_a_workload_like_another_has_its_statistics_and_none_of_its_text() -> None:
    old_tasks = tasks(60)
    old, new = measure(old_tasks), measure(workload_like(old_tasks, name="old"))

    def medians(stats: Stats) -> list[float]:
        return [
            stats.distributions[name].p50
            for name in ("calls per task", "prompt tokens", "output tokens", "first prompt")
        ]

    assert medians(new) == pytest.approx(medians(old), rel=0.05)
    assert new.distinct_tokens == pytest.approx(old.distinct_tokens, rel=0.03)
    assert new.num_tool_calls_by_domain == old.num_tool_calls_by_domain
    old_texts = {call.result for one in old_tasks for turn in one.turns for call in turn.tool_calls}
    new_texts = {
        call.result for one in workload_like(old_tasks, name="old") for turn in one.turns for call in turn.tool_calls
    }
    assert not {text for text in old_texts & new_texts if tokens.count(text) > 3}


def test_a_workload_like_another_can_be_larger_and_is_seeded() -> None:
    old = tasks(4)

    larger = list(workload_like(old, name="old", seed=3, num_tasks=10))

    assert len({one.task_id for one in larger}) == 10
    assert larger == list(workload_like(old, name="old", seed=3, num_tasks=10))
    assert larger != list(workload_like(old, name="old", seed=4, num_tasks=10))


def test_a_recording_followed_twice_shares_nothing_with_itself() -> None:
    prompt = RecordedPrompt(num_tokens=64, block_size=64, block_hashes=(1,))
    old = [Trajectory(task_id="t", turns=(Turn(prompt=prompt, num_output_tokens=5),))]

    once, twice = workload_like(old, name="old", num_tasks=2)

    assert once.turns[0].prompt != twice.turns[0].prompt
    assert measure([once, twice]).best_hit_rate == 0.0


def test_like_keeps_fan_outs() -> None:
    (new,) = workload_like([confidential()], name="old")

    assert len(list(react_steps(new.turns))) == 3
    assert new.turns[0].spawns[0].turns[0].num_output_tokens is not None
