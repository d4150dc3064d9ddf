"""Every real recording imports, with as many tasks and calls as a few lines over the raw JSON count."""

from __future__ import annotations

import csv
import io
import json
import lzma
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.conftest import SHARED, needs_shared
from traces.importers import import_files
from traces.importers.log import ImportLog
from traces.trajectory import Trajectory, Turn

pytestmark = needs_shared
Counts = tuple[int, int]
"""(tasks, model calls)"""


def text_of(path: Path) -> str:
    return lzma.decompress(path.read_bytes()).decode() if path.suffix == ".xz" else path.read_text()


def lines_of(path: Path) -> list[Any]:
    return [orjson.loads(line) for line in text_of(path).split("\n") if line.strip()]


def blocks_of(path: Path) -> list[Any]:
    """Records printed over several lines, with separators between."""
    text = "\n".join("\x00" if line.startswith(("=====", "#")) else line for line in text_of(path).split("\n"))
    return [json.loads(block) for block in text.split("\x00") if block.strip()]


def num_assistant(messages: list[Any]) -> int:
    return sum(message["role"] == "assistant" for message in messages)


def weka_calls(requests: list[Any]) -> int:
    return sum(weka_calls(one["requests"]) if one["type"] == "subagent" else 1 for one in requests)


def count_requests(path: Path) -> Counts:
    """A file with one session, one call a line."""
    return 1, len(lines_of(path))


def count_each_line(path: Path) -> Counts:
    return len(lines_of(path)), len(lines_of(path))


def count_csv(path: Path) -> Counts:
    rows = sum(1 for _ in csv.reader(io.StringIO(text_of(path)))) - 1
    return rows, rows


def count_tau(path: Path) -> Counts:
    runs = json.loads(text_of(path))
    return len(runs), sum(num_assistant(run["traj"]) for run in runs)


def count_tau2(path: Path) -> Counts:
    simulations = json.loads(text_of(path)).get("simulations", [])
    # The agent's greeting, before the user has said anything, is no model call.
    return len(simulations), sum(num_assistant(one["messages"]) - 1 for one in simulations)


def count_swe(path: Path) -> Counts:
    run = json.loads(text_of(path))
    return 1, max(len(run.get("trajectory", [])), num_assistant(run["history"]))


def count_mini_swe(path: Path) -> Counts:
    run = json.loads(text_of(path))
    return 1, num_assistant(run if isinstance(run, list) else run["messages"])


def count_openhands(path: Path) -> Counts:
    runs = [row["history"] for row in lines_of(path)] if "jsonl" in path.name else [json.loads(text_of(path))]
    answers = 0
    for events in runs:
        acts = [e for e in events if e["source"] == "agent" and e.get("action") not in (None, "system")]
        with_metadata = [e["tool_call_metadata"]["model_response"]["id"] for e in acts if e.get("tool_call_metadata")]
        answers += len(set(with_metadata)) + sum(not e.get("tool_call_metadata") for e in acts)
    return len(runs), answers


def count_who_and_when(path: Path) -> Counts:
    chats = lines_of(path)
    no_models = {"human", "Computer_terminal", "ComputerTerminal"}
    calls = [m for chat in chats for m in chat["history"][1:] if (m.get("name") or m["role"]) not in no_models]
    return len(chats), len(calls)


def count_exgentic(path: Path) -> Counts:
    actions = [event for event in lines_of(path) if event["event"] == "action"]
    return 1, len({action["step"] for action in actions})


def count_otel(path: Path) -> Counts:
    trace = json.loads(text_of(path))
    spans = trace["spans"]
    traces = {span.get("trace_id") for span in spans}
    calls = sum("gen_ai.operation.name" in span.get("attributes", {}) for span in spans)
    return len(traces), calls or trace["metadata"]["collapsed_llm_spans"]


def count_tracelab_rounds(path: Path) -> Counts:
    rounds = lines_of(path) if path.suffix == ".jsonl" else blocks_of(path)
    return len({one["session_id"] for one in rounds}), len(rounds)


def count_claude(path: Path) -> Counts:
    if path.name == "simonw_sample_session.json":
        records = json.loads(text_of(path))["loglines"]
    else:
        records = lines_of(path) if path.suffix == ".jsonl" else blocks_of(path)
    answers = [one["message"].get("id") or index for index, one in enumerate(records) if one["type"] == "assistant"]
    return 1, len(set(answers))


def count_codex(path: Path) -> Counts:
    """An answer is a run of messages and calls of the model between outputs of tools and words of the user."""
    kinds = []
    for record in blocks_of(path):
        item = record["payload"]
        if record["type"] == "event_msg" and item["type"] == "token_count":
            kinds.append("border")
        elif record["type"] == "response_item" and item["type"] != "reasoning":
            of_model = item.get("role") == "assistant" or item["type"] in ("function_call", "custom_tool_call")
            kinds.append("model" if of_model else "border")
    return 1, sum(kind == "model" for kind, _ in groupby(kinds))


