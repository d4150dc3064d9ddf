"""Whole runs against a server whose tokenizer and template are not ours, on a real socket."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from loadgen.commands import main
from mockserver.filler import filler
from tests.loadgen.fakes import make_call, make_task
from tests.loadgen.foreign_server import VOCABULARY_SIZE, ForeignServer, foreign_server
from traces.jsonl import Run, read_run, write_trajectories
from traces.prompt_size import react_calls
from traces.trajectory import Trajectory, Turn

pytestmark = pytest.mark.wall_clock


def make_tasks() -> list[Trajectory]:
    tasks = [
        make_task(
            f"t{k}",
            Turn(
                content=filler(f"said/{k}", 30),
                tool_calls=(make_call("a", "mail", result=filler(f"a/{k}", 150), latency_s=0.0),),
            ),
            Turn(
                tool_calls=(
                    make_call("b", "files", result=filler(f"b/{k}", 80), latency_s=0.0),
                    make_call("c", "mail", result=filler(f"c/{k}", 90), latency_s=0.0),
                )
            ),
            Turn(content=filler(f"end/{k}", 20)),
        )
        for k in range(2)
    ]
    return [replace(task, system_prompt=filler("system", 150)) for task in tasks]


def run(server: ForeignServer, folder: Path, *flags: str) -> Run:
    write_trajectories(folder / "tasks.jsonl", make_tasks())
    main(
        [
            *("run", "--workload", str(folder / "tasks.jsonl"), "--base-url", server.url, "--no-live"),
            *("--tool-latency", "recorded", "--out", str(folder / "r"), *flags),
        ]
    )
    return read_run(folder / "r")


def traced() -> dict[str, int]:
    return {
        f"{task.task_id}/react#{number}": size.num_prompt_tokens
        for task in make_tasks()
        for number, size in enumerate(react_calls(task))
    }


def counted(run: Run) -> dict[str, int | None]:
    return {call.call_id: call.num_prompt_tokens for call in run.calls}


@pytest.mark.parametrize("has_tokenize", [True, False])
def test_prompts_are_as_long_there_as_in_the_trace(tmp_path: Path, has_tokenize: bool) -> None:
    with foreign_server(has_tokenize=has_tokenize) as server:
        found = run(server, tmp_path)

    assert counted(found) == {call.call_id: call.expected_prompt_tokens for call in found.calls} == traced()
    assert found.header.invalid_reasons == ()
    assert found.header.notes["prompts"] == "6 of 6 prompts have as many tokens as in the trace"
    assert ("/tokenize" if has_tokenize else "measured usage") in found.header.notes["server"]
    assert found.summary["prompts_off"] == 0


def test_nothing_is_asked_while_the_run_goes_on(tmp_path: Path) -> None:
    """All texts are fitted before the clock starts: a run of the same tasks twice as often asks no more."""
    with foreign_server() as server:
        run(server, tmp_path)
        num_first = server.num_questions
        run(server, tmp_path, "--request-rate", "1000")

    assert server.num_questions == 2 * num_first


def test_prompts_can_be_left_as_they_are(tmp_path: Path) -> None:
    with foreign_server() as server:
        found = run(server, tmp_path, "--no-fit-prompts")

    assert counted(found) != traced()
    assert all(call.expected_prompt_tokens is None for call in found.calls)
    assert "prompts" not in found.header.notes
    assert "of its tokens for each of ours" in found.header.notes["server"]
    assert found.summary["prompts_off"] is None
    assert server.prompts[-1]["messages"][1]["content"] in ("Do t0.", "Do t1.")


@pytest.mark.parametrize("has_tokenize", [True, False])
def test_ids_of_its_vocabulary_are_as_many_as_the_trace_has(tmp_path: Path, has_tokenize: bool) -> None:
    with foreign_server(has_tokenize=has_tokenize) as server:
        found = run(server, tmp_path, "--endpoint", "completions")

    assert counted(found) == traced()
    assert found.header.invalid_reasons == ()
    assert all(body["max_tokens"] == body["min_tokens"] and body["ignore_eos"] for body in server.prompts)
    assert all(0 <= one < VOCABULARY_SIZE for body in server.prompts for one in body["prompt"])


def test_the_ids_it_generated_are_part_of_the_next_prompt_where_the_history_is_live(tmp_path: Path) -> None:
    with foreign_server() as server:
        found = run(server, tmp_path, "--endpoint", "completions", "--history", "live", "--max-concurrency", "1")

    first, second = (body["prompt"] for body in server.prompts[-6:-4])
    num_said = server.prompts[-6]["max_tokens"]
    assert second[: len(first) + num_said] == [*first, *range(10, 10 + num_said)]
    assert counted(found) == traced()


def test_a_live_history_holds_its_text_and_its_tool_calls(tmp_path: Path) -> None:
    with foreign_server(calls_tools=True) as server:
        run(server, tmp_path, "--history", "live", "--no-exact-lengths", "--no-fit-prompts", "--num-tasks", "1")

    messages = server.prompts[-2]["messages"][2:]
    assert messages[0]["content"] == " w w"
    assert messages[0]["tool_calls"][0] == {
        "id": "srv-1",
        "type": "function",
        "function": {"name": "mail-do", "arguments": "{}"},
    }
    assert messages[1] == {"role": "tool", "tool_call_id": "srv-1", "content": str(filler("a/0", 150))}


def test_a_live_history_of_exact_lengths_tells_the_results(tmp_path: Path) -> None:
    with foreign_server(calls_tools=True) as server:
        found = run(server, tmp_path, "--history", "live", "--num-tasks", "1")

    assert [one["role"] for one in server.prompts[-1]["messages"]] == [
        *("system", "user", "assistant", "user", "assistant", "user")
    ]
    assert server.prompts[-1]["messages"][2]["content"].startswith(" w w")
    assert found.header.invalid_reasons == ()


def test_a_resumed_live_run_goes_on_with_what_the_server_had_said(tmp_path: Path) -> None:
    state = ("--history", "live", "--state", f"sqlite:{tmp_path / 'state.db'}", "--state-name", "r", "--num-tasks", "1")
    with foreign_server() as server:
        run(server, tmp_path, *state)
        before = orjson.dumps(server.prompts[-1]["messages"])
        num_sent = len(server.prompts)
        again = run(server, tmp_path, *state, "--resume")

    assert len(again.calls) == 3
    assert len(server.prompts) == num_sent + 1  # the probe before the run
    assert b" w w" in before


def test_the_sdk_cannot_send_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--base-url", "http://127.0.0.1:9", "--endpoint", "completions", "--client", "openai"]) == 2
    assert "endpoint chat" in capsys.readouterr().err
