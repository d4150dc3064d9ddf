"""Each format is recognised by its content and read right, from fixtures of our own."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import lzma
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.traces.importers.fixtures import (
    CHAT,
    CLAUDE,
    CLAUDE_SUBAGENT,
    CODEX,
    FIXTURES,
    OPENHANDS,
    OTEL_TREE,
    Fixture,
    lines,
    otlp,
)
from traces.importers import FORMATS, import_files, recognise
from traces.importers.log import ImportLog
from traces.importers.sources import find_sources
from traces.jsonl import TraceError, parse_trajectory_line, trajectory_line
from traces.trajectory import Trajectory


def write(folder: Path, fixture: Fixture) -> Path:
    for name, content in fixture.files.items():
        (folder / name).write_text(content)
    return folder / fixture.name


def zstd_compress(content: bytes) -> bytes:
    packed: bytes = pytest.importorskip("zstandard").ZstdCompressor().compress(content)
    return packed


def read(folder: Path, name: str, log: ImportLog | None = None) -> list[Trajectory]:
    return list(import_files([str(write(folder, FIXTURES[name]))], log or ImportLog()))


def test_every_format_has_a_fixture() -> None:
    assert set(FIXTURES) == set(FORMATS)


@pytest.mark.parametrize("name", FIXTURES)
def test_a_recording_is_recognised_by_its_content(name: str, tmp_path: Path) -> None:
    (source,) = find_sources([str(write(tmp_path, FIXTURES[name]))])

    assert recognise(source) == name


@pytest.mark.parametrize("name", FIXTURES)
def test_a_recording_has_its_tasks_calls_and_tools(name: str, tmp_path: Path) -> None:
    log = ImportLog()
    trajectories = read(tmp_path, name, log)

    fixture = FIXTURES[name]
    assert len(trajectories) == fixture.num_tasks
    assert sum(one.num_calls for one in trajectories) == fixture.num_calls
    assert sum(one.num_tool_calls for one in trajectories) == fixture.num_tool_calls
    assert not log.num_skipped
    for trajectory in trajectories:
        assert parse_trajectory_line(trajectory_line(trajectory), where="") == trajectory


@pytest.mark.parametrize("name", FIXTURES)
def test_a_folder_with_a_recording_is_imported_once(name: str, tmp_path: Path) -> None:
    """Files of subagents and companions lie beside the recording; they are no tasks of their own."""
    write(tmp_path, FIXTURES[name])
    log = ImportLog()

    trajectories = list(import_files([str(tmp_path)], log))

    assert len(trajectories) == FIXTURES[name].num_tasks
    assert sum(one.num_calls for one in trajectories) == FIXTURES[name].num_calls


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, zstd_compress])
@pytest.mark.parametrize("name", ["weka", "csv", "otel", "messages"])
def test_packed_files_are_unpacked_whatever_they_are_called(name: str, pack: object, tmp_path: Path) -> None:
    assert callable(pack)
    content = FIXTURES[name].files[FIXTURES[name].name].encode()
    (tmp_path / "recording").write_bytes(pack(content))

    assert len(list(import_files([str(tmp_path / "recording")], ImportLog()))) == FIXTURES[name].num_tasks


def test_stdin_and_globs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one.jsonl", "two.jsonl"):
        (tmp_path / name).write_text(lines({"messages": CHAT}))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(lines({"messages": CHAT}).encode())))

    assert len(list(import_files([str(tmp_path / "*.jsonl"), "-"], ImportLog()))) == 3


def test_a_format_can_be_insisted_on(tmp_path: Path) -> None:
    path = write(tmp_path, FIXTURES["toolathlon"])

    (trajectory,) = import_files([str(path)], ImportLog(), format_name="messages")

    assert trajectory.source == "messages"
    with pytest.raises(TraceError, match="no format 'nonsense'; there are: "):
        list(import_files([str(path)], ImportLog(), format_name="nonsense"))


def test_what_json_allows_and_text_does_not_is_replaced(tmp_path: Path) -> None:
    """Half a surrogate pair cannot be tokenised or written again."""
    chat = json.dumps({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "HALF"}]})
    (tmp_path / "chat.jsonl").write_text(chat.replace("HALF", "\\ud83d and more") + "\n")

    (trajectory,) = import_files([str(tmp_path / "chat.jsonl")], ImportLog())

    assert trajectory.turns[0].content == "? and more"


def test_weka_spawns_in_the_order_they_started_and_joins(tmp_path: Path) -> None:
    (trajectory,) = read(tmp_path, "weka")
    first, second = trajectory.turns

    assert [(spawn.agent_id, spawn.delay_s) for spawn in first.spawns] == [("early", 0.0), ("late", 0.5)]
    assert second.delay_s == 1.0  # from the join at 9.0 to 10.0, not the think time
    assert second.prompt is not None
    assert (second.prompt.block_hashes, second.prompt.num_kept_blocks) == ((1, 2, 4, 5), 0)  # after a fan-out: whole
    late = first.spawns[1].turns[1].prompt
    assert late is not None
    assert (late.block_hashes, late.num_kept_blocks, late.scope) == ((11, 12), 1, "s1")


def test_otel_siblings_that_overlap_are_a_fan_out(tmp_path: Path) -> None:
    (trajectory,) = read(tmp_path, "otel")
    first, second = trajectory.turns

    assert [(one.agent_id, len(one.turns), one.delay_s) for one in first.spawns] == [
        ("left", 2, 0.5),
        ("right", 1, 0.6),
    ]
    assert (first.num_output_tokens, first.duration_s) == (7, 1.0)
    assert (second.delay_s, second.content) == (1.0, "all done")


def test_otlp_and_flat_spans_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "flat.json").write_text(json.dumps(OTEL_TREE))
    (tmp_path / "otlp.json").write_text(json.dumps(otlp(OTEL_TREE)))

    (flat,) = import_files([str(tmp_path / "flat.json")], ImportLog())
    (as_otlp,) = import_files([str(tmp_path / "otlp.json")], ImportLog())

    assert flat == as_otlp


def test_mooncake_blocks_are_512_tokens_and_times_are_milliseconds(tmp_path: Path) -> None:
    first, second = read(tmp_path, "mooncake")

    assert first.turns[0].prompt is not None
    assert (first.turns[0].prompt.num_tokens, first.turns[0].prompt.block_size) == (1100, 512)
    assert second.started_at == 0.03


def test_bailian_requests_with_the_same_chat_are_one_conversation(tmp_path: Path) -> None:
    rows = [
        {
            "chat_id": 1,
            "parent_chat_id": -1,
            "timestamp": 0.5,
            "input_length": 40,
            "output_length": 4,
            "hash_ids": [1, 2, 3],
        },
        {"chat_id": 2, "parent_chat_id": -1, "timestamp": 1.0, "input_length": 16, "output_length": 4, "hash_ids": [7]},
        {
            "chat_id": 3,
            "parent_chat_id": 1,
            "timestamp": 9.5,
            "input_length": 64,
            "output_length": 4,
            "hash_ids": [1, 2, 4, 5],
        },
        {
            "chat_id": 4,
            "parent_chat_id": 1,
            "timestamp": 9.9,
            "input_length": 48,
            "output_length": 4,
            "hash_ids": [1, 2, 6],
        },
    ]
    (tmp_path / "bailian.jsonl").write_text(lines(*rows))

    trajectories = list(import_files([str(tmp_path / "bailian.jsonl")], ImportLog()))

    assert sorted(len(one.turns) for one in trajectories) == [1, 1, 2]
    two = next(one for one in trajectories if len(one.turns) == 2)
    assert two.turns[1].prompt is not None
    assert (two.turns[1].prompt.block_size, two.turns[1].prompt.num_kept_blocks) == (16, 2)
    assert two.turns[1].started_at == 9.0


def test_lmcache_calls_are_put_in_order_of_time(tmp_path: Path) -> None:
    (trajectory,) = read(tmp_path, "lmcache")

    assert [turn.content for turn in trajectory.turns] == ["b", "d"]
    assert [turn.started_at for turn in trajectory.turns] == [0.0, 1.0]


def test_a_history_that_was_rewritten_is_filler_that_shares_the_same_blocks(tmp_path: Path) -> None:
    """The second prompt repeats 40 words of the first and then goes another way."""
    shared = " ".join(["word"] * 40)
    records = [
        {"timestamp": 1760000001000000, "input": shared + " and left", "output": "b", "session_id": "s"},
        {"timestamp": 1760000002000000, "input": shared + " and right", "output": "d", "session_id": "s"},
    ]
    (tmp_path / "lmcache.jsonl").write_text(lines(*records))

    (trajectory,) = import_files([str(tmp_path / "lmcache.jsonl")], ImportLog())

    second = trajectory.turns[1].prompt
    assert second is not None
    assert second.num_kept_blocks == 2  # of 16 tokens each


def test_agentperf_keeps_token_counts_and_tool_times(tmp_path: Path) -> None:
    (trajectory,) = read(tmp_path, "agentperf")
    first, second = trajectory.turns

    assert (first.num_output_tokens, first.duration_s) == (11, 0.9)
    assert first.tool_calls[0].latency_s == 0.25
    assert second.delay_s == 0.25
    assert [tool.name for tool in trajectory.tools] == ["bash"]


def test_a_reminder_that_is_dropped_again_does_not_hide_the_tools(tmp_path: Path) -> None:
    reminder = {"role": "user", "content": "Remember the limit."}
    records = [
        {"model": "m", "messages": [*CHAT[:2], reminder], "metadata": {"session_id": "s", "request_index": 0}},
        {"model": "m", "messages": [*CHAT[:4], reminder], "metadata": {"session_id": "s", "request_index": 1}},
    ]
    (tmp_path / "requests.jsonl").write_text(lines(*records))

    (trajectory,) = import_files([str(tmp_path / "requests.jsonl")], ImportLog())

    assert all(turn.prompt is not None for turn in trajectory.turns)
    assert [(call.name, call.result) for call in trajectory.turns[0].tool_calls] == [("bash", "a b c")]


def test_claude_code_subagents_hang_on_the_call_that_started_them(tmp_path: Path) -> None:
    (trajectory,) = read(tmp_path, "claude-code")
    first, second = trajectory.turns

    assert first.content == "I ask another."
    assert (first.num_output_tokens, first.started_at, first.duration_s) == (40, 0.0, 2.5)
    (spawn,) = first.spawns
    assert (spawn.agent_id, spawn.user_prompt, len(spawn.turns), spawn.delay_s) == ("x1", "count", 2, 0.5)
    assert spawn.turns[0].tool_calls[0].domain == "terminal"
    assert second.delay_s == 0.0


def test_codex_usage_belongs_to_the_call_before_it(tmp_path: Path) -> None:
    (trajectory,) = read(tmp_path, "codex")

    assert trajectory.system_prompt == "You are an agent."
    assert [turn.num_output_tokens for turn in trajectory.turns] == [33, None]
    assert trajectory.turns[0].tool_calls[0].latency_s == 1.0


def test_atif_subagents_are_followed_to_their_files(tmp_path: Path) -> None:
    (trajectory,) = read(tmp_path, "atif")

    assert [spawn.agent_id for spawn in trajectory.turns[0].spawns] == ["sub"]
    assert trajectory.turns[0].num_output_tokens == 12
    assert trajectory.turns[1].delay_s == 0.0


def test_tau2_leaves_out_the_greeting_and_what_the_user_s_tools_did(tmp_path: Path) -> None:
    (trajectory,) = read(tmp_path, "tau2-bench")
    first, second = trajectory.turns

    assert (trajectory.system_prompt, trajectory.user_prompt) == ("Be kind.", "Where is it?")
    assert (first.tool_calls[0].domain, first.tool_calls[0].arguments) == ("retail", '{"order":1}')
    assert (first.started_at, first.duration_s, first.tool_calls[0].latency_s) == (2.5, 1.5, 0.5)
    assert second.delay_s == 1.0


def test_openhands_times_lie_between_the_events(tmp_path: Path) -> None:
    (trajectory,) = read(tmp_path, "openhands")
    first, second = trajectory.turns

    assert (first.started_at, first.duration_s, first.num_output_tokens) == (1.0, 2.0, 21)
    assert first.tool_calls[0].latency_s == 0.5
    assert (second.content, second.delay_s) == ("Three.", 0.5)


def test_aiperf_spawns_are_joined_by_the_next_turn(tmp_path: Path) -> None:
    log = ImportLog()
    (trajectory,) = read(tmp_path, "aiperf-dag", log)

    assert [spawn.agent_id for spawn in trajectory.turns[0].spawns] == ["child", "other"]
    assert trajectory.turns[0].spawns[0].delay_s == 0.02
    assert trajectory.turns[1].delay_s == 1.5
    assert log.num_by_note["sessions that are joined later than at the next turn: joined there"] == 1


def test_tracelab_prompts_share_what_was_found_cached(tmp_path: Path) -> None:
    (trajectory,) = read(tmp_path, "tracelab")
    second = trajectory.turns[1].prompt

    assert second is not None
    assert (second.num_tokens, second.num_kept_blocks * second.block_size) == (1500, 896)  # of 900, in whole blocks


def test_reasoning_is_generated_but_not_kept(tmp_path: Path) -> None:
    reply = {"role": "assistant", "content": "yes", "reasoning_content": "let me think about it"}
    (tmp_path / "chat.jsonl").write_text(lines({"messages": [{"role": "user", "content": "?"}, reply]}))

    (trajectory,) = import_files([str(tmp_path / "chat.jsonl")], ImportLog())

    assert trajectory.turns[0].content == "yes"
    assert trajectory.turns[0].num_output_tokens == 2 + 5


def test_older_claude_code_sessions_name_no_agent(tmp_path: Path) -> None:
    """The subagent is the one in the same file that began with what the call asked."""
    records = [{key: value for key, value in one.items() if key != "toolUseResult"} for one in CLAUDE]
    chain = [{key: value for key, value in one.items() if key != "agentId"} for one in CLAUDE_SUBAGENT]
    for before, after in itertools.pairwise(chain):
        after["parentUuid"] = before["uuid"]
    (tmp_path / "s1.jsonl").write_text(lines(*records, *chain))

    (trajectory,) = import_files([str(tmp_path / "s1.jsonl")], ImportLog())

    assert [len(spawn.turns) for spawn in trajectory.turns[0].spawns] == [2]
    assert len(trajectory.turns) == 2


def test_older_codex_sessions_have_no_payloads(tmp_path: Path) -> None:
    items = [one["payload"] for one in CODEX if one["type"] == "response_item"]
    first = {"id": "s1", "timestamp": "2026-01-01T00:00:00Z", "instructions": "You are an agent."}
    (tmp_path / "rollout.jsonl").write_text(lines(first, *items))

    (trajectory,) = import_files([str(tmp_path / "rollout.jsonl")], ImportLog())

    assert (trajectory.source, trajectory.system_prompt, len(trajectory.turns)) == ("codex", "You are an agent.", 2)


def test_a_message_a_line_is_one_conversation(tmp_path: Path) -> None:
    (tmp_path / "chat.jsonl").write_text(lines(*CHAT))

    (trajectory,) = import_files([str(tmp_path / "chat.jsonl")], ImportLog())

    assert (len(trajectory.turns), trajectory.system_prompt) == (2, "You are an agent.")


def test_sharegpt_names_its_speakers_otherwise(tmp_path: Path) -> None:
    row = {"id": "x", "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}
    (tmp_path / "sharegpt.json").write_text(json.dumps([row]))

    (trajectory,) = import_files([str(tmp_path / "sharegpt.json")], ImportLog())

    assert (trajectory.user_prompt, trajectory.turns[0].content) == ("Hi", "Hello")


def test_openhands_events_may_be_files_of_a_folder(tmp_path: Path) -> None:
    for number, event in enumerate(OPENHANDS + OPENHANDS[3:4] * 8):
        (tmp_path / f"{number}.json").write_text(json.dumps(event))

    (trajectory,) = import_files([str(tmp_path)], ImportLog())

    assert (trajectory.num_calls, trajectory.turns[1].content) == (2, "Three.")


def test_swe_agent_steps_with_queries_have_exactly_those_prompts(tmp_path: Path) -> None:
    """A history processor cut the observation, so the second prompt did not grow from the first."""
    elided = [*CHAT[:3], {**CHAT[3], "content": "Old output omitted."}, {"role": "user", "content": "Go on."}]
    steps = [{"response": "I look.", "query": CHAT[:2]}, {"response": "Three.", "query": elided}]
    run = {"environment": "e", "trajectory": steps, "history": [{"role": "system", "content": "", "agent": "main"}]}
    (tmp_path / "run.traj").write_text(json.dumps(run))

    (trajectory,) = import_files([str(tmp_path / "run.traj")], ImportLog())

    assert [turn.content for turn in trajectory.turns] == ["I look.", "Three."]


def test_two_instrumentations_of_one_call_are_one_call(tmp_path: Path) -> None:
    doubled = {"spans": [*OTEL_TREE["spans"], {**OTEL_TREE["spans"][3], "span_id": "inner", "parent_span_id": "a1"}]}
    (tmp_path / "trace.json").write_text(json.dumps(doubled))

    (trajectory,) = import_files([str(tmp_path / "trace.json")], ImportLog())

    assert trajectory.num_calls == 5


def test_openinference_and_numbered_attributes_are_read(tmp_path: Path) -> None:
    attributes = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "m",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "Count.",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "",
        "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c1",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "bash",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": "{}",
        "llm.token_count.completion": 9,
    }
    span = {**OTEL_TREE["spans"][1], "attributes": attributes, "parent_span_id": None}
    numbered = {
        **span,
        "span_id": "second",
        "start_time": "2026-01-01T00:00:03Z",
        "end_time": "2026-01-01T00:00:04Z",
        "attributes": {
            "gen_ai.operation.name": "chat",
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": "Count.",
            "gen_ai.completion.0.content": "Three.",
            "gen_ai.usage.completion_tokens": 4,
        },
    }
    (tmp_path / "trace.json").write_text(json.dumps({"spans": [span, numbered]}))

    (trajectory,) = import_files([str(tmp_path / "trace.json")], ImportLog())

    first, second = trajectory.turns
    assert ([call.name for call in first.tool_calls], first.num_output_tokens) == (["bash"], 9)
    assert (second.content, second.num_output_tokens) == ("Three.", 4)
