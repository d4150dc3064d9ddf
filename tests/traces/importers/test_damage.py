"""Damaged recordings end in a skipped record or one clear line, never in a traceback."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from tests.traces.importers.damage import damaged
from tests.traces.importers.fixtures import FIXTURES, lines
from traces.importers import import_files
from traces.importers.log import ImportLog
from traces.importers.sources import MAX_LINE_BYTES
from traces.jsonl import TraceError, trajectory_line

NUM_MUTATIONS = 1000


@pytest.mark.parametrize("name", FIXTURES)
def test_damaged_files_are_refused_in_one_line(name: str, tmp_path: Path) -> None:
    fixture = FIXTURES[name]
    for companion, content in list(fixture.files.items())[1:]:
        (tmp_path / companion).write_text(content)
    path = tmp_path / fixture.name
    for number in range(NUM_MUTATIONS):
        rng = random.Random(f"{name}/{number}")
        path.write_bytes(damaged(fixture.files[fixture.name], rng))
        log = ImportLog()

        refused = ""
        try:
            for trajectory in import_files([str(path)], log, format_name=rng.choice([None, name])):
                trajectory_line(trajectory)
        except TraceError as error:
            refused = str(error)
        assert "\n" not in refused
        assert all(reason and "\n" not in reason for reason in log.num_skipped_by_reason)


@pytest.mark.parametrize("name", FIXTURES)
def test_every_format_takes_nothing_and_nonsense(name: str, tmp_path: Path) -> None:
    path = tmp_path / "nonsense"
    for content in (
        b"",
        b"\n\n",
        b"\x00" * 100,
        b"{",
        b"[]",
        b"{}",
        b'""',
        b"[[[[]]]]",
        b"[" * 5000,
        b"nul",
        b"\xff\xfe",
    ):
        path.write_bytes(content)
        log = ImportLog()

        trajectories = list(import_files([str(path)], log, format_name=name)) if name != "replayrig" else []

        assert trajectories == []


def test_a_line_that_does_not_end_is_left_out_without_being_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "weka.jsonl"
    good = lines({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}).encode()
    with path.open("wb") as file:
        file.write(good)
        file.seek(MAX_LINE_BYTES * 2, 1)  # zeros that take no room on the disk
        file.write(b"\n" + good)
    log = ImportLog()

    trajectories = list(import_files([str(path)], log))

    assert len(trajectories) == 2
    assert log.num_skipped_by_reason == {f"a line longer than {MAX_LINE_BYTES >> 20} MiB": 1}


def test_a_cut_archive_says_so(tmp_path: Path) -> None:
    content = FIXTURES["weka"].files["weka.jsonl"].encode() * 500
    (tmp_path / "weka.jsonl.gz").write_bytes(gzip.compress(content)[:-50])

    with pytest.raises(TraceError, match=r"weka\.jsonl\.gz: cannot be read: "):
        list(import_files([str(tmp_path / "weka.jsonl.gz")], ImportLog()))
