from __future__ import annotations

from loadgen.agents.group_chat import group_chat
from loadgen.agents.orchestrator import orchestrator
from loadgen.agents.react import react
from loadgen.harness import BatchWindow, Harness
from tests.loadgen.fakes import make_call, make_task, replay_virtually
from traces.trajectory import Turn

TASK = make_task(
    "t",
    Turn(tool_calls=(make_call("a", "mail", latency_s=0.0),)),
    Turn(tool_calls=(make_call("b", "files", latency_s=0.3),)),
    Turn(tool_calls=(make_call("c", "mail", latency_s=0.0),)),
    Turn(tool_calls=(make_call("d", "files", latency_s=0.0),)),
    Turn(content="done"),
)


def test_calls_that_are_due_within_the_window_are_sent_together() -> None:
    window = BatchWindow(window_s=0.5)

    recorder, _ = replay_virtually(orchestrator, TASK, harness=Harness(batch_window=window))

    sent = {call.call_id: call.sent_at for call in recorder.calls}
    assert sent["t/orchestrator#0"] == 0.5
    assert sent["t/mail#0"] == sent["t/files#0"] == 2.0
    assert sent["t/mail#1"] == sent["t/files#1"] == 3.5  # due at 3.0 and 3.3
    assert all(call.due_at == call.sent_at for call in recorder.calls)
    assert window.text() == "calls due within 500 ms go together: 1.50 a window on average, each held for 450.0 ms"


def test_shared_schemas_start_every_agents_tools_alike() -> None:
    everything = tuple(tool.text for tool in TASK.tools)

    _, separate = replay_virtually(orchestrator, TASK)
    _, shared = replay_virtually(orchestrator, TASK, harness=Harness(shares_tools=True))

    assert separate.tools["t/mail#0"] == everything[:1]
    assert shared.tools["t/mail#0"] == shared.tools["t/files#0"] == everything
    assert shared.tools["t/orchestrator#0"][:3] == everything
    assert '"delegate"' in shared.tools["t/orchestrator#0"][3]


def test_an_agent_without_tools_gets_none_of_the_shared_ones() -> None:
    _, transport = replay_virtually(group_chat, TASK, harness=Harness(shares_tools=True))

    assert transport.tools["t/chair#0"] == ()
    assert len(transport.tools["t/chair/mail#0"]) == 3


def test_a_plain_harness_has_nothing_to_say_and_changes_nothing() -> None:
    plain, _ = replay_virtually(react, TASK)
    other, _ = replay_virtually(react, TASK, harness=Harness())

    assert Harness().notes() == {}
    assert plain.digest() == other.digest()
