"""The embedded workload: its figures, its exactness, and that it is the same everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import groupby

import orjson
import pytest

from mockserver import tokens
from mockserver.tokens import TokenText
from traces import synth
from traces.recipe import TOOLATHLON_LIKE
from traces.trajectory import Trajectory
from traces.workload import digest_of, load_workload


@pytest.fixture(scope="module")
def workload() -> tuple[Trajectory, ...]:
    return load_workload("toolathlon-like").trajectories


def percentile(values: list[int], share: float) -> int:
    return sorted(values)[round(share * (len(values) - 1))]


def test_every_text_carries_exactly_the_ids_that_tokenising_it_gives(workload: tuple[Trajectory, ...]) -> None:
    """Nobody tokenises the workload again, so ids that differ from the text's would go unnoticed."""
    for trajectory in workload[::40]:
        texts = [trajectory.system_prompt, trajectory.user_prompt, *(tool.text for tool in trajectory.tools)]
        for turn in trajectory.turns:
            texts.append(turn.content)
            texts += [text for call in turn.tool_calls for text in (call.arguments, call.result)]

        for text in texts:
            assert isinstance(text, TokenText)
            assert text.token_ids == tokens.encode(str(text))


def test_schemas_and_arguments_are_the_json_that_a_server_would_write(workload: tuple[Trajectory, ...]) -> None:
    for trajectory in workload[::40]:
        for tool in trajectory.tools:
            schema = orjson.loads(str(tool.text))
            assert orjson.dumps(schema).decode() == tool.text
            assert schema["function"]["name"] == tool.name
        for turn in trajectory.turns:
            assert all(isinstance(orjson.loads(str(call.arguments)), dict) for call in turn.tool_calls)


def test_a_tool_is_offered_before_it_is_called_and_names_are_unique(workload: tuple[Trajectory, ...]) -> None:
    for trajectory in workload:
        domain_by_name = {tool.name: tool.domain for tool in trajectory.tools}
        assert len(domain_by_name) == len(trajectory.tools)
        for turn in trajectory.turns:
            assert all(domain_by_name[call.name] == call.domain for call in turn.tool_calls)


def test_each_task_has_call_ids_and_prefixes_of_its_own(workload: tuple[Trajectory, ...]) -> None:
    assert len({trajectory.task_id for trajectory in workload}) == 295
    assert len({trajectory.tools[0].text for trajectory in workload}) == 295
    call_ids = [call.call_id for one in workload for turn in one.turns for call in turn.tool_calls]
    assert len(set(call_ids)) == len(call_ids)


def test_ingredients_follow_the_recipe(workload: tuple[Trajectory, ...]) -> None:
    """Medians of what is drawn one by one are the recipe's, within a few percent."""
    recipe = TOOLATHLON_LIKE
    schemas = [sum(tokens.count(tool.text) for tool in one.tools) for one in workload]
    users = [tokens.count(one.user_prompt) for one in workload]
    results = [
        sum(tokens.count(call.result) for call in turn.tool_calls) for one in workload for turn in one.turns[:-1]
    ]

    assert percentile(schemas, 0.5) == pytest.approx(recipe.schema_tokens.median, rel=0.02)
    assert percentile(users, 0.5) == pytest.approx(recipe.user_tokens.median, rel=0.02)
    assert percentile(results, 0.5) == pytest.approx(recipe.result_tokens.median, rel=0.02)
    assert {tokens.count(one.system_prompt) for one in workload} == {recipe.system_tokens}


def test_steps_stay_in_a_domain_as_the_benchmark_s_do(workload: tuple[Trajectory, ...]) -> None:
    runs = []
    for trajectory in workload:
        domains = [turn.tool_calls[0].domain for turn in trajectory.turns if turn.tool_calls]
        runs += [len(list(run)) for _, run in groupby(domains)]

    assert 1 <= percentile(runs, 0.5) <= 2
    assert 7 <= percentile(runs, 0.95) <= 11


def test_servers_per_task_are_the_benchmark_s(workload: tuple[Trajectory, ...]) -> None:
    num_servers = [len({tool.domain for tool in one.tools} - {"local"}) for one in workload]

    assert [percentile(num_servers, share) for share in (0.05, 0.25, 0.5, 0.75, 0.95, 1.0)] == [2, 3, 3, 4, 5, 6]


def test_seven_percent_of_the_steps_call_several_tools(workload: tuple[Trajectory, ...]) -> None:
    sizes = [len(turn.tool_calls) for one in workload for turn in one.turns if turn.tool_calls]

    assert sum(size > 1 for size in sizes) / len(sizes) == pytest.approx(0.07, abs=0.01)


def test_the_first_tasks_are_the_same_however_many_are_made() -> None:
    assert list(synth.generate(num_tasks=3)) == list(synth.generate(num_tasks=7))[:3]


def test_past_its_end_the_workload_goes_on_with_fresh_tasks() -> None:
    longer = list(synth.generate(num_tasks=297))

    assert len({one.task_id for one in longer}) == 297
    assert longer[295].turns != longer[0].turns


def test_another_seed_gives_another_workload() -> None:
    assert load_workload("toolathlon-like", seed=1, num_tasks=3).digest != digest_of(synth.generate(num_tasks=3))


@pytest.mark.parametrize("hash_seed", ["0", "1234"])
def test_the_digest_does_not_depend_on_the_hash_seed(hash_seed: str) -> None:
    """The figure is the workload's name for every later comparison: a change here goes into the CHANGELOG."""
    code = "from traces.workload import load_workload; print(load_workload('toolathlon-like', num_tasks=20).digest)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == load_workload("toolathlon-like", num_tasks=20).digest


def test_making_it_costs_less_than_a_second_of_cpu() -> None:
    import time

    list(synth.generate(num_tasks=1))
    started = time.process_time()

    list(synth.generate())

    assert time.process_time() - started < 1.5  # about 0.6; the rest is for a busy machine
