"""What a format can hold comes back from it: import(export(x)) against x, for trajectories of all shapes."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mockserver.tokens import TOKEN_BYTES, num_tokens
from tests.conftest import needs_shared
from traces import synth
from traces.domains import domain_of
from traces.exporters import EXPORTERS, export_file
from traces.history import agent_prompts
from traces.importers import FORMATS, import_files
from traces.importers.log import ImportLog
from traces.jsonl import TraceError
from traces.prompt_size import num_output_tokens, react_calls
from traces.trajectory import RecordedPrompt, Subagent, ToolCall, ToolSchema, Trajectory, Turn

Agent = TypeVar("Agent", Trajectory, Subagent)
MANY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30)
seconds = st.integers(0, 5_000_000).map(lambda micro: micro / 1_000_000)
counts = st.integers(1, 300)
tool_names = st.sampled_from(["bash", "read_file", "web_search", "mcp__github__get", "finish"])


@st.composite
def tool_calls(draw: st.DrawFn) -> ToolCall:
    name = draw(tool_names)
    arguments = draw(st.dictionaries(words, st.one_of(words, st.integers(-99, 99)), max_size=3))
    return ToolCall(
        call_id="",
        name=name,
        domain=domain_of(name),
        arguments=orjson.dumps(arguments).decode(),
        result=draw(words),
        latency_s=draw(seconds),
    )


@st.composite
def text_turns(draw: st.DrawFn, depth: int) -> tuple[Turn, ...]:
    turns = []
    for index in range(draw(st.integers(1, 3))):
        calls = draw(st.lists(tool_calls(), max_size=2))
        spawns = draw(st.lists(subagents(depth - 1), max_size=2)) if depth else []
        turn = Turn(
            content=draw(st.one_of(st.just(""), words)),
            tool_calls=tuple(calls),
            user_message=draw(st.one_of(st.none(), words)) if index else None,
            num_output_tokens=draw(counts),
            delay_s=draw(seconds) if index else None,
            duration_s=draw(seconds.map(lambda second: second + 0.001)),
            spawns=tuple(spawns),
        )
        turns.append(turn)
    return tuple(turns)


@st.composite
def subagents(draw: st.DrawFn, depth: int) -> Subagent:
    return Subagent(
        agent_id="",
        user_prompt=draw(words),
        system_prompt=draw(st.one_of(st.just(""), words)),
        turns=draw(text_turns(depth)),
        tools=draw(schemas()),
        delay_s=draw(seconds),
    )


@st.composite
def schemas(draw: st.DrawFn) -> tuple[ToolSchema, ...]:
    names = draw(st.lists(tool_names, unique=True, max_size=2))
    return tuple(
        ToolSchema(
            name=name,
            domain=domain_of(name),
            text=orjson.dumps({"type": "function", "function": {"name": name, "parameters": {}}}).decode(),
        )
        for name in names
    )


@st.composite
def text_trajectories(draw: st.DrawFn) -> Trajectory:
    trajectory = Trajectory(
        task_id="task",
        user_prompt=draw(words),
        system_prompt=draw(st.one_of(st.just(""), words)),
        tools=draw(schemas()),
        turns=draw(text_turns(depth=2)),
        model="m",
    )
    return replace(trajectory, turns=numbered(trajectory.turns, []))


def numbered(turns: tuple[Turn, ...], used: list[int]) -> tuple[Turn, ...]:
    """``turns`` whose agents and tool calls have names of their own."""

    def name(prefix: str) -> str:
        used.append(0)
        return f"{prefix}{len(used)}"

    return tuple(
        replace(
            turn,
            tool_calls=tuple(replace(call, call_id=name("call-")) for call in turn.tool_calls),
            spawns=tuple(
                replace(spawn, agent_id=name("agent-"), turns=numbered(spawn.turns, used)) for spawn in turn.spawns
            ),
        )
        for turn in turns
    )


@st.composite
def recorded_turns(draw: st.DrawFn, depth: int) -> tuple[Turn, ...]:
    turns = []
    hashes: tuple[int, ...] = ()
    for index in range(draw(st.integers(1, 4))):
        kept = draw(st.integers(0, len(hashes)))
        new = tuple(draw(st.lists(st.integers(0, 50), max_size=5)))
        spawns = draw(st.lists(recorded_subagents(depth - 1), max_size=3)) if depth else []
        hashes = hashes[:kept] + new
        prompt = RecordedPrompt(
            num_tokens=len(hashes) * 64 + draw(st.integers(1, 63)),
            block_size=64,
            block_hashes=new,
            num_kept_blocks=kept,
            scope="s",
        )
        turns.append(
            Turn(
                prompt=prompt,
                num_output_tokens=draw(counts),
                delay_s=draw(seconds) if index else 0.0,
                duration_s=draw(seconds),
                spawns=tuple(spawns),
            )
        )
        if spawns:
            hashes = ()
    return tuple(turns)


@st.composite
def recorded_subagents(draw: st.DrawFn, depth: int) -> Subagent:
    return Subagent(
        agent_id="",
        user_prompt="",
        turns=draw(recorded_turns(depth)),
        delay_s=draw(seconds),
        is_background=draw(st.booleans()),
    )


@st.composite
def recorded_trajectories(draw: st.DrawFn) -> Trajectory:
    turns = numbered(draw(recorded_turns(depth=1)), [])
    return Trajectory(task_id="task", turns=turns, model="m", started_at=draw(seconds))


def through(format_name: str, *trajectories: Trajectory) -> list[Trajectory]:
    """``trajectories``, exported and imported again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "exported"
        assert export_file(path, trajectories, format_name, ImportLog()) == len(trajectories)
        return list(import_files([str(path)], ImportLog(strict=True)))


