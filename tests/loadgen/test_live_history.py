"""Histories that hold what the server said in place of what the recording did."""

from __future__ import annotations

from typing import Any

from loadgen.agents.group_chat import group_chat
from loadgen.agents.orchestrator import orchestrator
from loadgen.agents.react import react
from loadgen.call import Call
from loadgen.context import TOKEN_IDS, Message
from loadgen.context_policy import ContextPolicy
from loadgen.harness import Harness
from loadgen.live_history import NO_RESULT, match_calls
from mockserver.filler import filler
from tests.loadgen.fakes import make_call, make_task, replay_virtually
from traces.trajectory import ToolCall, Turn


def asks(*calls: tuple[str, str, str], content: str | None = None) -> Message:
    """An answer with tool calls: (id, name, arguments) each."""
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call_id, name, arguments in calls
        ],
    }


def says(text: str) -> Message:
    return {"role": "assistant", "content": text}


def recorded(call_id: str, name: str, arguments: str = "{}") -> ToolCall:
    return ToolCall(call_id=call_id, name=name, domain="mail", arguments=arguments, result=f"result of {call_id}")


def shape(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["role"], one.get("tool_call_id") or one["content"] or "asks") for one in messages]


TASK = make_task(
    "t",
    Turn(content="first", tool_calls=(make_call("a", "mail", result="A"), make_call("b", "files", result="B"))),
    Turn(content="last"),
)


def test_a_call_is_answered_by_the_result_of_the_same_name_and_arguments_else_of_the_same_name() -> None:
    calls = [recorded("r0", "look", '{"at":0}'), recorded("r1", "look", '{"at":1}'), recorded("r2", "find")]

    found = match_calls(calls, asks(("s0", "look", '{"at":7}'), ("s1", "look", '{"at":0}'), ("s2", "send", "{}")))

    assert found.id_by_recorded_id == {"r0": "s1", "r1": "s0"}
    assert found.unknown_ids == ("s2",)


def test_the_next_prompt_holds_what_the_server_said_and_its_calls_with_the_recorded_results() -> None:
    def answer(_: Call) -> Message:
        return asks(("s0", "files-do", "{}"), ("s1", "mail-do", "{}"), ("s2", "other", "{}"), content="mine")

    _, transport = replay_virtually(react, TASK, answer=answer, harness=Harness(history_is_live=True))

    prompt = transport.prompts["t/react#1"][2:]
    assert prompt[0]["content"] == "mine"
    assert [(one["tool_call_id"], one["content"]) for one in prompt[1:]] == [
        ("s2", NO_RESULT),
        ("s1", "A"),
        ("s0", "B"),
    ]


def test_results_that_the_server_asked_no_tool_for_are_told_by_the_user_in_one_message() -> None:
    _, transport = replay_virtually(
        react, TASK, answer=lambda _: says("no tools today"), harness=Harness(history_is_live=True)
    )

    assert shape(transport.prompts["t/react#1"][2:]) == [("assistant", "no tools today"), ("user", "A\n\nB")]


def test_what_the_user_says_next_comes_in_the_same_message() -> None:
    task = make_task(
        "t", Turn(tool_calls=(make_call("a", "mail", result="A"),)), Turn(content="last", user_message="and then?")
    )

    _, transport = replay_virtually(react, task, answer=lambda _: says("x"), harness=Harness(history_is_live=True))

    assert shape(transport.prompts["t/react#1"][2:]) == [("assistant", "x"), ("user", "A\n\nand then?")]


def test_a_recorded_history_takes_no_notice_of_what_the_server_said() -> None:
    _, transport = replay_virtually(react, TASK, answer=lambda _: says("no tools today"))

    assert shape(transport.prompts["t/react#1"][2:]) == [("assistant", "first"), ("tool", "a"), ("tool", "b")]


def test_an_answer_of_ids_is_followed_by_the_recorded_results_as_they_are() -> None:
    _, transport = replay_virtually(
        react, TASK, answer=lambda _: says("text") | {TOKEN_IDS: [1]}, harness=Harness(history_is_live=True)
    )

    assert shape(transport.prompts["t/react#1"][2:]) == [("assistant", "text"), ("tool", "a"), ("tool", "b")]


def test_a_transport_that_says_nothing_leaves_the_recorded_answer() -> None:
    _, transport = replay_virtually(react, TASK, harness=Harness(history_is_live=True))

    assert shape(transport.prompts["t/react#1"][2:]) == [("assistant", "first"), ("tool", "a"), ("tool", "b")]


def test_subagents_report_what_the_server_said() -> None:
    _, transport = replay_virtually(
        orchestrator, TASK, answer=lambda call: says(f"from {call.agent_id}"), harness=Harness(history_is_live=True)
    )

    last = max((name for name in transport.prompts if "orchestrator" in name), key=lambda name: name[-1])
    assert shape(transport.prompts[last])[-1] == ("user", "from t/mail\n\nfrom t/files")


def test_everybody_in_a_group_chat_hears_the_results_before_the_next_one_speaks() -> None:
    _, transport = replay_virtually(group_chat, TASK, answer=lambda _: says("x"), harness=Harness(history_is_live=True))

    told = [("A" in one["content"]) for one in transport.prompts["t/chair#1"] if one["role"] == "user"]
    assert told[-1]


def test_a_summary_is_the_servers_own() -> None:
    task = make_task("t", *(Turn(content=filler(f"said/{k}", 100)) for k in range(6)))
    policy = ContextPolicy(name="summarise", max_tokens=300, summary_tokens=20)

    _, transport = replay_virtually(
        react,
        task,
        answer=lambda call: says("in short: nothing" if call.is_overhead else filler("live", 100)),
        harness=Harness(history_is_live=True, context_policy=policy),
    )

    assert any(("user", "in short: nothing") in shape(prompt) for prompt in transport.prompts.values())
