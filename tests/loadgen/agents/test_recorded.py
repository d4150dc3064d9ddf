from __future__ import annotations

from loadgen.agents.recorded import recorded
from loadgen.architectures import ARCHITECTURES, RECORDED, find_architecture
from loadgen.tools import ToolTimes
from tests.loadgen.fakes import make_call, make_task, make_tool, replay_virtually
from traces.trajectory import RecordedPrompt, Subagent, Trajectory, Turn


def child(name: str, *turns: Turn, delay_s: float = 0.0, is_background: bool = False) -> Subagent:
    return Subagent(
        agent_id=name,
        user_prompt=f"help as {name}",
        turns=turns or (Turn(content=f"{name} helped"),),
        tools=(make_tool("web-do", "web"),),
        delay_s=delay_s,
        is_background=is_background,
    )


def sent_at(task: Trajectory, **options: object) -> dict[str, float]:
    recorder, _ = replay_virtually(recorded, task, **options)  # type: ignore[arg-type]
    assert all(call.sent_at == call.due_at for call in recorder.calls)
    return {call.call_id.removeprefix("t/"): call.sent_at for call in recorder.calls}


def test_a_fan_out_starts_after_the_answer_and_the_next_turn_joins_it() -> None:
    """Each call takes a second. The slower subagent makes two calls, half a second apart."""
    slow = child("slow", Turn(content="one"), Turn(content="two", delay_s=0.5), delay_s=0.25)
    task = make_task("t", Turn(content="go", spawns=(slow, child("quick"))), Turn(content="joined", delay_s=2.0))

    assert sent_at(task) == {"main#0": 0.0, "quick#0": 1.0, "slow#0": 1.25, "slow#1": 2.75, "main#1": 5.75}


def test_nobody_waits_for_a_subagent_in_the_background() -> None:
    long = child("long", *(Turn(content="more") for _ in range(9)), is_background=True)
    task = make_task("t", Turn(content="go", spawns=(long,)), Turn(content="on"))

    recorder, _ = replay_virtually(recorded, task)

    sent = {call.call_id: call.sent_at for call in recorder.calls}
    assert (sent["t/main#1"], sent["t/long#8"]) == (1.0, 9.0)
    assert recorder.tasks[0].ended_at == 10.0
    assert (recorder.tasks[0].num_calls, recorder.tasks[0].num_subagents) == (11, 1)


def test_subagents_may_spawn_subagents() -> None:
    inner = child("inner")
    outer = child("outer", Turn(content="deeper", spawns=(inner,)), Turn(content="back"))
    task = make_task("t", Turn(content="go", spawns=(outer,)), Turn(content="done"))

    assert sent_at(task) == {"main#0": 0.0, "outer#0": 1.0, "inner#0": 2.0, "outer#1": 3.0, "main#1": 4.0}


def test_a_recorded_delay_takes_the_place_of_the_tools_time() -> None:
    calls = (make_call("a", "mail", latency_s=0.25), make_call("b", "mail"))
    task = make_task("t", Turn(tool_calls=calls), Turn(content="done", delay_s=1.5))

    recorder, transport = replay_virtually(recorded, task)

    assert [call.sent_at for call in recorder.calls] == [0.0, 2.5]
    assert [(tool.started_at, tool.ended_at) for tool in recorder.tools] == [(1.0, 1.25), (1.0, 2.5)]
    assert [message["role"] for message in transport.prompts["t/main#1"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
    ]


def test_without_a_delay_the_next_turn_waits_for_the_tools() -> None:
    task = make_task("t", Turn(tool_calls=(make_call("a", "mail", latency_s=0.75),)), Turn(content="done"))

    assert sent_at(task)["main#1"] == 1.75


def test_tools_without_a_recorded_time_take_a_drawn_one() -> None:
    task = make_task("t", Turn(tool_calls=(make_call("a", "mail"),)), Turn(content="done"))

    assert sent_at(task, tool_times=ToolTimes(recorded=False, mean_s=0.6))["main#1"] > 1.0


def test_each_agent_has_its_own_history_and_tools() -> None:
    task = make_task("t", Turn(content="go", spawns=(child("a"),)), Turn(content="done", user_message="and?"))

    _, transport = replay_virtually(recorded, task)

    assert [message["content"] for message in transport.prompts["t/a#0"]] == ["help as a"]
    assert [message["content"] for message in transport.prompts["t/main#1"]][1:] == ["Do t.", "go", "and?"]
    assert len(transport.tools["t/a#0"]) == 1


def test_recorded_prompts_are_put_together_agent_by_agent() -> None:
    """What the second prompt leaves out it has from the first."""

    def prompt(num_tokens: int, *hashes: int, kept: int = 0) -> RecordedPrompt:
        return RecordedPrompt(num_tokens=num_tokens, block_size=16, block_hashes=hashes, num_kept_blocks=kept)

    turns = (
        Turn(prompt=prompt(40, 1, 2), num_output_tokens=3),
        Turn(prompt=prompt(56, 3, kept=2), num_output_tokens=3),
    )

    _, transport = replay_virtually(recorded, Trajectory(task_id="t", turns=turns))

    first, second = (transport.prompts[f"t/main#{index}"][0]["content"] for index in range(2))
    assert second.split()[:32] == first.split()[:32]
    assert len(transport.prompts["t/main#1"]) == 1


def test_it_is_found_by_name_but_not_compared_with_the_others() -> None:
    assert find_architecture(RECORDED) is recorded
    assert RECORDED not in ARCHITECTURES