def text_of(agent: Trajectory | Subagent, *, with_delays: bool = False, with_latencies: bool = False) -> Any:
    """What an agent saw and said, as far as formats of text hold it."""
    return {
        "system": agent.system_prompt,
        "user": agent.user_prompt,
        "tools": [tool.text for tool in agent.tools],
        "turns": [
            {
                "content": turn.content,
                "user": turn.user_message,
                "output": turn.num_output_tokens,
                "delay": round(turn.delay_s or 0.0, 3) if with_delays else None,
                "calls": [
                    (call.call_id, call.name, call.domain, json.loads(call.arguments), call.result)
                    + ((round(call.latency_s or 0.0, 5),) if with_latencies else ())
                    for call in turn.tool_calls
                ],
                "spawns": [
                    (spawn.agent_id, text_of(spawn, with_delays=with_delays, with_latencies=with_latencies))
                    for spawn in turn.spawns
                ],
            }
            for turn in agent.turns
        ],
    }


@given(text_trajectories())
@MANY
def test_our_own_format_keeps_everything(trajectory: Trajectory) -> None:
    assert through("replayrig", trajectory) == [trajectory]


@given(recorded_trajectories())
@MANY
def test_our_own_format_keeps_recorded_prompts(trajectory: Trajectory) -> None:
    assert through("replayrig", trajectory) == [trajectory]


@given(text_trajectories())
@MANY
def test_aiperf_dag_keeps_text_lengths_delays_and_fan_outs(trajectory: Trajectory) -> None:
    (back,) = through("aiperf-dag", trajectory)

    expected, got = text_of(without_last_results(trajectory), with_delays=True), text_of(back, with_delays=True)
    assert json.dumps(got).replace("task/agent-", "agent-") == json.dumps(expected)


def without_last_results(agent: Agent) -> Agent:
    """What tools return after an agent's last answer is in no prompt, so a format of prompts cannot hold it."""
    turns: tuple[Turn, ...] = tuple(
        replace(turn, spawns=tuple(without_last_results(spawn) for spawn in turn.spawns)) for turn in agent.turns
    )
    calls = tuple(replace(call, result="") for call in turns[-1].tool_calls)
    return replace(agent, turns=(*turns[:-1], replace(turns[-1], tool_calls=calls)))


