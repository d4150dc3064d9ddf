"""A run's records as columns, so that every number is one line of arithmetic over all calls at once.

NaN stands where a call lacks a value; nothing is guessed and nothing is zero-filled.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traces.record import SERVER_COUNTS, CallRecord, ServerSample, TaskRecord, ToolRecord

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

NAN = float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallColumns:
    """Every model call of a run, in the order of the records."""

    call_id: tuple[str, ...]
    task_id: tuple[str, ...]
    agent_id: tuple[str, ...]
    index: Floats
    succeeded: Bools
    due_at: Floats
    sent_at: Floats
    scheduled_at: Floats
    first_token_at: Floats
    last_token_at: Floats
    num_prompt_tokens: Floats
    num_cached_tokens: Floats
    num_output_tokens: Floats
    expected_output_tokens: Floats
    expected_prompt_tokens: Floats
    num_preemptions: Floats
    lag_s: Floats
    chunk_gap_s: Floats
    """Gaps between consecutive token chunks, pooled over the calls that succeeded."""
    num_chunk_gaps: Floats
    """How many of them are each call's."""

    def __len__(self) -> int:
        return len(self.call_id)

    @property
    def started_at(self) -> Floats:
        """When the server first scheduled each call; where it does not say so, when it was sent.

        Never outside sent to first token: a server's clock is another than ours, and a late one drifts from it.
        """
        first = np.where(np.isnan(self.first_token_at), self.last_token_at, self.first_token_at)
        started = np.where(np.isnan(self.scheduled_at), self.sent_at, self.scheduled_at)
        return np.fmax(np.fmin(started, first), self.sent_at)

    @property
    def arrived_with_tokens(self) -> Bools:
        """Calls whose times may be used: they succeeded and brought at least one token."""
        return self.succeeded & ~np.isnan(self.first_token_at) & ~np.isnan(self.last_token_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskColumns:
    """Every task of a run, in the order of the records."""

    task_id: tuple[str, ...]
    started_at: Floats
    ended_at: Floats
    num_calls: Floats
    num_tool_calls: Floats
    num_subagents: Floats
    succeeded: Bools

    def __len__(self) -> int:
        return len(self.task_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolColumns:
    """Every tool execution of a run, in the order of the records."""

    task_id: tuple[str, ...]
    agent_id: tuple[str, ...]
    call_id: tuple[str, ...]
    name: tuple[str, ...]
    domain: tuple[str, ...]
    started_at: Floats
    ended_at: Floats

    def __len__(self) -> int:
        return len(self.call_id)


_ORDINARY_CALL_FIELDS = (
    "index",
    "due_at",
    "sent_at",
    "scheduled_at",
    "first_token_at",
    "last_token_at",
    "num_prompt_tokens",
    "num_cached_tokens",
    "num_output_tokens",
    "expected_output_tokens",
    "expected_prompt_tokens",
    "num_preemptions",
    "lag_s",
)


def call_columns(calls: Iterable[CallRecord]) -> CallColumns:
    """The calls as columns; one pass, so that a generator over a huge file will do."""
    call_ids: list[str] = []
    task_ids: list[str] = []
    agent_ids: list[str] = []
    succeeded: list[bool] = []
    gaps: list[Floats] = []
    num_gaps = array("d")
    values = array("d")
    known: dict[str, str] = {}  # one string object for each id, however many calls name it
    for call in calls:
        call_ids.append(call.call_id)
        task_ids.append(known.setdefault(call.task_id, call.task_id))
        agent_ids.append(known.setdefault(call.agent_id, call.agent_id))
        succeeded.append(call.error is None)
        values.extend(
            (
                call.index,
                call.due_at,
                call.sent_at,
                _or_nan(call.scheduled_at),
                _or_nan(call.first_token_at),
                _or_nan(call.last_token_at),
                _or_nan(call.num_prompt_tokens),
                _or_nan(call.num_cached_tokens),
                _or_nan(call.num_output_tokens),
                _or_nan(call.expected_output_tokens),
                _or_nan(call.expected_prompt_tokens),
                _or_nan(call.num_preemptions),
                _or_nan(call.lag_s),
            )
        )
        num_gaps.append(len(call.chunk_at) - 1 if call.error is None and call.chunk_at else 0)
        if num_gaps[-1]:
            gaps.append(np.diff(np.asarray(call.chunk_at, dtype=np.float64)))
    table = np.array(values, dtype=np.float64).reshape(-1, len(_ORDINARY_CALL_FIELDS)).T
    return CallColumns(
        call_id=tuple(call_ids),
        task_id=tuple(task_ids),
        agent_id=tuple(agent_ids),
        succeeded=np.asarray(succeeded, dtype=np.bool_),
        chunk_gap_s=np.concatenate(gaps) if gaps else np.empty(0),
        num_chunk_gaps=np.array(num_gaps, dtype=np.float64),
        **dict(zip(_ORDINARY_CALL_FIELDS, np.ascontiguousarray(table), strict=True)),
    )


def task_columns(tasks: Iterable[TaskRecord]) -> TaskColumns:
    """The tasks as columns."""
    rows = list(tasks)
    return TaskColumns(
        task_id=tuple(task.task_id for task in rows),
        started_at=_floats(task.started_at for task in rows),
        ended_at=_floats(task.ended_at for task in rows),
        num_calls=_floats(task.num_calls for task in rows),
        num_tool_calls=_floats(task.num_tool_calls for task in rows),
        num_subagents=_floats(task.num_subagents for task in rows),
        succeeded=np.asarray([task.error is None for task in rows], dtype=np.bool_),
    )


def tool_columns(tools: Iterable[ToolRecord]) -> ToolColumns:
    """The tool executions as columns."""
    texts: tuple[list[str], ...] = ([], [], [], [], [])
    times = array("d")
    known: dict[str, str] = {}
    for tool in tools:
        for column, text in zip(
            texts, (tool.task_id, tool.agent_id, tool.call_id, tool.name, tool.domain), strict=True
        ):
            column.append(known.setdefault(text, text))
        times.extend((tool.started_at, tool.ended_at))
    task_id, agent_id, call_id, name, domain = map(tuple, texts)
    started_at, ended_at = np.ascontiguousarray(np.array(times, dtype=np.float64).reshape(-1, 2).T)
    return ToolColumns(
        task_id=task_id,
        agent_id=agent_id,
        call_id=call_id,
        name=name,
        domain=domain,
        started_at=started_at,
        ended_at=ended_at,
    )


def sample_columns(samples: Sequence[ServerSample]) -> dict[str, Floats]:
    """The server's samples, one column per gauge and counter of ``ServerSample``."""
    return {name: _floats(_or_nan(getattr(sample, name)) for sample in samples) for name in ("at", *SERVER_COUNTS)}


def _or_nan(value: float | None) -> float:
    return NAN if value is None else value


def _floats(values: Iterable[float]) -> Floats:
    return np.fromiter(values, dtype=np.float64)
