"""Calls to an engine in this process, and what it says of itself."""

from __future__ import annotations

import pytest

from loadgen.config import Settings
from loadgen.doors import in_process
from loadgen.recorder import Recorder
from loadgen.transports.inprocess import build_machine
from mockserver.clock import VirtualClock, run_virtual
from tests.loadgen.fakes import make_call, make_task, replaying
from traces.prompt_size import react_calls
from traces.record import ServerSample
from traces.trajectory import Turn


def samples_of_a_pool_for_one_history(num_blocks: int) -> list[ServerSample]:
    """Two tasks that do not fit into the pool together, one after the other, then looked at."""
    tasks = [make_task(name, *(Turn(content=f"{name} {k} " * 100) for k in range(3))) for name in ("a", "b")]
    recorder = Recorder()

    async def main(clock: VirtualClock) -> None:
        machine = build_machine(Settings(num_gpu_blocks_override=num_blocks + 1, max_model_len=1280), clock)
        async with in_process(machine) as door:
            await replaying(
                clock, door.transport, recorder, *tasks, look=door.look, max_concurrency=1, sample_period_s=0.01
            )

    run_virtual(main)
    assert [task.error for task in recorder.tasks] == [None, None]
    return recorder.samples


def test_samples_say_whose_blocks_were_evicted_since_the_one_before() -> None:
    samples = samples_of_a_pool_for_one_history(80)

    evicted = [sample.evicted_by_agent or {} for sample in samples]
    assert sum(sum(one.values()) for one in evicted) == samples[-1].num_evicted_blocks
    assert {agent_id for one in evicted for agent_id in one} == {"a/react"}


def test_where_nothing_is_evicted_samples_say_nobody() -> None:
    assert {len(sample.evicted_by_agent or {}) for sample in samples_of_a_pool_for_one_history(10_000)} == {0}


def test_a_growing_history_has_the_tokens_and_the_hits_that_it_would_have_if_it_were_encoded_whole() -> None:
    block_size = 16
    calls = [make_call(f"c{k}", "mail", result=f"result {k} " * 30) for k in range(3)]
    turns = [Turn(content=f"step {k} " * 20, tool_calls=(call,)) for k, call in enumerate(calls)]
    task = make_task("t", *turns, Turn(content="done"))
    recorder = Recorder()

    async def main(clock: VirtualClock) -> None:
        machine = build_machine(Settings(), clock)
        async with in_process(machine) as door:
            await replaying(clock, door.transport, recorder, task)

    run_virtual(main)

    sizes = list(react_calls(task))
    assert [call.num_prompt_tokens for call in recorder.calls] == [size.num_prompt_tokens for size in sizes]
    # All but the last token of the answer before was computed, and whole blocks of that are kept.
    whole = [size.num_prompt_tokens + size.num_output_tokens - 1 for size in sizes[:-1]]
    hits = [call.num_cached_tokens for call in recorder.calls]
    assert hits == [0, *(num // block_size * block_size for num in whole)]


@pytest.mark.parametrize("has_cache", [False, True])
def test_blocks_are_addressed_only_where_something_is_cached(has_cache: bool) -> None:
    """Without a cache the same tokens are counted, and nothing is remembered of them."""
    call = make_call("c0", "mail", result="result " * 50)
    task = make_task("t", Turn(content="step " * 20, tool_calls=(call,)), Turn(content="done"))
    recorder = Recorder()
    remembered: list[int] = []

    async def main(clock: VirtualClock) -> None:
        machine = build_machine(Settings(enable_prefix_caching=has_cache), clock)
        async with in_process(machine) as door:
            await replaying(clock, door.transport, recorder, task)
        remembered.append(machine.encoder.chains.num_tokens)

    run_virtual(main)

    assert [call.num_prompt_tokens for call in recorder.calls] == [size.num_prompt_tokens for size in react_calls(task)]
    assert (remembered[0] > 0) == has_cache
