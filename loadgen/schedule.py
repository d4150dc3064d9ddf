"""Calls that are sent when an earlier run sent them, whatever became of the calls before them.

Where an agent waits for its answers, a slow server is asked for less, and does not show how slow it is. A schedule
keeps asking: each call is due as long after its task's start as it was in a run that the server carried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from traces.jsonl import TraceError, iter_records, read_header
from traces.record import CallRecord, TaskRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSchedule:
    """When each call is due, in seconds from its task's start."""

    source: str
    """Where it is from."""
    due_after_s: Mapping[str, float]

    def due_at(self, call_id: str, task_started_at: float) -> float:
        """When the call is due. Raises TraceError where the earlier run did not make it."""
        after_s = self.due_after_s.get(call_id)
        if after_s is None:
            raise TraceError(f"{self.source}: that run made no call {call_id}, so nobody knows when it is due")
        return task_started_at + after_s


def schedule_of(calls: Iterable[CallRecord], tasks: Iterable[TaskRecord], *, source: str) -> CallSchedule:
    """The schedule that a run's records have."""
    started_at = {task.task_id: task.started_at for task in tasks}
    return CallSchedule(
        source=source,
        due_after_s={
            call.call_id: call.due_at - started_at[call.task_id] for call in calls if call.task_id in started_at
        },
    )


def read_schedule(directory: Path, *, workload_digest: str, architecture: str) -> CallSchedule:
    """The schedule of the run in ``directory``, which must have done the same; TraceError where it did not."""
    header = read_header(directory)
    if (header.workload_digest, header.architecture) != (workload_digest, architecture):
        raise TraceError(f"{directory}: that run had another workload or architecture, so its calls are others")
    return schedule_of(
        iter_records(directory / "calls.jsonl", CallRecord, complete=header.complete),
        iter_records(directory / "tasks.jsonl", TaskRecord, complete=header.complete),
        source=str(directory),
    )
