from __future__ import annotations

from loadgen.agents.react import react
from tests.loadgen.fakes import make_call, make_task, replay_virtually
from traces.trajectory import Turn


def test_each_call_waits_for_the_tools_of_the_one_before() -> None:
    task = make_task(
        "t",
        Turn(tool_calls=(make_call("a", "mail", latency_s=2.0), make_call("b", "files", latency_s=0.5))),
        Turn(content="done"),
    )

    recorder, _ = replay_virtually(react, task)

    first, second = recorder.calls
    assert (first.due_at, first.sent_at, first.last_token_at) == (0.0, 0.0, 1.0)
    assert (second.due_at, second.sent_at, second.last_token_at) == (3.0, 3.0, 4.0)
    assert [(tool.started_at, tool.ended_at, tool.call_id) for tool in recorder.tools] == [
        (1.0, 3.0, "t/react#0"),
        (1.0, 1.5, "t/react#0"),
    ]
    [record] = recorder.tasks
    assert (record.started_at, record.ended_at, record.num_calls, record.num_tool_calls) == (0.0, 4.0, 2, 2)
    assert record.num_subagents == 0


def test_the_prompt_grows_by_the_answer_and_the_tool_results() -> None:
    task = make_task(
        "t", Turn(content="I mail", tool_calls=(make_call("a", "mail", result="sent"),)), Turn(content="done")
    )

    _, transport = replay_virtually(react, task)

    assert [message["role"] for message in transport.prompts["t/react#0"]] == ["system", "user"]
    assert transport.prompts["t/react#1"][2:] == [
        {
            "role": "assistant",
            "content": "I mail",
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "mail-do", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "sent"},
    ]
    assert len(transport.tools["t/react#0"]) == 3


def test_a_task_that_ends_in_a_tool_ends_when_the_tool_has_answered() -> None:
    task = make_task("t", Turn(tool_calls=(make_call("a", "local", latency_s=5.0),)))

    recorder, _ = replay_virtually(react, task)

    assert recorder.tasks[0].ended_at == 6.0


def test_the_user_may_speak_again() -> None:
    task = make_task("t", Turn(content="hello"), Turn(content="sure", user_message="and now?"))

    _, transport = replay_virtually(react, task)

    assert transport.prompts["t/react#1"][-1] == {"role": "user", "content": "and now?"}
