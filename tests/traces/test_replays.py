"""What was imported can be replayed: as recorded, and where it has tools also cut anew."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from loadgen.__main__ import main
from tests.conftest import needs_shared
from traces.jsonl import read_run
from traces.prompt_size import react_steps
from traces.workload import load_workload

RECORDINGS = [
    "agentperf/agentperf-default-v1/task_skill_search.jsonl.xz",
    "atif-harbor/golden/openhands/hello-world.trajectory.json",
    "atif-harbor/golden/terminus_2/hello-world-context-summarization.trajectory.json",
    "azure-llm-2023/AzureLLMInferenceTrace_code.csv.xz",
    "claude-code/simonw_sample_session.json",
    "context-profiler/agent-trace_sample.json.xz",
    "exgentic-recordings/tau2/trajectory.jsonl.xz",
    "lmcache-agent-trace/miniswe/07c6a78a27294b41a7c09a1907af143d.jsonl.xz",
    "mini-swe-agent/local.traj.json",
    "mooncake/conversation_trace.jsonl.xz",
    "openhands/openhands_0.58_events.json",
    "otel/inference-perf_synthetic/code_review_workflow.json",
    "otel/clew_langgraph/real_repeat_node.json",
    "swe-agent/01_gpt4__swe-agent-test-repo__default_from___6e44b9__sweagenttestrepo-1c2844.traj.xz",
    "tau-bench/gpt-4o-airline.json.xz",
    "tau2-bench/whissle_hd_retail_n5.results.json.xz",
    "toolathlon/hf_record_gpt-5_1_fillout-online-forms.json",
    "tracelab/codex_trace.json",
    "tracelab/derived_round_trace.jsonl",
    "weka/traces.jsonl.xz",
    "who-and-when/who_and_when_184.jsonl.xz",
]


@needs_shared
@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_runs_as_recorded_and_cut_anew(name: str, shared_dir: Path, tmp_path: Path) -> None:
    path = str(shared_dir / "data" / name)
    num_tasks = 1 if "weka" in name else 2
    workload = load_workload(path, num_tasks=num_tasks)
    has_tools = any(one.num_tool_calls for one in workload.trajectories)

    for architecture in ("recorded", "react", "orchestrator") if has_tools else ("recorded",):
        options = [
            "--workload",
            path,
            "--num-tasks",
            str(num_tasks),
            "--clock",
            "virtual",
            "--out",
            str(tmp_path / architecture),
        ]
        assert main(["run", "--architecture", architecture, *options]) == 0

        run = read_run(tmp_path / architecture)
        assert len(run.tasks) == len(workload.trajectories)
        assert all(call.error is None for call in run.calls)
        if architecture == "recorded":  # prompts of which only the length was recorded have that length
            lengths = Counter(call.num_prompt_tokens for call in run.calls)
            steps = [turn for one in workload.trajectories for turn in react_steps(one.turns)]
            assert Counter(turn.prompt.num_tokens for turn in steps if turn.prompt is not None) <= lengths
        if architecture != "orchestrator":
            assert len(run.calls) == sum(one.num_calls for one in workload.trajectories)
            assert sum(task.num_tool_calls for task in run.tasks) == sum(
                one.num_tool_calls for one in workload.trajectories
            )
