from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from loadgen import recut
from tests.loadgen.fakes import make_call, make_task, make_tool
from traces.trajectory import RecordedPrompt, Subagent, ToolCall, Trajectory, Turn

DOMAINS = ("local", "mail", "files", "web")


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    num_made = 0
    turns = []
    for _ in range(draw(st.integers(1, 8))):
        calls = []
        for domain in draw(st.lists(st.sampled_from(DOMAINS), max_size=4)):
            calls.append(make_call(f"c{num_made}", domain))
            num_made += 1
        user = draw(st.sampled_from((None, None, None, "and then?")))
        turn = Turn(content=draw(st.sampled_from(("", "text"))), tool_calls=tuple(calls), user_message=user)
        if draw(st.integers(0, 5)) == 0:
            inner = Turn(content="inner", tool_calls=(make_call(f"s{num_made}", "web"),))
            spawn = Subagent(agent_id=f"s{num_made}", user_prompt="look", turns=(inner,))
            turn = replace(turn, spawns=(spawn,))
        turns.append(turn)
    return make_task("t", *turns)


def all_pieces(task: Trajectory) -> list[Turn]:
    return [
        turn for segment in recut.segments(task) for turns in (*segment.parts.values(), segment.own) for turn in turns
    ]


@given(trajectories())
def test_work_is_conserved(task: Trajectory) -> None:
    """Tool calls and recorded outputs of all pieces together are the original's, each once."""
    recorded = recut.steps(task)

    for pieces in (
        all_pieces(task),
        [turn for stage in recut.stages(task, 3) for turn in stage],
        [turn for run in recut.runs(task) for turn in run.turns],
        [piece.turn for segment in recut.segments(task) for piece in segment.pieces],
    ):
        assert Counter(call for piece in pieces for call in piece.tool_calls) == Counter(
            call for turn in recorded for call in turn.tool_calls
        )
        assert Counter(piece.content for piece in pieces if piece.content) == Counter(
            turn.content for turn in recorded if turn.content
        )


@given(trajectories())
def test_each_domain_keeps_the_recorded_order_and_only_its_own_calls(task: Trajectory) -> None:
    recorded = [call for turn in recut.steps(task) for call in turn.tool_calls]

    for segment in recut.segments(task):
        for domain, turns in segment.parts.items():
            calls = [call for turn in turns for call in turn.tool_calls]
            assert domain != recut.LOCAL
            assert all(call.domain == domain for call in calls)
            assert calls == sorted(calls, key=recorded.index)
        assert all(call.domain == recut.LOCAL for turn in segment.own for call in turn.tool_calls)


def test_a_step_of_one_domain_is_kept_whole() -> None:
    turn = Turn(content="mailing", tool_calls=(make_call("a", "mail"), make_call("b", "mail")), num_output_tokens=9)

    assert recut.split_by_domain(turn) == {"mail": turn}


def test_a_step_of_several_domains_gives_its_text_to_the_first() -> None:
    mail, files = make_call("a", "mail"), make_call("b", "files")

    pieces = recut.split_by_domain(Turn(content="both", tool_calls=(mail, files), num_output_tokens=9))

    assert pieces == {"mail": Turn(content="both", tool_calls=(mail,)), "files": Turn(tool_calls=(files,))}


def test_text_alone_and_local_tools_stay_with_the_orchestrator() -> None:
    local = Turn(tool_calls=(make_call("a", "local"),))

    [segment] = recut.segments(make_task("t", Turn(content="hm"), local, Turn(content="the end")))

    assert segment.parts == {}
    assert segment.own == (Turn(content="hm"), local, Turn(content="the end"))


def test_what_the_user_says_starts_a_segment() -> None:
    task = make_task("t", Turn(content="one"), Turn(content="two", user_message="more"), Turn(content="three"))

    first, second = recut.segments(task)

    assert (first.user_message, first.own) == (None, (Turn(content="one"),))
    assert (second.user_message, second.own) == ("more", (Turn(content="two"), Turn(content="three")))


def test_spawned_subagents_are_done_in_line() -> None:
    inner = Turn(content="inner", tool_calls=(ToolCall(call_id="x", name="w", domain="web", arguments="", result=""),))
    spawn = Subagent(agent_id="s", user_prompt="look", turns=(inner,), tools=(make_tool("w", "web"),))
    task = make_task("t", Turn(content="spawning", spawns=(spawn,)), Turn(content="after"))

    assert recut.steps(task) == (Turn(content="spawning"), inner, Turn(content="after"))
    assert [tool.name for tool in recut.all_tools(task)] == ["mail-do", "files-do", "local-do", "w"]


@given(trajectories())
def test_a_run_stays_in_one_domain_and_ends_where_the_user_speaks(task: Trajectory) -> None:
    runs = recut.runs(task)

    for run in runs:
        assert {call.domain for turn in run.turns for call in turn.tool_calls} <= {run.domain, recut.LOCAL}
        assert run.user_message == run.turns[0].user_message
        assert all(turn.user_message is None for turn in run.turns[1:])
    for before, after in itertools.pairwise(runs):
        assert before.domain != after.domain or after.user_message is not None


def test_local_steps_at_the_start_go_with_what_they_lead_to() -> None:
    look = Turn(tool_calls=(make_call("a", "local"),))
    mail = Turn(tool_calls=(make_call("b", "mail"),))

    runs = recut.runs(make_task("t", look, mail, Turn(content="done")))

    assert runs == (recut.Run(domain="mail", user_message=None, turns=(look, mail, Turn(content="done"))),)


def test_stages_have_as_many_steps_each_or_one_more() -> None:
    task = make_task("t", *(Turn(content=str(k)) for k in range(10)))

    assert [len(stage) for stage in recut.stages(task, 4)] == [2, 3, 2, 3]
    assert [len(stage) for stage in recut.stages(task, 99)] == [1] * 10


def test_recorded_prompts_are_not_put_into_other_agents_histories_where_their_text_is_known() -> None:
    prompt = RecordedPrompt(num_tokens=500, block_size=16, block_hashes=(1, 2))
    known = make_task("t", Turn(content="I look", prompt=prompt, tool_calls=(make_call("c", "web"),)))
    unknown = replace(known, user_prompt="")

    assert recut.steps(known)[0].prompt == prompt
    assert recut.segments(known)[0].parts["web"][0].prompt is None
    assert recut.segments(unknown)[0].parts["web"][0].prompt == prompt
