"""Workload statistics against slow and plain counting."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mockserver import tokens
from mockserver.prompt import PromptEncoder
from tests.traces.test_prompt_size import assistant_message
from traces import synth
from traces.prompt_size import react_tools
from traces.reuse import num_common_bytes
from traces.stats import Distribution, measure
from traces.trajectory import RecordedPrompt, ToolCall, Trajectory, Turn


def test_the_embedded_workload_has_the_reference_figures() -> None:
    stats = measure(synth.generate())

    assert stats.num_tasks == 295
    assert 24 <= stats.distributions["calls per task"].p50 <= 28
    assert 15_000 <= stats.distributions["prompt tokens"].p50 <= 16_000
    assert 50 <= stats.distributions["output tokens"].p50 <= 56
    assert 6.6e6 <= stats.distinct_tokens <= 7.0e6
    assert stats.distributions["subagents (re-cut)"].p50 == 3
    assert stats.distributions["subagents (re-cut)"].max <= 8


@pytest.mark.parametrize("seed", [1, 2])
def test_other_seeds_have_the_reference_figures_too(seed: int) -> None:
    stats = measure(synth.generate(seed=seed))

    assert 15_000 <= stats.distributions["prompt tokens"].p50 <= 16_000
    assert 50 <= stats.distributions["output tokens"].p50 <= 56
    assert 6.6e6 <= stats.distinct_tokens <= 7.0e6


def count_by_trie(trajectories: list[Trajectory]) -> tuple[int, int]:
    """(distinct tokens, tokens that could be hit), token by token: what ``Reuse`` is quick about."""
    encoder = PromptEncoder(block_size=16)
    root: dict[int, dict] = {}  # type: ignore[type-arg]
    num_nodes = num_hits = 0
    for trajectory in trajectories:
        messages = []
        if trajectory.system_prompt:
            messages.append({"role": "system", "content": trajectory.system_prompt})
        if trajectory.user_prompt:
            messages.append({"role": "user", "content": trajectory.user_prompt})
        for turn in trajectory.turns:
            if turn.user_message is not None:
                messages.append({"role": "user", "content": turn.user_message})
            reply = assistant_message(turn)
            prompt = tokens.unpack(encoder.chat(messages, [tool.text for tool in react_tools(trajectory)]))
            node, num_known = root, 0
            for position, token in enumerate(prompt + tokens.unpack(encoder.reply(reply))):
                if token not in node:
                    node[token] = {}
                    num_nodes += 1
                elif position == num_known:
                    num_known += 1
                node = node[token]
            num_hits += min(num_known, len(prompt) - 1)
            messages.append(reply)
            messages += [{"role": "tool", "tool_call_id": c.call_id, "content": c.result} for c in turn.tool_calls]
    return num_nodes, num_hits


def conversation(task_id: str, text: str, *, system_prompt: str = "You are an agent.") -> Trajectory:
    call = ToolCall(call_id="c", name="look", domain="web", arguments="{}", result=f"{text} found")
    turns = (Turn(content=f"I look for {text}", tool_calls=(call,)), Turn(content="done", user_message="well?"))
    return Trajectory(task_id=task_id, user_prompt=f"Find {text}", system_prompt=system_prompt, turns=turns)


def test_reuse_is_what_a_trie_of_all_tokens_says() -> None:
    synthetic = [replace(one, turns=one.turns[:3], tools=one.tools[:4]) for one in synth.generate(num_tasks=6)]
    written = [conversation("a", "gold"), conversation("b", "silver"), conversation("c", "tin", system_prompt="")]

    for trajectories in (synthetic, written):
        stats = measure(trajectories)
        num_distinct, num_hits = count_by_trie(trajectories)

        assert stats.distinct_tokens == num_distinct
        assert round(stats.best_hit_rate * stats.num_prompt_tokens) == num_hits


def test_recorded_prompts_share_their_blocks() -> None:
    def recorded(num_tokens: int, *hashes: int) -> Turn:
        prompt = RecordedPrompt(num_tokens=num_tokens, block_size=10, block_hashes=hashes)
        return Turn(prompt=prompt, num_output_tokens=5)

    turns = (recorded(25, 1, 2), recorded(38, 1, 2, 3), recorded(20, 2, 1), recorded(25, 1, 2, 9))
    stats = measure([Trajectory(task_id="t", turns=turns)])

    assert stats.num_prompt_tokens == 25 + 38 + 20 + 25
    assert stats.distinct_tokens == 25 + 18 + 20 + 5 + 4 * 5
    assert round(stats.best_hit_rate * stats.num_prompt_tokens) == 20 + 20


def test_quantiles_are_numpy_s() -> None:
    values = [3.0, 1.0, 4.0, 1.5, 9.0, 2.6]
    distribution = Distribution.of(values)

    assert distribution is not None
    assert distribution.p25 == pytest.approx(np.percentile(values, 25))
    assert distribution.p95 == pytest.approx(np.percentile(values, 95))
    assert Distribution.of([]) is None


def test_nothing_has_no_numbers() -> None:
    stats = measure([])

    assert (stats.num_tasks, stats.num_calls, stats.distinct_tokens, stats.best_hit_rate) == (0, 0, 0, 0.0)


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [(b"", b"a", 0), (b"abc", b"abd", 2), (b"abc", b"abc", 3), (b"b", b"a", 0), (b"ab", b"a", 1)],
)
def test_the_common_start_of_two_byte_strings(one: bytes, other: bytes, common: int) -> None:
    assert num_common_bytes(one, other) == common