def count_atif(path: Path) -> Counts:
    record = json.loads(text_of(path))
    if isinstance(record, list):
        return 1, len(record)
    if "steps" not in record:
        return 1, sum(message["type"] == "gemini" for message in record["messages"])
    if "parent_session_id" in record["agent"].get("extra", {}):
        return 0, _atif_answers(record)  # a subagent: its calls are its parent's
    return 1, _atif_answers(record)


def _atif_answers(record: Any) -> int:
    return sum(step["source"] == "agent" and not step.get("is_copied_context") for step in record["steps"])


def count_context_profiler(path: Path) -> Counts:
    if "jsonl" in path.name:
        return count_requests(path)
    record = json.loads(text_of(path))
    steps = record.get("llm_steps") or [row for row in record["trajectory"] if row["role"] == "ai"]
    return 1, len(steps)


def count_toolathlon(path: Path) -> Counts:
    if path.suffix == ".json":
        return 1, num_assistant(json.loads(json.loads(text_of(path))["messages"]))
    rows = lines_of(path)
    return len(rows), sum(num_assistant(row["messages"]) for row in rows)


def nothing(path: Path) -> Counts:
    return 0, 0


FOLDERS: list[tuple[str, str, Callable[[Path], Counts]]] = [
    ("agentperf", "*/*.xz", count_requests),
    ("atif-harbor", "**/*.json", count_atif),
    ("azure-llm-2023", "*.xz", count_csv),
    ("claude-code", "*.json*", count_claude),
    ("context-profiler", "*.xz", count_context_profiler),
    ("exgentic-recordings", "*/trajectory.jsonl.xz", count_exgentic),
    ("lmcache-agent-trace", "*/*.xz", count_requests),
    ("mini-swe-agent", "*.json", count_mini_swe),
    ("mooncake", "*.xz", count_each_line),
    ("openhands", "*", count_openhands),
    ("otel", "*/*.json", count_otel),
    ("swe-agent", "*.xz", count_swe),
    ("tau-bench", "*.xz", count_tau),
    ("tau2-bench", "*.xz", count_tau2),
    ("toolathlon", "[ch]*", count_toolathlon),
    ("toolathlon", "deepseek*", count_toolathlon),
    ("tracelab", "*_round_trace*", count_tracelab_rounds),
    ("tracelab", "claude_trace.json", count_claude),
    ("tracelab", "codex_trace.json", count_codex),
    ("who-and-when", "*.xz", count_who_and_when),
]
NOT_RECORDINGS = {
    "README.md",
    "manifest.json",
    "manifest-arm64.json",
    "manifest-x86_64.json",
    "recording.json.xz",
    "results.json.xz",
    "session.json.xz",
    "task_configs.jsonl",
    "claude_explanation.md",
    "codex_explanation.md",
    "derived_README.md",
    "sanitized_README.md",
}


@pytest.mark.parametrize(("folder", "pattern", "count"), FOLDERS, ids=[f"{one[0]}/{one[1]}" for one in FOLDERS])
def test_tasks_and_calls_are_those_in_the_raw_files(
    shared_dir: Path, folder: str, pattern: str, count: Callable[[Path], Counts]
) -> None:
    paths = sorted(path for path in (shared_dir / "data" / folder).glob(pattern) if path.is_file())
    assert paths
    expected = [count(path) for path in paths]
    log = ImportLog()

    trajectories = list(import_files([str(path) for path in paths], log))

    assert len(trajectories) == sum(tasks for tasks, _ in expected)
    assert sum(one.num_calls for one in trajectories) == sum(calls for _, calls in expected)
    assert len({one.task_id for one in trajectories}) == len(trajectories)
    skipped = set(log.num_skipped_by_reason)
    assert skipped <= {"a full-duplex voice simulation: audio ticks, no model calls in it"}


def test_every_file_is_either_counted_above_or_no_recording(shared_dir: Path) -> None:
    data = shared_dir / "data"
    counted = {path for folder, pattern, _ in FOLDERS for path in (data / folder).glob(pattern)}
    counted.add(data / "weka" / "traces.jsonl.xz")

    rest = {path.name for path in data.rglob("*") if path.is_file() and path not in counted}

    assert rest <= NOT_RECORDINGS


def test_a_whole_folder_is_one_import(shared_dir: Path) -> None:
    log = ImportLog()

    trajectories = list(import_files([str(shared_dir / "data" / "exgentic-recordings")], log))

    assert [len(one.tools) for one in trajectories] == [3, 2, 15]
    assert log.num_by_note["files in the folder that are in no known format: left out"] == 9


