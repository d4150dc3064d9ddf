"""Trajectories and run directories survive the disk, and damage is named by file and line."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from traces.jsonl import RunLock, RunWriter, TraceError, read_run, read_trajectories, write_trajectories
from traces.record import CallRecord, Lag, RunHeader, ServerSample, TaskRecord, ToolRecord
from traces.trajectory import RecordedPrompt, Subagent, ToolCall, ToolSchema, Trajectory, Turn


def a_trajectory() -> Trajectory:
    """One of everything that a trajectory can hold."""
    schema = ToolSchema(name="github-list", domain="github", text='{"type":"function","function":{}}')
    call = ToolCall(
        call_id="c1",
        name="github-list",
        domain="github",
        arguments='{"a":1}',
        result="œuvre\n",
        latency_s=0.5,
    )
    child = Subagent(
        agent_id="t/github",
        user_prompt="look",
        turns=(Turn(content="found", num_output_tokens=2),),
        system_prompt="sub",
        tools=(schema,),
        delay_s=0.02,
    )
    first = Turn(content="I look", tool_calls=(call,), started_at=0.0, duration_s=1.5, spawns=(child,))
    prompt = RecordedPrompt(num_tokens=130, block_size=64, block_hashes=(7, 8))
    return Trajectory(
        task_id="t",
        user_prompt="do it",
        system_prompt="you are",
        tools=(schema,),
        turns=(first, Turn(prompt=prompt, num_output_tokens=9, delay_s=2.0, user_message="and then?")),
        source="test",
        model="m",
        started_at=3.0,
        metadata={"passed": "yes"},
    )


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz"])
def test_trajectories_come_back_as_they_went(tmp_path: Path, name: str) -> None:
    trajectories = [a_trajectory(), replace(a_trajectory(), task_id="u")]

    num_written = write_trajectories(tmp_path / name, trajectories)

    assert num_written == 2
    assert list(read_trajectories(tmp_path / name)) == trajectories


def test_equal_trajectories_give_equal_gzip_bytes(tmp_path: Path) -> None:
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        write_trajectories(tmp_path / name, [a_trajectory()])

    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ('{"task_id": "a"}', 'must be an object with "replayrig": "trajectory/1"'),
        ('{"replayrig":"trajectory/9","task_id":"a","turns":[]}', "got 'trajectory/9'"),
        ('{"replayrig":"trajectory/1","task_id":"a"}', "turns: Field required"),
        (
            '{"replayrig":"trajectory/1","task_id":"a","turns":[{"num_output_tokens":"9"}]}',
            "turns.0.num_output",
        ),
    ],
)
def test_damage_is_named_by_file_and_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "t.jsonl"
    write_trajectories(path, [a_trajectory()])
    path.write_text(path.read_text() + line + "\n")

    with pytest.raises(TraceError, match=r"t\.jsonl:2: ") as caught:
        list(read_trajectories(path))

    assert message in str(caught.value)


def test_a_cut_gzip_file_is_a_trace_error(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    write_trajectories(path, [a_trajectory()] * 50)
    path.write_bytes(path.read_bytes()[:-20])

    with pytest.raises(TraceError, match=r"t\.jsonl\.gz: "):
        list(read_trajectories(path))


def test_reading_streams(tmp_path: Path) -> None:
    """The first trajectory is there before the damage behind it is met."""
    path = tmp_path / "t.jsonl.gz"
    with gzip.open(path, "wb") as file:
        write_trajectories(tmp_path / "plain.jsonl", [a_trajectory()])
        file.write((tmp_path / "plain.jsonl").read_bytes() + b"broken\n")

    assert next(read_trajectories(path)) == a_trajectory()


def a_header() -> RunHeader:
    return RunHeader(
        run_id="r",
        architecture="react",
        workload="w",
        workload_digest="d",
        num_tasks=1,
        target="in-process",
        clock="virtual",
        time_scale=None,
        profile="kimi-k2-8xb200",
        prefix_caching=True,
        max_num_seqs=128,
        block_size=16,
        seed=0,
        settings={"seed": 0},
        version="0",
    )


def a_call(index: int = 0) -> CallRecord:
    return CallRecord(
        call_id=f"t/react#{index}",
        task_id="t",
        agent_id="t/react",
        index=index,
        due_at=0.0,
        sent_at=0.0,
        first_token_at=1.25,
        last_token_at=None,
        num_prompt_tokens=10,
        num_cached_tokens=0,
        num_output_tokens=None,
        expected_output_tokens=3,
        finish_reason=None,
        chunk_at=(1.25, 1.5),
    )


TOOL = ToolRecord(
    task_id="t", agent_id="t/react", call_id="t/react#0", name="n", domain="d", started_at=1.0, ended_at=2.0
)
TASK = TaskRecord(task_id="t", started_at=0.0, ended_at=9.0, num_calls=1, num_tool_calls=1, num_subagents=0)
SAMPLE = ServerSample(
    at=1.0,
    num_running=1,
    num_waiting=0,
    num_waiting_tokens=0,
    num_blocks=10,
    num_used_blocks=1,
    num_cached_blocks=0,
    num_steps=4,
    busy_s=0.5,
    occupancy_s=0.5,
    num_computed_prompt_tokens=10,
    num_cached_prompt_tokens=0,
    num_generated_tokens=3,
    num_evicted_blocks=0,
    num_preemptions=0,
    num_finished_requests=0,
)


def test_a_run_comes_back_as_it_went(tmp_path: Path) -> None:
    final = replace(
        a_header(),
        complete=True,
        server_lag=Lag(p50_s=0.0, p99_s=0.1, max_s=0.2, num_samples=5),
        invalid_reasons=("too late",),
    )

    with RunWriter(tmp_path / "run", a_header()) as writer:
        writer.call(a_call())
        writer.tool(TOOL)
        writer.task(TASK)
        writer.sample(SAMPLE)
        writer.finish(final, {"makespan_s": 9.0})

    run = read_run(tmp_path / "run")
    assert (run.header, run.calls, run.tools, run.tasks, run.samples) == (
        final,
        [a_call()],
        [TOOL],
        [TASK],
        [SAMPLE],
    )
    assert run.summary == {"makespan_s": 9.0}


def test_what_was_recorded_is_on_disk_before_the_run_ends(tmp_path: Path) -> None:
    """Nothing closes the writer here, as nothing does after kill -9."""
    writer = RunWriter(tmp_path, a_header())
    writer.call(a_call(0))
    writer.call(a_call(1))

    run = read_run(tmp_path)

    assert run.calls == [a_call(0), a_call(1)]
    assert (run.header.complete, run.summary) == (False, {})
    writer.close()


def test_records_that_are_written_together_are_there_from_time_to_time_and_in_the_end(tmp_path: Path) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    sizes: list[int] = []
    with RunWriter(alone, a_header()) as one, RunWriter(together, a_header(), together=True) as other:
        for number in range(300):
            for writer in (one, other):
                writer.call(a_call(number))
                writer.sample(SAMPLE)
            sizes.append((together / "calls.jsonl").stat().st_size)

    num_written = (together / "calls.jsonl").read_bytes().count(b"\n")
    assert (sizes[0], num_written) == (0, 300)
    assert 2 <= len(set(sizes)) < 10, "a few writes, long before the end"
    for name in ("calls.jsonl", "server.jsonl"):
        assert (together / name).read_bytes() == (alone / name).read_bytes()


def test_a_record_cut_by_a_kill_is_left_out(tmp_path: Path) -> None:
    RunWriter(tmp_path, a_header()).close()
    with RunWriter(tmp_path, a_header()) as writer:
        writer.call(a_call(0))
    with (tmp_path / "calls.jsonl").open("ab") as file:
        file.write(b'{"call_id":"t/rea')

    assert read_run(tmp_path).calls == [a_call(0)]


def test_a_cut_record_in_a_complete_run_is_damage(tmp_path: Path) -> None:
    with RunWriter(tmp_path, a_header()) as writer:
        writer.call(a_call(0))
        writer.finish(replace(a_header(), complete=True), {})
    path = tmp_path / "calls.jsonl"
    path.write_bytes(path.read_bytes()[:-5])

    with pytest.raises(TraceError, match=r"calls\.jsonl:1: the file ends inside a record"):
        read_run(tmp_path)


def test_damage_in_a_run_is_named_by_file_and_line(tmp_path: Path) -> None:
    with RunWriter(tmp_path, a_header()) as writer:
        writer.call(a_call(0))
    with (tmp_path / "calls.jsonl").open("ab") as file:
        file.write(b'{"call_id":7}\n')

    with pytest.raises(TraceError, match=r"calls\.jsonl:2: call_id: Input should be a valid string"):
        read_run(tmp_path)


def test_a_folder_that_is_no_run_is_a_trace_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"run\.json: No such file or directory"):
        read_run(tmp_path)


def test_a_run_of_another_version_is_refused(tmp_path: Path) -> None:
    RunWriter(tmp_path, replace(a_header(), schema_version=2)).close()

    with pytest.raises(TraceError, match="schema_version must be 1, got 2"):
        read_run(tmp_path)


def test_an_older_run_in_the_same_folder_is_started_afresh(tmp_path: Path) -> None:
    with RunWriter(tmp_path, a_header()) as writer:
        writer.call(a_call(0))
        writer.finish(a_header(), {"old": 1})

    RunWriter(tmp_path, a_header()).close()

    run = read_run(tmp_path)
    assert (run.calls, run.summary) == ([], {})


def test_one_process_at_a_time_writes_to_a_run(tmp_path: Path) -> None:
    with RunWriter(tmp_path, a_header()) as writer:
        writer.call(a_call(0))
        with pytest.raises(TraceError, match="another process writes to this run"):
            RunWriter(tmp_path, a_header())
        assert read_run(tmp_path).calls == [a_call(0)], "nothing was touched"

    RunWriter(tmp_path, a_header()).close()


def test_a_writer_goes_on_after_the_last_whole_record(tmp_path: Path) -> None:
    with RunWriter(tmp_path, a_header()) as writer:
        writer.call(a_call(0))
        writer.call(a_call(1))
    path = tmp_path / "calls.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])

    with RunWriter(tmp_path, a_header(), goes_on=RunLock(tmp_path)) as writer:
        writer.call(a_call(1))

    assert read_run(tmp_path).calls == [a_call(0), a_call(1)]
    assert path.read_bytes() == whole
