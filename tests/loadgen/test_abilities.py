from __future__ import annotations

import pytest

from loadgen.abilities import MOST_TRIES, Abilities, error_text
from loadgen.agents.react import react
from loadgen.config import Settings
from loadgen.harness import Harness
from loadgen.tools import ToolTimes
from tests.loadgen.fakes import make_call, make_task, replay_virtually
from traces.trajectory import Turn

TASK = make_task(
    "t", *(Turn(tool_calls=(make_call(f"c{number}", "mail"),)) for number in range(200)), Turn(content="done")
)


def test_so_many_turns_are_repeated_as_the_accuracy_says() -> None:
    abilities = Abilities(tool_call_accuracy=0.8, max_tools=None)

    first_tries = [len(abilities.wrong_tries("t", turn, num_tools=3)) > 0 for turn in TASK.turns]

    assert sum(first_tries) == pytest.approx(0.2 * 200, abs=15)
    assert abilities.num_wrong >= sum(first_tries)


def test_a_model_that_never_gets_it_right_does_after_some_tries() -> None:
    abilities = Abilities(tool_call_accuracy=0.0, max_tools=None)

    assert len(abilities.wrong_tries("t", TASK.turns[0], num_tools=1)) == MOST_TRIES - 1


def test_too_many_tools_cost_a_tenth_of_the_accuracy_each_doubling() -> None:
    abilities = Abilities(tool_call_accuracy=0.8, max_tools=20)

    assert abilities.accuracy(20) == 0.8
    assert abilities.accuracy(40) == pytest.approx(0.72)
    assert abilities.accuracy(80) == pytest.approx(0.648)


def test_whoever_has_more_tools_is_wrong_wherever_one_with_fewer_is() -> None:
    few, many = (Abilities(tool_call_accuracy=0.8, max_tools=4) for _ in range(2))

    for turn in TASK.turns:
        assert len(few.wrong_tries("t", turn, num_tools=4)) <= len(many.wrong_tries("t", turn, num_tools=64))
    assert few.num_wrong < many.num_wrong
    assert "WARNING: agents had up to 64 tools, the model does well with 4" in many.notes()["max_tools"]
    assert "max_tools" not in few.notes()


def test_a_wrong_call_costs_a_turn_with_an_error_and_no_tool_runs() -> None:
    call = make_call("c", "mail", latency_s=2.0)
    task = make_task("t", Turn(content="hm", tool_calls=(call,), user_message="please"), Turn(content="done"))
    harness = Harness(abilities=Abilities(tool_call_accuracy=0.0, max_tools=None))

    recorder, transport = replay_virtually(react, task, harness=harness)

    assert [one.sent_at for one in recorder.calls] == [0.0, 1.0, 2.0, 3.0, 6.0]
    assert [(tool.started_at, tool.ended_at) for tool in recorder.tools] == [(4.0, 6.0)]
    assert recorder.num_overhead_calls == 3
    last = transport.prompts["t/react#4"]
    assert [message["role"] for message in last[2:]] == ["user", *("assistant", "tool") * 4]
    assert last[4]["content"] == error_text(call)
    assert last[3]["tool_calls"][0]["id"] == last[4]["tool_call_id"] == "c-wrong-0"


def test_turns_without_tools_are_never_wrong() -> None:
    assert Abilities(tool_call_accuracy=0.0, max_tools=1).wrong_tries("t", Turn(content="x"), num_tools=9) == []


def test_the_abilities_are_the_profiles_and_the_reference_model_has_no_weakness() -> None:
    llama = Settings(profile="llama-3.1-8b-1xh100").harness(is_our_model=True).abilities

    assert llama is not None
    assert (llama.tool_call_accuracy, llama.max_tools) == (0.72, 20)
    assert Settings().harness(is_our_model=True).abilities is None
    assert Settings(profile="llama-3.1-8b-1xh100").harness(is_our_model=False).abilities is None
    off = Settings(profile="llama-3.1-8b-1xh100", model_abilities=False)
    assert off.harness(is_our_model=True).abilities is None


def test_the_same_seed_gives_the_same_digest() -> None:
    digests = {
        replay_virtually(
            react,
            TASK,
            tool_times=ToolTimes(),
            harness=Harness(abilities=Abilities(tool_call_accuracy=0.7, max_tools=2)),
        )[0].digest()
        for _ in range(2)
    }

    assert len(digests) == 1


def test_guided_decoding_makes_tool_calls_later_by_a_share_of_their_decoding() -> None:
    call = make_call("c", "mail", latency_s=1.0)
    abilities = Abilities(tool_call_accuracy=1.0, max_tools=None, guided_decoding_overhead=0.25)

    recorder, _ = replay_virtually(
        react, make_task("t", Turn(tool_calls=(call,)), Turn(content="done")), harness=Harness(abilities=abilities)
    )

    first, second = recorder.calls
    assert (first.first_token_at, first.last_token_at) == (0.0, 1.0)
    assert second.sent_at == 2.25
    assert recorder.tasks[0].ended_at == 3.25, "what is not a tool call is not guided"
    assert abilities.notes()["guided_decoding"] == "tool calls take 25% longer to decode: 0.2 s in all"


def test_guided_decoding_is_off_until_asked_for() -> None:
    plain = Settings(profile="llama-3.1-8b-1xh100", model_abilities=False)
    guided = Settings(profile="llama-3.1-8b-1xh100", model_abilities=False, guided_decoding=True)

    assert plain.harness(is_our_model=True).abilities is None
    abilities = guided.harness(is_our_model=True).abilities
    assert abilities is not None
    assert (abilities.guided_decoding_overhead, abilities.accuracy(10_000)) == (0.08, 1.0)
