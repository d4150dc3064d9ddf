"""What one task looks like to the server: how many calls, agents and tokens it is, and how much of it at once."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from reports.columns import CallColumns
from reports.measure import RunColumns, distribution
from reports.numbers import TaskShape

KV_NOTE = "kv_bytes_per_token"
"""Where a run's header says how many bytes of KV a token takes on its machine."""


def task_shape(run: RunColumns) -> TaskShape:
    """The shape of a run's tasks; calls that failed do not count."""
    calls = run.calls
    agents: dict[str, set[str]] = defaultdict(set)
    num_calls: dict[str, int] = defaultdict(int)
    num_tokens: dict[str, float] = defaultdict(float)
    context: dict[str, float] = defaultdict(float)
    size = np.nan_to_num(calls.num_prompt_tokens) + np.nan_to_num(calls.num_output_tokens)
    for task_id, agent_id, succeeded, tokens in zip(
        calls.task_id, calls.agent_id, calls.succeeded.tolist(), size.tolist(), strict=True
    ):
        if succeeded:
            agents[task_id].add(agent_id)
            num_calls[task_id] += 1
            num_tokens[task_id] += tokens
            context[agent_id] = max(context[agent_id], tokens)
    contexts = np.asarray(list(context.values()), dtype=np.float64)
    bytes_per_token = _number(run.header.notes.get(KV_NOTE))
    return TaskShape(
        calls=distribution(np.asarray(list(num_calls.values()), dtype=np.float64)),
        agents=distribution(np.asarray([len(one) for one in agents.values()], dtype=np.float64)),
        tokens=distribution(np.asarray(list(num_tokens.values()), dtype=np.float64)),
        parallelism=distribution(np.asarray(_parallelism(calls), dtype=np.float64)),
        context=distribution(contexts),
        kv_bytes=None if bytes_per_token is None else distribution(contexts * bytes_per_token),
    )


def _parallelism(calls: CallColumns) -> list[float]:
    """One value for each task."""
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for task_id, sent_at, ended_at, has_tokens in zip(
        calls.task_id,
        calls.sent_at.tolist(),
        calls.last_token_at.tolist(),
        calls.arrived_with_tokens.tolist(),
        strict=True,
    ):
        if has_tokens:
            spans[task_id].append((sent_at, ended_at))
    found = []
    for one in spans.values():
        in_flight_s = covered_s = 0.0
        until = float("-inf")
        for sent_at, ended_at in sorted(one):
            in_flight_s += ended_at - sent_at
            covered_s += max(0.0, ended_at - max(sent_at, until))
            until = max(until, ended_at)
        if covered_s > 0:
            found.append(in_flight_s / covered_s)
    return found


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
