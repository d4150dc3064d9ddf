from __future__ import annotations

from collections import Counter

from hypothesis import given, settings

from loadgen.agents.orchestrator import orchestrator
from loadgen.agents.react import react
from loadgen.tools import ToolTimes
from tests.loadgen.fakes import make_call, make_task, replay_virtually
from tests.loadgen.test_recut import trajectories
from traces.trajectory import Trajectory, Turn

TWO_DOMAINS = make_task(
    "t",
    Turn(content="mail first", tool_calls=(make_call("a", "mail", latency_s=2.0),)),
    Turn(tool_calls=(make_call("b", "files", latency_s=0.25, result="42 files"),)),
    Turn(tool_calls=(make_call("c", "mail", latency_s=1.0),)),
    Turn(content="finishing", tool_calls=(make_call("d", "local", latency_s=0.5),)),
    Turn(content="all done"),
)


def test_one_plan_then_subagents_side_by_side_then_the_join() -> None:
    recorder, _ = replay_virtually(orchestrator, TWO_DOMAINS)

    sent = {call.call_id: (call.due_at, call.sent_at) for call in recorder.calls}
    assert sent == {
        "t/orchestrator#0": (0.0, 0.0),
        "t/mail#0": (1.0, 1.0),
        "t/files#0": (1.0, 1.0),
        "t/mail#1": (4.0, 4.0),
        "t/orchestrator#1": (6.0, 6.0),
        "t/orchestrator#2": (7.5, 7.5),
    }
    [record] = recorder.tasks
    assert (record.ended_at, record.num_calls, record.num_tool_calls, record.num_subagents) == (8.5, 6, 4, 2)


def test_a_subagent_carries_the_system_prompt_the_task_its_tools_and_its_own_history() -> None:
    _, transport = replay_virtually(orchestrator, TWO_DOMAINS)

    mail = transport.prompts["t/mail#1"]
    assert [message["role"] for message in mail] == ["system", "user", "assistant", "tool"]
    assert mail[1]["content"] == "Do t."
    assert transport.tools["t/mail#0"] == (TWO_DOMAINS.tools[0].text,)
    assert transport.tools["t/files#0"] == (TWO_DOMAINS.tools[1].text,)


def test_the_join_reads_the_reports_as_results_of_the_plan() -> None:
    """A subagent reports what it said last, or its last tool's answer where it said nothing."""
    _, transport = replay_virtually(orchestrator, TWO_DOMAINS)

    plan, *reports = transport.prompts["t/orchestrator#1"][2:]
    assert [call["function"]["name"] for call in plan["tool_calls"]] == ["delegate", "delegate"]
    assert [(message["tool_call_id"], message["content"]) for message in reports] == [
        ("delegate-0-mail", "mail first"),
        ("delegate-0-files", "42 files"),
    ]
    local_tool, delegate_tool = transport.tools["t/orchestrator#0"]
    assert local_tool == TWO_DOMAINS.tools[2].text
    assert '"delegate"' in delegate_tool


def test_a_task_that_ends_in_a_fan_out_gets_a_short_answer_at_the_join() -> None:
    recorder, _ = replay_virtually(orchestrator, make_task("t", Turn(tool_calls=(make_call("a", "mail"),))))

    assert [call.call_id for call in recorder.calls] == ["t/orchestrator#0", "t/mail#0", "t/orchestrator#1"]


def test_a_task_without_foreign_tools_needs_no_plan() -> None:
    recorder, _ = replay_virtually(orchestrator, make_task("t", Turn(content="easy")))

    assert [call.call_id for call in recorder.calls] == ["t/orchestrator#0"]


def test_a_second_question_meets_the_subagents_of_the_first() -> None:
    task = make_task(
        "t",
        Turn(tool_calls=(make_call("a", "mail"),)),
        Turn(content="there"),
        Turn(tool_calls=(make_call("b", "mail"),), user_message="again"),
    )

    recorder, transport = replay_virtually(orchestrator, task)

    assert [message["role"] for message in transport.prompts["t/mail#1"]] == [
        *("system", "user", "assistant", "tool"),
        "user",
    ]
    assert recorder.tasks[0].num_subagents == 1


def test_one_failing_subagent_ends_its_task_and_no_other() -> None:
    other = make_task("u", Turn(content="fine"))

    recorder, _ = replay_virtually(
        orchestrator, TWO_DOMAINS, other, fail=lambda call: "boom" if call.agent_id == "t/files" else None
    )

    error_by_task = {task.task_id: task.error for task in recorder.tasks}
    assert error_by_task == {"t": "boom", "u": None}


@settings(max_examples=40, deadline=None)
@given(trajectories())
def test_both_architectures_run_the_same_tools_for_the_same_time(task: Trajectory) -> None:
    times = ToolTimes(seed=5)
    one, _ = replay_virtually(react, task, tool_times=times)
    other, _ = replay_virtually(orchestrator, task, tool_times=times)

    def durations(recorder: object) -> Counter[tuple[str, float]]:
        return Counter((tool.name, round(tool.ended_at - tool.started_at, 9)) for tool in recorder.tools)  # type: ignore[attr-defined]

    assert durations(one) == durations(other)