@given(text_trajectories())
@MANY
def test_atif_keeps_text_lengths_and_fan_outs(trajectory: Trajectory) -> None:
    (back,) = through("atif", trajectory)

    assert text_of(back) == text_of(trajectory)
    assert back.model == trajectory.model


def without_order(described: Any) -> Any:
    """Spans have fan-outs in the order in which they started, recordings in that in which they were asked for."""
    for turn in described["turns"]:
        turn["spawns"] = sorted(
            ((name, without_order(inner)) for name, inner in turn["spawns"]), key=lambda one: one[0]
        )
    return described


@given(text_trajectories())
@MANY
def test_otel_keeps_text_lengths_latencies_and_fan_outs(trajectory: Trajectory) -> None:
    (back,) = through("otel", trajectory)

    expected = without_order(text_of(trajectory, with_latencies=True))
    assert without_order(text_of(back, with_latencies=True)) == expected
    for before, after in zip(trajectory.turns, back.turns, strict=True):
        assert after.duration_s == pytest.approx(before.duration_s, abs=2e-6)
        delays = {spawn.agent_id: spawn.delay_s for spawn in after.spawns}
        assert delays == pytest.approx({spawn.agent_id: spawn.delay_s for spawn in before.spawns}, abs=2e-6)


def sharing(agent: Trajectory | Subagent, block_size: int) -> list[tuple[int, int, int]]:
    """(prompt tokens, output tokens, whole blocks that the prompt has from the one before) of each call."""
    calls = []
    before: list[Any] = []
    recorded: tuple[int, ...] = ()
    for turn, prompt in agent_prompts(agent):
        if prompt is None:
            assert turn.prompt is not None
            recorded = turn.prompt.hashes_after(recorded)
            length = turn.prompt.num_tokens
            blocks: list[Any] = list(recorded)
            recorded = () if turn.spawns else recorded
        else:
            size = block_size * TOKEN_BYTES
            length = num_tokens(prompt)
            blocks = [prompt[start : start + size] for start in range(0, len(prompt), size)]
        num_same = 0
        while num_same < min(len(blocks), len(before)) and blocks[num_same] == before[num_same]:
            num_same += 1
        calls.append((length, num_output_tokens(turn), num_same))
        before = blocks
    return calls


def tree(agent: Trajectory | Subagent, block_size: int, path: str = "") -> dict[str, Any]:
    """Each agent's calls and times, by its name."""
    found: dict[str, Any] = {
        path: (
            sharing(agent, block_size),
            [round(turn.delay_s or 0.0, 4) for turn in agent.turns],
            [round(turn.duration_s or 0.0, 4) for turn in agent.turns],
        )
    }
    for index, turn in enumerate(agent.turns):
        for spawn in turn.spawns:
            found[f"{path}/{index}/{spawn.agent_id}"] = (round(spawn.delay_s, 4), spawn.is_background)
            found |= tree(spawn, block_size, f"{path}/{index}/{spawn.agent_id}!")
    return found


@given(recorded_trajectories())
@MANY
def test_weka_keeps_lengths_shared_blocks_times_and_fan_outs(trajectory: Trajectory) -> None:
    (back,) = through("weka", trajectory)

    assert tree(back, 64) == tree(trajectory, 64)


@given(text_trajectories())
@MANY
def test_weka_keeps_of_text_what_its_blocks_say(trajectory: Trajectory) -> None:
    (back,) = through("weka", trajectory)

    assert sharing(back, 64) == sharing(trajectory, 64)


