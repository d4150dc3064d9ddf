from __future__ import annotations

import functools
from dataclasses import replace

from loadgen.agents.chain import ASK_FOR_A_SUMMARY, SUMMARY_TOKENS, chain
from mockserver import tokens
from tests.loadgen.fakes import make_call, make_task, replay_virtually
from traces.trajectory import RecordedPrompt, Turn

FOUR_STEPS = make_task(
    "t",
    Turn(tool_calls=(make_call("a", "mail", latency_s=2.0),)),
    Turn(content="mailed"),
    Turn(tool_calls=(make_call("b", "files", latency_s=1.0),)),
    Turn(content="done"),
)
two_stages = functools.partial(chain, num_stages=2)


def test_a_stage_starts_when_the_summary_of_the_one_before_is_there() -> None:
    recorder, _ = replay_virtually(two_stages, FOUR_STEPS)

    assert {call.call_id: call.sent_at for call in recorder.calls} == {
        "t/stage-0#0": 0.0,
        "t/stage-0#1": 3.0,
        "t/stage-0#2": 4.0,  # the summary
        "t/stage-0/stage-1#0": 5.0,
        "t/stage-0/stage-1#1": 7.0,
    }
    assert recorder.tasks[0].ended_at == 8.0
    assert recorder.num_overhead_calls == 1


def test_a_stage_has_the_task_the_last_summary_and_the_tools_of_its_own_steps() -> None:
    _, transport = replay_virtually(two_stages, FOUR_STEPS)

    ask = transport.prompts["t/stage-0#2"][-1]
    system, task, summary = transport.prompts["t/stage-0/stage-1#0"]
    assert ask["content"] == ASK_FOR_A_SUMMARY
    assert (system["role"], task["content"]) == ("system", "Do t.")
    assert tokens.count(summary["content"]) == SUMMARY_TOKENS
    mail, files, local = (tool.text for tool in FOUR_STEPS.tools)
    assert transport.tools["t/stage-0#0"] == (mail, local)
    assert transport.tools["t/stage-0/stage-1#0"] == (files, local)


def test_a_recorded_prompt_that_refers_to_the_one_before_it_means_the_stage_before() -> None:
    def prompt(*hashes: int, num_kept_blocks: int = 0) -> RecordedPrompt:
        return RecordedPrompt(num_tokens=48, block_size=16, block_hashes=hashes, num_kept_blocks=num_kept_blocks)

    task = make_task(
        "t",
        Turn(content="one", prompt=prompt(1, 2, 3)),
        Turn(content="two", prompt=prompt(4, num_kept_blocks=2)),
    )

    _, transport = replay_virtually(two_stages, replace(task, system_prompt="", user_prompt=""))

    [first], [second] = transport.prompts["t/stage-0#0"], transport.prompts["t/stage-0/stage-1#0"]
    assert tokens.encode(first["content"])[: 4 * 32] == tokens.encode(second["content"])[: 4 * 32]
    assert first["content"] != second["content"]
