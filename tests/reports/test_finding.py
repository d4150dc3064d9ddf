"""The finding names a cause only where the numbers carry it."""

from __future__ import annotations

from typing import Any

from reports.compare import compare
from reports.finding import finding
from reports.measure import RunColumns
from tests.reports.records import make_call, make_run, make_sample, make_task


def one_task_run(*, end: float, queue_s: float, num_prompt_tokens: int, **header: Any) -> RunColumns:
    call = make_call(
        scheduled_at=queue_s, first_token_at=queue_s + 0.1, last_token_at=end, num_prompt_tokens=num_prompt_tokens
    )
    return make_run(
        calls=[call], tasks=[make_task(ended_at=end, num_subagents=header.pop("num_subagents", 0))], **header
    )


def test_work_is_the_cause_where_the_server_limits_both_and_the_ratios_agree() -> None:
    fast = one_task_run(
        end=10.0,
        queue_s=9.0,
        num_prompt_tokens=1000,
        prefix_caching=False,
        architecture="orchestrator",
        num_subagents=2,
    )
    slow = one_task_run(end=30.0, queue_s=28.0, num_prompt_tokens=3000, prefix_caching=False)

    (text,) = finding(compare([slow, fast]))

    assert text.startswith(
        "With the prefix cache off, the orchestrator finishes the 1 tasks in 10 s; ReAct takes 30 s,"
    )
    assert "3.0 times as many, which is the difference" in text
    assert "information locality" in text


def test_no_cause_is_named_where_the_server_waits_for_the_agents() -> None:
    fast = one_task_run(end=10.0, queue_s=0.0, num_prompt_tokens=1000, architecture="orchestrator")
    slow = one_task_run(end=30.0, queue_s=0.0, num_prompt_tokens=3000)

    (text,) = finding(compare([slow, fast]))

    assert "which is the difference" not in text
    assert "An average task of ReAct takes 30 s: decode" in text


def test_what_the_cache_does_is_said_for_each_architecture() -> None:
    runs = [
        one_task_run(end=40.0, queue_s=0.0, num_prompt_tokens=4000, prefix_caching=False),
        one_task_run(end=10.0, queue_s=0.0, num_prompt_tokens=4000, prefix_caching=True),
    ]

    (text,) = finding(compare(runs))

    assert text.startswith("ReAct goes from 40 s to 10 s with the prefix cache, 4.0 times as fast")


def test_an_invalid_run_makes_the_finding_a_hint() -> None:
    texts = finding(compare([make_run(complete=False)]))

    assert "a hint and not a result" in texts[0]


def test_work_that_hardly_differs_is_not_named_as_the_cause() -> None:
    """1.05 times the work does not explain 1.2 times the time."""
    fast = one_task_run(end=10.0, queue_s=9.0, num_prompt_tokens=1000, architecture="orchestrator")
    slow = one_task_run(end=12.0, queue_s=11.0, num_prompt_tokens=1050)

    (text,) = finding(compare([slow, fast]))

    assert "which is the difference" not in text


def test_a_run_that_ends_later_with_the_faster_average_task_is_decided_by_its_longest() -> None:
    slow = make_run(
        calls=[make_call("a/react", last_token_at=2.0), make_call("b/react", last_token_at=20.0)],
        tasks=[make_task("a", ended_at=2.0), make_task("b", ended_at=20.0)],
    )
    fast = make_run(
        calls=[make_call("a/orchestrator", last_token_at=15.0), make_call("b/orchestrator", last_token_at=15.0)],
        tasks=[make_task("a", ended_at=15.0), make_task("b", ended_at=15.0)],
        architecture="orchestrator",
    )

    (text,) = finding(compare([slow, fast]))

    assert text.endswith(
        "ReAct has the faster average task, and ends later because of its longest: 20 s against 15 s,"
        " a chain of 1 calls where the orchestrator has 1."
    )


def test_runs_that_differ_in_more_than_architecture_and_cache_are_told_apart() -> None:
    runs = [
        one_task_run(
            end=end, queue_s=0.0, num_prompt_tokens=1000, architecture=architecture, target=target, clock=clock
        )
        for architecture, end in (("react", 30.0), ("orchestrator", 10.0))
        for target, clock in (("in-process", "virtual"), ("http://localhost:8000", "wall"))
    ]

    texts = finding(compare(runs))

    assert texts[0].startswith("In process, virtual time, kimi-k2-8xb200: With the prefix cache on, the orchestrator")
    assert texts[1].startswith("Over HTTP, wall time, kimi-k2-8xb200: With the prefix cache on, the orchestrator")
    assert texts[2] == "2 runs in real time end within 0.0 % of their twins in virtual time."


def test_histories_that_were_evicted_too_early_are_named_with_what_they_cost() -> None:
    """The second call could have had 96 of its 150 tokens from the cache and had none."""
    calls = [make_call(), make_call(index=1, due_at=2.0, first_token_at=3.0, last_token_at=9.0, num_prompt_tokens=150)]
    samples = [make_sample(0.0), make_sample(9.0, num_evicted_blocks=6)]
    slow = make_run(calls=calls, tasks=[make_task(ended_at=9.0)], samples=samples)
    fast = one_task_run(end=3.0, queue_s=0.0, num_prompt_tokens=100, architecture="orchestrator")

    (text,) = finding(compare([slow, fast]))

    assert (
        "The pool is too small for ReAct: 0.0 % of its prompt tokens are hits where its own histories alone would have"
        " allowed 38.4 %, because 96 tokens of them were evicted before they were needed again."
    ) in text