@given(recorded_trajectories())
@MANY
def test_mooncake_keeps_lengths_shared_blocks_and_delays(trajectory: Trajectory) -> None:
    """Subagents' calls follow the call that spawned them, so only tasks without any keep their shape."""
    flat = replace(trajectory, turns=tuple(replace(turn, spawns=()) for turn in trajectory.turns))
    back, _ = through("mooncake", flat, replace(flat, task_id="another"))

    assert back.task_id == flat.task_id
    assert back.started_at == pytest.approx(flat.started_at, abs=0.001)
    assert [turn.delay_s for turn in back.turns] == pytest.approx([turn.delay_s for turn in flat.turns], abs=1e-5)
    if all(turn.prompt is not None and turn.prompt.num_tokens >= 64 for turn in flat.turns):
        assert sharing(back, 64) == sharing(flat, 64)


def test_mooncake_keeps_every_call_of_a_fan_out() -> None:
    child = Subagent(agent_id="a", user_prompt="help", turns=(Turn(content="helped"),))
    trajectory = Trajectory(
        task_id="t", user_prompt="go", turns=(Turn(content="x", spawns=(child,)), Turn(content="y"))
    )
    log = ImportLog()

    lines = list(EXPORTERS["mooncake"](log)(trajectory))

    assert len(lines) == 3
    assert log.num_by_note == {"subagents: their calls follow the call that spawned them": 1}


def test_prompts_of_the_embedded_workload_have_the_same_lengths_everywhere() -> None:
    """Text, mooncake and weka: the same numbers of tokens, and histories as long as the template makes them."""
    tasks = list(synth.generate(num_tasks=4))
    expected = [[call.num_prompt_tokens for call in react_calls(task)] for task in tasks]

    for format_name in ("mooncake", "weka", "aiperf-dag", "otel", "atif"):
        back = through(format_name, *tasks)
        assert [[call.num_prompt_tokens for call in react_calls(task)] for task in back] == expected


@pytest.mark.parametrize("format_name", ["aiperf-dag", "atif", "otel"])
def test_formats_of_text_refuse_hashes_in_one_line(format_name: str, tmp_path: Path) -> None:
    prompt = RecordedPrompt(num_tokens=10, block_size=16)
    trajectory = Trajectory(task_id="t", turns=(Turn(prompt=prompt, num_output_tokens=1),))

    with pytest.raises(TraceError, match="this recording has only hashes of its prompts: use mooncake or weka"):
        export_file(tmp_path / "out", [trajectory], format_name, ImportLog())


def test_blocks_are_joined_to_larger_ones_but_not_cut() -> None:
    def task(block_size: int) -> Trajectory:
        prompt = RecordedPrompt(num_tokens=128, block_size=block_size, block_hashes=(1, 2))
        return Trajectory(task_id="t", turns=(Turn(prompt=prompt, num_output_tokens=1),))

    export = EXPORTERS["mooncake"](ImportLog())
    assert len(orjson.loads(next(export(task(64))))["hash_ids"]) == 2
    assert len(orjson.loads(next(export(task(32))))["hash_ids"]) == 1
    with pytest.raises(TraceError, match="blocks of 48 tokens do not make up blocks of 64"):
        next(export(task(48)))


def test_every_exported_format_can_be_imported() -> None:
    assert set(EXPORTERS) <= set(FORMATS)


@needs_shared
def test_real_recordings_survive_every_format(shared_dir: Path) -> None:
    data = shared_dir / "data"
    tasks = [
        next(iter(import_files([str(data / name)], ImportLog())))
        for name in (
            "toolathlon/claude-4.5-sonnet.jsonl.xz",
            "tau-bench/gpt-4o-airline.json.xz",
            "openhands/openhands_0.58_events.json",
        )
    ]
    for format_name in ("aiperf-dag", "otel", "atif", "weka", "mooncake"):
        back = through(format_name, *tasks)
        assert [len(task.turns) for task in back] == [len(task.turns) for task in tasks]
        if format_name == "atif":  # has arguments as objects, so not how the model had spaced them
            continue
        assert [one.num_prompt_tokens for task in back for one in react_calls(task)] == [
            one.num_prompt_tokens for task in tasks for one in react_calls(task)
        ]
