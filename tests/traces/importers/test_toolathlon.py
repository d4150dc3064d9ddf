"""Toolathlon rows and full records, in fixtures of our own and in the real files."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import needs_shared
from tests.traces.test_prompt_size import built_prompts, prompts
from traces.domains import toolathlon_domain
from traces.importers import import_files
from traces.importers.log import ImportLog
from traces.jsonl import TraceError
from traces.trajectory import Trajectory

MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "Count the words of a.pdf"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "x1", "type": "function", "function": {"name": "pdf-tools-read_pdf_pages", "arguments": ""}},
            {"id": "x2", "type": "function", "function": {"name": "local-claim", "arguments": '{"cut": "of'}},
        ],
    },
    {"role": "tool", "tool_call_id": "x1", "content": '{"type":"text","text":"one two"}'},
    {"role": "tool", "tool_call_id": "x2", "content": "ok"},
    {"role": "user", "content": "And?"},
    {"role": "assistant", "content": "Two."},
]
ROW = {"source": "s", "model": "m", "task_name": "count-words", "pass": "True", "messages": MESSAGES}
RECORD = {
    "modelname_run": "m_1",
    "config": json.dumps(
        {"task_dir": "finalpool/count-words", "system_prompts": str({"agent": "You're in /workspace.", "user": "u"})}
    ),
    "tool_calls": json.dumps(
        {
            "tools": [
                {"type": "function", "function": {"name": "pdf-tools-read_pdf_pages", "parameters": {}}},
                {"type": "function", "function": {"name": "local-claim", "parameters": {}}},
            ]
        }
    ),
    "messages": json.dumps(MESSAGES),
    "key_stats": "{}",
}


def import_text(tmp_path: Path, text: str, log: ImportLog | None = None) -> list[Trajectory]:
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    return list(import_files([str(path)], log or ImportLog()))


def test_a_row_becomes_a_trajectory(tmp_path: Path) -> None:
    log = ImportLog()
    (trajectory,) = import_text(tmp_path, json.dumps(ROW), log)

    assert (trajectory.task_id, trajectory.model, trajectory.source) == ("count-words", "m", "toolathlon")
    assert trajectory.user_prompt == "Count the words of a.pdf"
    assert trajectory.metadata == {"passed": "true"}
    first, second = trajectory.turns
    assert [(call.call_id, call.domain, call.arguments, call.result) for call in first.tool_calls] == [
        ("x1", "pdf-tools", "", '{"type":"text","text":"one two"}'),
        ("x2", "local", '{"cut": "of', "ok"),
    ]
    assert (second.user_message, second.content) == ("And?", "Two.")
    assert log.num_by_note["tasks without a system prompt"] == 1
    assert log.num_by_note["tasks without tool schemas: their prompts are shorter than the run's were"] == 1


@pytest.mark.parametrize("nested", [True, False])
def test_a_full_record_has_schemas_and_a_system_prompt(tmp_path: Path, nested: bool) -> None:
    """The dataset nests JSON in strings; ``traj_log.json`` does not."""
    record = RECORD if nested else {key: _parsed(value) for key, value in RECORD.items()}
    log = ImportLog()
    (trajectory,) = import_text(tmp_path, json.dumps(record, indent=2), log)

    assert trajectory.task_id == "count-words"
    assert trajectory.system_prompt == "You're in /workspace."
    assert [(tool.name, tool.domain) for tool in trajectory.tools] == [
        ("pdf-tools-read_pdf_pages", "pdf-tools"),
        ("local-claim", "local"),
    ]
    assert trajectory.tools[0].text == (
        '{"type":"function","function":{"name":"pdf-tools-read_pdf_pages","parameters":{}}}'
    )
    assert not log.num_by_note


def _parsed(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def test_tasks_of_the_same_name_get_ids_of_their_own(tmp_path: Path) -> None:
    trajectories = import_text(tmp_path, "\n".join([json.dumps(ROW)] * 3))

    assert [one.task_id for one in trajectories] == ["count-words", "count-words~2", "count-words~3"]


def test_bad_rows_are_skipped_with_file_line_and_reason(tmp_path: Path) -> None:
    log = ImportLog()
    rows = [json.dumps(ROW), '{"task_name": ', json.dumps({**ROW, "messages": 7}), json.dumps({**ROW, "messages": []})]

    assert len(import_text(tmp_path, "\n".join(rows), log)) == 1

    reasons = {reason: where.rpartition(":")[2] for reason, where in log.first_skipped_by_reason.items()}
    assert reasons["'messages' must be a list, got a number"] == "3"
    assert reasons["no answer of a model in it"] == "4"
    assert log.num_skipped == 3


def test_strict_stops_at_the_first_bad_row(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"rows\.jsonl:2: not JSON"):
        import_text(tmp_path, json.dumps(ROW) + "\nbroken", ImportLog(strict=True))


@pytest.mark.parametrize(
    ("tool", "domain"),
    [
        ("github-get_file_contents", "github"),
        ("git-git_log", "git"),
        ("youtube-transcript-get_transcript", "youtube-transcript"),
        ("youtube-playlists_getPlaylist", "youtube"),
        ("local-python-execute", "local"),
        ("web_search", "local"),
    ],
)
def test_the_domain_is_the_longest_server_name_that_fits(tool: str, domain: str) -> None:
    assert toolathlon_domain(tool) == domain


@needs_shared
@pytest.mark.parametrize("name", ["claude-4.5-sonnet", "deepseek-v3.2-exp"])
def test_the_real_files_import_whole(shared_dir: Path, name: str) -> None:
    path = shared_dir / "data" / "toolathlon" / f"{name}.jsonl.xz"
    with lzma.open(path) as lines:
        rows = [json.loads(line) for line in lines]
    messages = [message for row in rows for message in row["messages"]]
    log = ImportLog()

    trajectories = list(import_files([str(path)], log))

    assert len(trajectories) == len({one.task_id for one in trajectories}) == len(rows)
    assert sum(one.num_calls for one in trajectories) == sum(m["role"] == "assistant" for m in messages)
    assert sum(one.num_tool_calls for one in trajectories) == sum(len(m.get("tool_calls") or ()) for m in messages)
    assert log.num_skipped == 0


@needs_shared
def test_prompt_sizes_of_real_trajectories_are_the_template_s(shared_dir: Path) -> None:
    folder = shared_dir / "data" / "toolathlon"
    for name in ("hf_record_gpt-5_1_fillout-online-forms.json", "claude-4.5-sonnet.jsonl.xz"):
        for trajectory, _ in zip(import_files([str(folder / name)], ImportLog()), range(3), strict=False):
            assert prompts(trajectory) == built_prompts(trajectory)
