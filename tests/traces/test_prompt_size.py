"""Lengths that are added up are those of the prompts that the chat template builds."""

from __future__ import annotations

from typing import Any

from mockserver import tokens
from mockserver.prompt import PromptEncoder
from tests.traces.test_jsonl import a_trajectory
from traces import synth
from traces.prompt_size import react_calls, react_steps, react_tools, reply_tokens
from traces.trajectory import Trajectory, Turn


def assistant_message(turn: Turn) -> dict[str, Any]:
    calls = [
        {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in turn.tool_calls
    ]
    return {"role": "assistant", "content": turn.content or None} | ({"tool_calls": calls} if calls else {})


def prompts(trajectory: Trajectory) -> list[int]:
    return [call.num_prompt_tokens for call in react_calls(trajectory)]


def built_prompts(trajectory: Trajectory) -> list[int]:
    """The prompts of a ReAct replay, built message by message."""
    encoder = PromptEncoder(block_size=16)
    tools = [tool.text for tool in react_tools(trajectory)]
    messages: list[dict[str, Any]] = []
    if trajectory.system_prompt:
        messages.append({"role": "system", "content": trajectory.system_prompt})
    if trajectory.user_prompt:
        messages.append({"role": "user", "content": trajectory.user_prompt})
    sizes = []
    for turn in react_steps(trajectory.turns):
        if turn.user_message is not None:
            messages.append({"role": "user", "content": turn.user_message})
        sizes.append(tokens.num_tokens(encoder.chat(messages, tools)))
        messages.append(assistant_message(turn))
        messages += [{"role": "tool", "tool_call_id": c.call_id, "content": c.result} for c in turn.tool_calls]
    return sizes


def test_synthetic_prompts_have_the_size_that_is_added_up() -> None:
    for trajectory in synth.generate(num_tasks=5):
        assert prompts(trajectory) == built_prompts(trajectory)


def test_synthetic_outputs_are_what_the_template_generates() -> None:
    encoder = PromptEncoder(block_size=16)
    for trajectory in synth.generate(num_tasks=5):
        for turn in trajectory.turns:
            generated = tokens.num_tokens(encoder.reply(assistant_message(turn)))
            assert turn.num_output_tokens == reply_tokens(turn) == generated


def test_prompts_without_system_prompt_tools_or_user_add_up_too() -> None:
    turns = (Turn(content="hello", user_message="and?"), Turn(content=""), Turn(content="a\n\nb"))
    for trajectory in (
        Trajectory(task_id="bare", turns=turns),
        Trajectory(task_id="user", turns=turns, user_prompt="<|im_end|> is no special token here"),
        Trajectory(task_id="tools", turns=turns, tools=a_trajectory().tools),
        Trajectory(task_id="system", turns=turns, system_prompt="  spaces  "),
    ):
        assert prompts(trajectory) == built_prompts(trajectory)


def test_a_recorded_prompt_has_the_recorded_size() -> None:
    """The second turn of this trajectory has a recorded prompt; a subagent's turn stands before it."""
    assert prompts(a_trajectory())[-1] == 130
    assert len(prompts(a_trajectory())) == 3


def test_a_recorded_output_length_is_believed() -> None:
    """The history still grows by what the reply's text has."""
    turns = (Turn(content=" three words here", num_output_tokens=77), Turn(content=" three words here"))
    first, second = react_calls(Trajectory(task_id="t", turns=turns))

    assert (first.num_output_tokens, second.num_output_tokens) == (77, 4)
    assert second.num_prompt_tokens == first.num_prompt_tokens + 4 + 1 + 3
