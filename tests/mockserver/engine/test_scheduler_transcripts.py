"""Our scheduler decides as vLLM's own did, step for step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.scheduler_transcripts import main, mismatches, read_transcripts


@pytest.mark.parametrize(
    ("name", "num_transcripts"),
    [("scheduler-transcripts.jsonl.gz", 200), ("scheduler-transcripts-async.jsonl.gz", 150)],
)
def test_every_recorded_decision_is_reproduced(shared_dir: Path, name: str, num_transcripts: int) -> None:
    """Invariants of the pool and the queues are checked after every step as well."""
    transcripts = list(read_transcripts(shared_dir / "vllm" / name))

    differing = [
        (transcript["family"], transcript["seed"], *mismatch)
        for transcript in transcripts
        for mismatch in mismatches(transcript, check=True)
    ]

    assert len(transcripts) == num_transcripts
    assert differing == []


def test_a_changed_decision_is_noticed(shared_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The replay is able to fail: one number off in one recorded step, exit 1 and both sides shown."""
    transcript = next(iter(read_transcripts(shared_dir / "vllm" / "scheduler-transcripts.jsonl.gz")))
    transcript["steps"][3]["free_blocks"] += 1
    path = tmp_path / "changed.jsonl"
    path.write_text(json.dumps(transcript))

    assert main([str(path)]) == 1

    out = capsys.readouterr().out
    assert "1 transcripts" in out
    assert "1 mismatching" in out
    assert "expected:" in out
    assert "got:" in out
