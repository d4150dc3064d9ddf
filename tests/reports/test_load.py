"""Run directories as they are found: killed, damaged, huge."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from reports.load import load_run
from reports.validity import invalid_reasons
from tests.reports.run_files import write_react_run
from traces.jsonl import TraceError


def set_header(run: Path, **values: object) -> None:
    path = run / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def cut_off(path: Path) -> None:
    """Lose the last bytes, as a kill in the middle of a write does."""
    path.write_bytes(path.read_bytes()[:-20])


def test_of_a_killed_run_everything_up_to_its_last_whole_record_is_read(tmp_path: Path) -> None:
    run = write_react_run(tmp_path / "run", call_s=2.0)
    set_header(run, complete=False)
    cut_off(run / "calls.jsonl")

    columns = load_run(run)

    assert len(columns.calls) == 3
    assert "the run was interrupted" in invalid_reasons(columns)


def test_a_complete_run_that_is_cut_off_is_damaged(tmp_path: Path) -> None:
    run = write_react_run(tmp_path / "run", call_s=2.0)
    cut_off(run / "calls.jsonl")

    with pytest.raises(TraceError, match=r"calls\.jsonl:4: the file ends inside a record"):
        load_run(run)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    run = write_react_run(tmp_path / "run", call_s=2.0)
    (run / "tasks.jsonl").unlink()

    with pytest.raises(TraceError, match=r"tasks\.jsonl"):
        load_run(run)


def test_reading_a_large_file_says_how_far_it_is(tmp_path: Path) -> None:
    run = write_react_run(tmp_path / "run", call_s=2.0)
    told = io.StringIO()

    load_run(run, progress=told, large_bytes=1000)

    assert "calls.jsonl (0 MB): 4 records" in told.getvalue()