@pytest.fixture(scope="module")
def weka() -> list[tuple[Any, Trajectory]]:
    """Each raw session with what became of it; of the raw ones without subagents only what is small."""
    assert SHARED is not None
    path = SHARED / "data" / "weka" / "traces.jsonl.xz"
    pairs = []
    with lzma.open(path) as lines:
        for line, trajectory in zip(lines, import_files([str(path)], ImportLog(strict=True)), strict=True):
            session = orjson.loads(line)
            if not any(one["type"] == "subagent" for one in session["requests"]):
                session = {"id": session["id"], "num_calls": len(session["requests"])}
            pairs.append((session, trajectory))
    return pairs


@pytest.fixture(scope="module")
def weka_with_subagents(weka: list[tuple[Any, Trajectory]]) -> list[tuple[Any, Trajectory]]:
    return [(session, trajectory) for session, trajectory in weka if "requests" in session]


def test_weka_sessions_have_all_their_calls(weka: list[tuple[Any, Trajectory]]) -> None:
    for session, trajectory in weka:
        expected = weka_calls(session["requests"]) if "requests" in session else session["num_calls"]
        assert (trajectory.task_id, trajectory.num_calls) == (session["id"], expected)
    assert sum(trajectory.num_calls for _, trajectory in weka) == 38_193
    assert len(weka) == 532


def all_turns(turns: tuple[Turn, ...]) -> Iterator[Turn]:
    for turn in turns:
        yield turn
        for spawn in turn.spawns:
            yield from all_turns(spawn.turns)


def test_weka_fan_outs_have_the_recorded_sizes(weka_with_subagents: list[tuple[Any, Trajectory]]) -> None:
    sizes = [len(turn.spawns) for _, one in weka_with_subagents for turn in one.turns if turn.spawns]

    assert len(weka_with_subagents) == 12
    assert [sizes.count(size) for size in (1, 2, 3)] == [18, 6, 5]
    assert sum(sizes) == 45


def test_weka_subagents_are_spawned_after_the_answer_before_and_joined_by_the_next_call(
    weka_with_subagents: list[tuple[Any, Trajectory]],
) -> None:
    for session, trajectory in weka_with_subagents:
        raw_by_id = {one["agent_id"]: one for one in session["requests"] if one["type"] == "subagent"}
        for turn, joined in zip(trajectory.turns, (*trajectory.turns[1:], None), strict=True):
            assert turn.started_at is not None
            spawned_at = []
            for spawn in turn.spawns:
                raw = raw_by_id[spawn.agent_id]
                spawned_at.append(raw["t"] - (raw["duration_ms"] or 0) / 1000)
                assert spawn.is_background == (raw["status"] == "async_launched")
                parent_ended_at = turn.started_at + (turn.duration_s or 0.0)
                assert spawn.delay_s == pytest.approx(max(spawned_at[-1] - parent_ended_at, 0.0), abs=1e-5)
            assert spawned_at == sorted(spawned_at)
            joins = [spawn.agent_id for spawn in turn.spawns if not spawn.is_background]
            if joins and joined is not None:
                completed_at = max(raw_by_id[agent_id]["t"] for agent_id in joins)
                assert joined.started_at is not None
                assert joined.delay_s == pytest.approx(max(joined.started_at - completed_at, 0.0))


def test_weka_tokens_are_the_totals_of_the_file(weka_with_subagents: list[tuple[Any, Trajectory]]) -> None:
    for session, trajectory in weka_with_subagents:
        turns = list(all_turns(trajectory.turns))

        combined = session["totals"]["combined_tokens"]
        assert sum(turn.prompt.num_tokens for turn in turns if turn.prompt is not None) == combined["input"]
        assert sum(turn.num_output_tokens or 0 for turn in turns) == combined["output"]


def test_weka_prompts_have_exactly_the_recorded_blocks(weka_with_subagents: list[tuple[Any, Trajectory]]) -> None:
    """Putting back what each prompt has from the one before gives the hashes in the file."""

    def check(requests: list[Any], turns: tuple[Turn, ...]) -> None:
        hashes: tuple[int, ...] = ()
        calls = [one for one in requests if one["type"] != "subagent"]
        for raw, turn in zip(calls, turns, strict=True):
            assert turn.prompt is not None
            hashes = turn.prompt.hashes_after(hashes)
            assert list(hashes) == raw["hash_ids"]
            if turn.spawns:
                hashes = ()

    for session, trajectory in weka_with_subagents:
        check(session["requests"], trajectory.turns)
        raw_by_id = {one["agent_id"]: one for one in session["requests"] if one["type"] == "subagent"}
        for turn in trajectory.turns:
            for spawn in turn.spawns:
                check(raw_by_id[spawn.agent_id]["requests"], spawn.turns)
