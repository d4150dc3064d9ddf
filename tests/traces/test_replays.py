"""What was imported can be replayed: every recording whole, as recorded, and where it has tools also cut anew.

Of the few files that are too long for a test, the first tasks; ``python -m benchmarks.recordings`` replays them whole.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.recordings import recordings
from loadgen.commands import main
from tests.conftest import SHARED, needs_shared
from traces.jsonl import read_run
from traces.prompt_size import END_TOKENS, HEADER_TOKENS, react_steps
from traces.workload import load_workload

NUM_TASKS = {
    "azure-llm-2023/AzureLLMInferenceTrace_code.csv.xz": 500,
    "azure-llm-2023/AzureLLMInferenceTrace_conv.csv.xz": 500,
    "mooncake/conversation_trace.jsonl.xz": 500,
    "mooncake/synthetic_trace.jsonl.xz": 500,
    "tau-bench/gpt-4o-airline.json.xz": 40,
    "toolathlon/claude-4.5-sonnet.jsonl.xz": 4,
    "toolathlon/deepseek-v3.2-exp.jsonl.xz": 4,
    "weka/traces.jsonl.xz": 3,
    "who-and-when/who_and_when_184.jsonl.xz": 12,
}
"""How many tasks of a file are replayed, where not all of them are."""
VOICE = "tau2-bench/voice_full_duplex"
"""Ticks of sound, and no model call."""
SHORTEST_PROMPT = 2 * HEADER_TOKENS + END_TOKENS
"""What the template of a chat takes for no text at all."""
DATA = None if SHARED is None else SHARED / "data"
RECORDINGS = [] if DATA is None else [str(path.relative_to(DATA)) for path, _ in recordings(DATA)]


@needs_shared
@pytest.mark.parametrize("name", [name for name in RECORDINGS if not name.startswith(VOICE)])
def test_a_recording_runs_as_recorded_and_cut_anew(name: str, shared_dir: Path, tmp_path: Path) -> None:
    path = str(shared_dir / "data" / name)
    num_tasks = NUM_TASKS.get(name)
    workload = load_workload(path, num_tasks=num_tasks)
    num_calls = sum(one.num_calls for one in workload.trajectories)
    num_tool_calls = sum(one.num_tool_calls for one in workload.trajectories)

    for architecture in ("recorded", "react", "orchestrator") if num_tool_calls else ("recorded",):
        options = ["--workload", path, "--clock", "virtual", "--max-model-len", "1000000"]
        options += [] if num_tasks is None else ["--num-tasks", str(num_tasks)]
        assert main(["run", "--architecture", architecture, "--out", str(tmp_path / architecture), *options]) == 0

        run = read_run(tmp_path / architecture)
        assert len(run.tasks) == len(workload.trajectories)
        assert all(task.error is None for task in run.tasks)
        assert all(call.error is None for call in run.calls)
        if architecture == "recorded":  # prompts of which only the length was recorded have that length
            lengths = Counter(call.num_prompt_tokens for call in run.calls)
            steps = [turn for one in workload.trajectories for turn in react_steps(one.turns)]
            recorded = [turn.prompt.num_tokens for turn in steps if turn.prompt is not None]
            assert Counter(max(SHORTEST_PROMPT, one) for one in recorded) <= lengths
        if architecture != "orchestrator":
            assert len(run.calls) == num_calls
            assert sum(task.num_tool_calls for task in run.tasks) == num_tool_calls


@needs_shared
@pytest.mark.parametrize("name", [name for name in RECORDINGS if name.startswith(VOICE)])
def test_a_recording_without_a_task_is_refused_in_one_line(
    name: str, shared_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(shared_dir / "data" / name)

    assert main(["run", "--workload", path, "--clock", "virtual", "--out", str(tmp_path)]) == 2

    assert capsys.readouterr().err.rstrip("\n").endswith("audio ticks, no model calls in it")


@needs_shared
def test_the_recordings_are_all_there() -> None:
    assert len(RECORDINGS) == 136
    assert set(NUM_TASKS) <= set(RECORDINGS)
