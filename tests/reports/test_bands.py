from __future__ import annotations

from typing import Any

from reports.architecture_page import architectures
from reports.bands import CALLS_PER_TASK, band_rows
from reports.compare import Comparison, compare
from reports.measure import RunColumns
from tests.reports.records import make_call, make_run, make_task


def run_of(architecture: str, *calls_per_task: int, **header: Any) -> RunColumns:
    tasks = [make_task(f"t{number}") for number in range(len(calls_per_task))]
    calls = [make_call(f"t{number}/a", index) for number, count in enumerate(calls_per_task) for index in range(count)]
    return make_run(calls=calls, tasks=tasks, architecture=architecture, **header)


def rows_of(*runs: RunColumns) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in band_rows(compare(runs).runs)}


def test_what_lies_in_its_band_is_within() -> None:
    rows = rows_of(run_of("chain", 6, 9, 12), run_of("router", 20, 30, 40))

    assert rows["chain"] == ("5-15", "9 and 11", "within")
    assert rows["router"][2] == "within"


def test_what_lies_outside_says_what_the_workload_makes_differ() -> None:
    rows = rows_of(run_of("react", 26, 26, 26), run_of("chain", 29, 29, 29), run_of("router", 20, 30, 300))

    assert rows["react"] == (
        "3-8 (short tasks)",
        "26 and 26",
        "above: the workload's tasks are long, 26 recorded steps in the median",
    )
    assert rows["chain"][2].startswith("above")
    assert rows["router"][2] == "the median is within; the longest tasks are over"
    assert rows_of(run_of("group_chat", 3))["group_chat"][2] == "below: the workload's tasks are short"
    assert rows_of(run_of("group_chat", 50, 500))["group_chat"][2] == "above: the workload's tasks are long"


def test_an_architecture_of_ones_own_has_no_band() -> None:
    assert rows_of(run_of("my.module:mine", 5)) == {}
    assert "orchestrator" not in CALLS_PER_TASK


def section(*runs: RunColumns) -> str:
    comparison: Comparison = compare(runs)
    return architectures(comparison)


def test_the_page_says_what_each_run_assumed() -> None:
    text = section(
        run_of("chain", 6, notes={"architecture": "Assumes <nothing>.", "overhead": "2 of 6"}),
        run_of("mine", 6, notes={"architecture": "Assumes <nothing>.", "overhead": "2 of 6"}),
        run_of("router", 20, notes={"architecture": "Assumes a lot."}),
    )

    assert text.count("Assumes &lt;nothing&gt;.") == 1, "runs that say the same share a place"
    assert "2 of 6" in text
    assert "Assumes a lot." in text
    assert "5-15" in text


def test_runs_without_notes_leave_the_section_out() -> None:
    assert section(run_of("react", 3)) == ""
