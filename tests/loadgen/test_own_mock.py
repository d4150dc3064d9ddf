"""Runs against the real mock server, started as a process of its own, on a real socket."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from loadgen.commands import main
from tests.loadgen.fakes import make_call, make_task
from traces.jsonl import Run, read_run, write_trajectories
from traces.trajectory import Turn

pytestmark = pytest.mark.wall_clock


def write_workload(path: Path, *, num_tasks: int = 3) -> str:
    """Tasks of four calls each, with two domains, text, parallel calls and local tools."""
    words = "some words of no importance "
    tasks = [
        make_task(
            f"t{k}",
            Turn(content=words * 3, tool_calls=(make_call("a", "mail", result=words * 20),)),
            Turn(tool_calls=(make_call("b", "files", result=words * k), make_call("c", "mail"))),
            Turn(tool_calls=(make_call("d", "local"),)),
            Turn(content=words * 2),
        )
        for k in range(num_tasks)
    ]
    write_trajectories(path, tasks)
    return str(path)


def facts(run: Run) -> dict[str, tuple[object, ...]]:
    """What both doors must agree on exactly."""
    return {
        call.call_id: (
            call.num_prompt_tokens,
            call.num_output_tokens,
            call.expected_output_tokens,
            call.finish_reason,
            call.error,
        )
        for call in run.calls
    }


@pytest.mark.parametrize("architecture", ["react", "orchestrator"])
def test_http_and_in_process_agree(tmp_path: Path, architecture: str) -> None:
    workload = write_workload(tmp_path / "tasks.jsonl")
    common = ["run", "--workload", workload, "--architecture", architecture, "--no-live", "--seed", "3"]
    # One task at a time: what is cached then does not depend on who comes first.
    common += ["--max-concurrency", "1"]

    main([*common, "--out", str(tmp_path / "virtual")])
    main([*common, "--target", "http", "--time-scale", "5", "--out", str(tmp_path / "http")])

    virtual, http = read_run(tmp_path / "virtual"), read_run(tmp_path / "http")
    assert facts(http) == facts(virtual)
    cached = [sum(call.num_cached_tokens or 0 for call in run.calls) for run in (virtual, http)]
    assert cached[1] == pytest.approx(cached[0], abs=64)
    assert http.header.clock == "wall"
    assert http.header.time_scale == 5.0
    assert http.header.profile == virtual.header.profile
    # Never before its time; how long after it depends on who else has the machine, which a valid run says it had not.
    assert http.summary["makespan_s"] > 0.99 * virtual.summary["makespan_s"]
    if not http.header.invalid_reasons:
        assert http.summary["makespan_s"] == pytest.approx(virtual.summary["makespan_s"], rel=0.25)
    assert all(call.lag_s is not None and call.scheduled_at is not None for call in http.calls)
    assert http.samples[-1].num_finished_requests == len(http.calls)


@pytest.mark.parametrize("flags", [(), ("--client", "openai"), ("--endpoint", "completions")])
def test_answers_of_its_own_are_as_long_and_in_no_later_prompt(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """As on a server that is not ours: of each prompt the whole blocks of the one before are cached."""
    workload = write_workload(tmp_path / "tasks.jsonl")
    common = ["run", "--workload", workload, "--no-live", "--max-concurrency", "1", "--no-recorded-answers"]

    main([*common, "--out", str(tmp_path / "virtual")])
    main([*common, "--target", "http", "--time-scale", "5", *flags, "--out", str(tmp_path / "http")])

    virtual, http = ({call.call_id: call for call in read_run(tmp_path / name).calls} for name in ("virtual", "http"))
    assert {name: call.num_output_tokens for name, call in http.items()} == {
        name: call.num_output_tokens for name, call in virtual.items()
    }
    for name, call in virtual.items():
        before = virtual.get(name.replace(f"#{call.index}", f"#{call.index - 1}"))
        if before is not None:
            assert before.num_prompt_tokens is not None
            assert call.num_cached_tokens == http[name].num_cached_tokens == before.num_prompt_tokens // 16 * 16
    assert all(call.error is None for call in http.values())


def test_a_call_of_tools_shows_its_name_before_a_long_interval_is_over(tmp_path: Path) -> None:
    """TTFT and TPOT are what they are without an interval: those tokens before the name show nothing."""
    workload = write_workload(tmp_path / "tasks.jsonl")
    flags = ("--target", "http", "--time-scale", "1", "--stream-interval", "256")
    main(["run", "--workload", workload, "--no-live", *flags, "--out", str(tmp_path / "run")])

    calls = [call for call in read_run(tmp_path / "run").calls if call.index in {1, 2}]
    shown_s = [(call.last_token_at or 0.0) - (call.first_token_at or 0.0) for call in calls]
    assert len(calls) == 6
    assert median(shown_s) > 0.02


def test_the_first_calls_of_a_scaled_run_arrive_at_one_instant_however_long_sending_them_takes(tmp_path: Path) -> None:
    workload = write_workload(tmp_path / "tasks.jsonl", num_tasks=60)
    out = tmp_path / "r"
    main(["run", "--workload", workload, "--no-live", "--target", "http", "--time-scale", "50", "--out", str(out)])

    run = read_run(out)
    first = [call for call in run.calls if call.call_id.endswith("#0")]
    assert len(first) == 60
    assert {call.sent_at for call in first} == {0.0}
    # The engine took as many of them as a step holds at that instant, and not one before it.
    assert min(call.scheduled_at or 0.0 for call in first) == pytest.approx(0.0, abs=1e-9)
    assert sum(call.scheduled_at == min(one.scheduled_at or 0.0 for one in first) for call in first) > 1
    assert "while the first 60 calls were sent and read" in run.header.notes["start"]


@pytest.mark.parametrize("flags", [("--endpoint", "completions"), ("--history", "live")])
def test_prompts_of_ids_and_live_histories_are_the_same_prompts_and_blocks(
    tmp_path: Path, flags: tuple[str, str]
) -> None:
    """A mock of ours says what was recorded, and counts as we do: only a plain completion's finish reason differs."""
    workload = write_workload(tmp_path / "tasks.jsonl")
    common = ["run", "--workload", workload, "--no-live", "--max-concurrency", "1"]

    main([*common, "--out", str(tmp_path / "virtual")])
    main([*common, "--target", "http", "--time-scale", "5", *flags, "--out", str(tmp_path / "http")])

    virtual, http = read_run(tmp_path / "virtual"), read_run(tmp_path / "http")
    assert {call_id: (*fact[:3], fact[4]) for call_id, fact in facts(http).items()} == {
        call_id: (*fact[:3], fact[4]) for call_id, fact in facts(virtual).items()
    }
    assert {call.finish_reason for call in http.calls} <= {"stop", "tool_calls"}
    cached = [sum(call.num_cached_tokens or 0 for call in run.calls) for run in (virtual, http)]
    assert cached[1] == pytest.approx(cached[0], abs=64)


def test_at_a_scale_that_no_machine_carries_the_run_says_invalid_and_exits_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = write_workload(tmp_path / "tasks.jsonl")

    common = ("run", "--workload", workload, "--no-live", "--target", "http")
    code = main([*common, "--time-scale", "5000", "--out", str(tmp_path / "r")])

    assert code == 1
    assert "INVALID" in capsys.readouterr().out
    assert any("late" in reason for reason in read_run(tmp_path / "r").header.invalid_reasons)


def test_a_mock_that_cannot_start_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workload = write_workload(tmp_path / "tasks.jsonl", num_tasks=1)

    code = main(
        [
            *("run", "--workload", workload, "--no-live", "--target", "http", "--time-scale", "5"),
            *("--max-model-len", "1048576", "--num-gpu-blocks-override", "2", "--out", str(tmp_path / "r")),
        ]
    )

    said = capsys.readouterr()
    assert code == 2
    assert said.err.count("\n") == 1
