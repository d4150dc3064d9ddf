"""What the documents name is there, and they keep to their own rules."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from loadgen.config import Settings
from mockserver.api.settings import ServerSettings
from reports.compare import compare
from reports.export import TABLES
from reports.summary import summary_of
from tests.reports.records import make_run, make_sample
from traces.record import SCHEMA_VERSION, SERVER_COUNTS, CallRecord, RunHeader, ServerSample, TaskRecord, ToolRecord

ROOT = Path(__file__).parent.parent
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
PATH = r"`([\w./-]+)`"
by_name = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)


def prose_of(document: Path) -> str:
    """The text without its code blocks."""
    return re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@by_name
def test_paths_exist(document: Path) -> None:
    """A path in backticks starts with a folder of ours; links are relative to the document."""
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"runs", ".venv"}
    text = prose_of(document)
    named = [ROOT / path for path in re.findall(r"`([\w.-]+/[\w./-]*)`", text) if path.split("/")[0] in folders]
    linked = [document.parent / path for path in re.findall(r"\]\(([\w./-]+)\)", text)]

    missing = [str(path.relative_to(ROOT)) for path in (*named, *linked) if not path.resolve().exists()]

    assert not missing


def test_contributing_has_a_row_for_every_kind_of_change() -> None:
    """Each row names what to edit and what tests it, and both are there; every top folder of code has a row."""
    _, _, table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("| --- | --- | --- |\n")
    rows = [[re.findall(PATH, cell) for cell in line.split("|")[2:4]] for line in table.split("\n\n")[0].splitlines()]

    edited = [path for edit, _ in rows for path in edit]
    tested = [path for _, test in rows[:-1] for path in test]
    assert all(edit for edit, _ in rows)
    assert all(test for _, test in rows[:-1])  # the last one's test is CI itself
    assert [path for path in (*edited, *tested) if not (ROOT / path).exists()] == []
    assert [path for path in tested if not path.startswith(("tests/", "benchmarks/"))] == []
    assert {path.split("/")[0] for path in edited} >= {"mockserver", "loadgen", "traces", "reports"}


@by_name
def test_tone_is_even(document: Path) -> None:
    text = prose_of(document)

    assert not re.search(r"\w!(\s|$)", text, flags=re.MULTILINE)
    assert "simply" not in text.lower()


@by_name
def test_one_sentence_per_line(document: Path) -> None:
    """Lists and tables may hold short ones in a row; running text may not."""
    running = [line for line in prose_of(document).splitlines() if re.match(r"[A-Z`]", line)]

    assert [line for line in running if re.search(r"[a-z`)]\. [A-Z`]", line)] == []


@pytest.mark.parametrize(("command", "settings"), [("mockserver", ServerSettings), ("loadgen", Settings)])
def test_every_setting_is_documented(command: str, settings: type[ServerSettings] | type[Settings]) -> None:
    page = (ROOT / "docs" / f"{command}.md").read_text(encoding="utf-8")
    flags = ["--" + field.name.replace("_", "-") for field in dataclasses.fields(settings)]

    assert [flag for flag in flags if f"| `{flag}`" not in page] == []


def section_of(document: str, heading: str) -> set[str]:
    """The names in backticks in the first cells of a section's rows."""
    _, _, rest = (ROOT / "docs" / document).read_text(encoding="utf-8").partition(f"\n## {heading}\n")
    rows = [line for line in rest.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[0])}


@pytest.mark.parametrize(
    ("file", "record"),
    [
        ("calls.jsonl", CallRecord),
        ("tools.jsonl", ToolRecord),
        ("tasks.jsonl", TaskRecord),
        ("server.jsonl", ServerSample),
        ("run.json", RunHeader),
    ],
)
def test_every_field_of_a_runs_files_is_documented_and_no_other(file: str, record: type[CallRecord]) -> None:
    assert section_of("records.md", file) == {field.name for field in dataclasses.fields(record)}


def test_every_key_of_the_summary_and_every_column_of_the_csv_is_documented() -> None:
    run = compare([make_run(samples=[make_sample(0.0)])]).runs[0]
    keys = {
        re.sub("^(mean|median|std|p50|p90|p99|max)_(?!concurrent|lag|send_lag)", "", k) for k in summary_of(run.numbers)
    }
    page = (ROOT / "docs" / "records.md").read_text(encoding="utf-8")
    csv_rows = [line for line in page.splitlines() if re.match(r"\| `(calls|tools|tasks|evictions)` \|", line)]
    rows = {line.split("`")[1]: re.findall(r"`(\w+)`", line)[1:] for line in csv_rows}

    assert section_of("records.md", "summary.json") == keys
    assert rows.keys() | {"server"} == TABLES.keys()
    assert {name: list(TABLES[name](run)) for name in rows} == rows
    assert list(TABLES["server"](run)) == ["at", *SERVER_COUNTS]
    assert f"it is {SCHEMA_VERSION}." in page
