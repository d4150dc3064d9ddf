"""Calls that are sent when an earlier run sent them: a slow server is asked for no less."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from loadgen.agents.orchestrator import orchestrator
from loadgen.agents.react import react
from loadgen.call import Call, DoneCall
from loadgen.commands import main
from loadgen.harness import Harness
from loadgen.past import Past
from loadgen.recorder import Recorder
from loadgen.schedule import CallSchedule, schedule_of
from mockserver.clock import VirtualClock, run_virtual
from tests.loadgen.fakes import FakeTransport, make_call, make_task, replay_virtually, replaying
from tests.loadgen.test_resume import write_workload
from traces.jsonl import TraceError, read_run
from traces.trajectory import Turn

TASK = make_task(
    "t",
    Turn(content="a", tool_calls=(make_call("1", "mail", latency_s=0.5), make_call("2", "files", latency_s=0.25))),
    Turn(content="b", tool_calls=(make_call("3", "mail", latency_s=0.5),)),
    Turn(content="c"),
)


def schedule(recorder: Recorder) -> CallSchedule:
    return schedule_of(recorder.calls, recorder.tasks, source="before")


@pytest.mark.parametrize("architecture", [react, orchestrator])
def test_the_same_calls_with_the_same_prompts_are_due_when_they_were(architecture: object) -> None:
    before, carried = replay_virtually(architecture, TASK)  # type: ignore[arg-type]  # both are architectures

    again, asked = replay_virtually(
        architecture,  # type: ignore[arg-type]
        TASK,
        arrives_at=(2.0,),
        harness=Harness(schedule=schedule(before)),
        latency_s=30.0,
    )

    due = {call.call_id: call.due_at for call in before.calls}
    assert {call.call_id: call.due_at for call in again.calls} == {name: at + 2.0 for name, at in due.items()}
    assert all(call.sent_at == call.due_at for call in again.calls)
    assert asked.prompts == carried.prompts
    assert asked.most_in_flight == len(before.calls), "nobody waited for an answer"
    (task,) = again.tasks
    assert (task.num_calls, task.num_tool_calls) == (before.tasks[0].num_calls, before.tasks[0].num_tool_calls)
    assert task.ended_at == max(call.due_at for call in again.calls) + 30.0


def test_a_call_that_fails_fails_its_task_when_all_have_been_sent() -> None:
    before, _ = replay_virtually(react, TASK)

    def fail(call: Call) -> str | None:
        return "HTTP 500" if call.call_id == "t/react#0" else None

    again, _ = replay_virtually(react, TASK, harness=Harness(schedule=schedule(before)), fail=fail)

    assert len(again.calls) == 3
    assert [task.error for task in again.tasks] == ["HTTP 500"]


def test_a_run_that_goes_on_after_such_a_failure_sends_the_rest_too() -> None:
    before, _ = replay_virtually(react, TASK)
    failed, _ = replay_virtually(
        react,
        TASK,
        harness=Harness(schedule=schedule(before)),
        fail=lambda call: "HTTP 500" if call.call_id == "t/react#0" else None,
    )
    past = Past()
    past.add_call(DoneCall(record=next(call for call in failed.calls if call.error), ended_at=0.0))

    again, asked = replay_virtually(react, TASK, harness=Harness(schedule=schedule(before), past=past))

    assert set(asked.prompts) == {"t/react#1", "t/react#2"}
    assert [task.error for task in again.tasks] == ["HTTP 500"]


def test_a_run_that_is_broken_off_waits_for_no_answer() -> None:
    before, _ = replay_virtually(react, TASK, latency_s=60.0)
    recorder = Recorder()

    async def main(clock: VirtualClock) -> float:
        running = asyncio.create_task(
            replaying(
                clock,
                FakeTransport(clock, latency_s=1e6),
                recorder,
                TASK,
                harness=Harness(schedule=schedule(before)),
            )
        )
        await clock.sleep_until(100.0)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        return clock.now()

    assert run_virtual(main) == 100.0
    assert (recorder.num_in_flight, recorder.calls) == (0, [])


def test_a_call_that_nobody_knows_stops_the_run() -> None:
    before, _ = replay_virtually(react, make_task("t", *TASK.turns[:1]))

    with pytest.raises(ExceptionGroup) as caught:
        replay_virtually(react, TASK, harness=Harness(schedule=schedule(before)))
    assert caught.group_contains(TraceError, match="before: that run made no call t/react#1")


def test_a_run_on_the_schedule_of_another_shows_that_the_machine_is_too_small(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = write_workload(tmp_path / "w.jsonl", num_tasks=8, num_turns=6)
    common = ["run", "--workload", workload, "--no-live"]
    assert main([*common, "--out", str(tmp_path / "carried")]) == 0
    small = [*common, "--max-num-seqs", "1"]
    assert main([*small, "--out", str(tmp_path / "waiting")]) == 0
    scheduled = [*small, "--call-schedule", str(tmp_path / "carried"), "--out", str(tmp_path / "scheduled")]

    assert main(scheduled) == 0

    waiting, asked = (read_run(tmp_path / name).summary for name in ("waiting", "scheduled"))
    assert asked["completed"] == waiting["completed"]
    assert asked["p99_ttft_ms"] > waiting["p99_ttft_ms"]
    capsys.readouterr()
    assert main([*scheduled, "--architecture", "chain"]) == 2
    assert "another workload or architecture" in capsys.readouterr().err
    assert main([*scheduled, "--state", "memory:"]) == 2
