from __future__ import annotations

import pytest

from reports.per_task import task_shape
from tests.reports.records import make_call, make_run, make_task


def test_calls_agents_and_tokens_of_a_task_are_counted_from_calls_that_succeeded() -> None:
    calls = [
        make_call("t/a", 0, num_prompt_tokens=100, num_output_tokens=10),
        make_call("t/a", 1, num_prompt_tokens=200, num_output_tokens=20),
        make_call("t/b", 0, num_prompt_tokens=50, num_output_tokens=5),
        make_call("t/c", 0, error="HTTP 500"),
    ]

    shape = task_shape(make_run(calls=calls, tasks=[make_task()]))

    assert shape.calls is not None
    assert shape.agents is not None
    assert shape.tokens is not None
    assert shape.context is not None
    assert (shape.calls.p50, shape.agents.p50, shape.tokens.p50) == (3.0, 2.0, 385.0)
    assert (shape.context.num, shape.context.max, shape.context.min) == (2, 220.0, 55.0)


def test_calls_at_once_are_averaged_over_the_time_in_which_there_is_one() -> None:
    """Two calls from 0 to 2, one of them to 1 only, then a gap, then one from 5 to 6: 4 call seconds in 3."""
    calls = [
        make_call("t/a", 0, last_token_at=2.0),
        make_call("t/b", 0, last_token_at=1.0),
        make_call("t/a", 1, due_at=5.0, first_token_at=5.5, last_token_at=6.0),
    ]

    shape = task_shape(make_run(calls=calls))

    assert shape.parallelism is not None
    assert shape.parallelism.p50 == pytest.approx(4 / 3)


def test_kv_is_known_where_the_header_says_what_a_token_takes() -> None:
    call = make_call(num_prompt_tokens=990, num_output_tokens=10)

    known = task_shape(make_run(calls=[call], notes={"kv_bytes_per_token": "70272"})).kv_bytes
    unknown = task_shape(make_run(calls=[call], notes={"kv_bytes_per_token": "many"})).kv_bytes

    assert known is not None
    assert known.p50 == 70_272_000
    assert unknown is None


def test_a_run_without_calls_has_no_shape() -> None:
    shape = task_shape(make_run(calls=[], tasks=[]))

    assert (shape.calls, shape.parallelism, shape.context) == (None, None, None)
