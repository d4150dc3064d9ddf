"""What was measured so far: every record as it ends, on disk at once and in memory for the summary."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

import orjson

from traces.jsonl import Run, RunWriter
from traces.record import CallRecord, ServerSample, TaskRecord, ToolRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class LagLimit:
    """What would make a run not worth going on: more calls later than they may be."""

    lag_s: float
    num_calls: int


@dataclass(eq=False, slots=True)
class Recorder:
    """The records of one run."""

    writer: RunWriter | None = None
    """Where they are kept; None: in memory only."""
    keep_chunks: bool = True
    """Whether the arrival of every chunk is kept on disk too."""
    on_record: Callable[[], None] = lambda: None
    """Told after each call, task and sample."""
    lag_limit: LagLimit | None = None
    num_late: int = 0
    """Calls whose lag was over the limit."""
    num_in_flight: int = 0
    """Calls sent whose answer has not ended."""
    num_tasks_started: int = 0
    num_results_removed: int = 0
    """Tool results that gave way because a history had outgrown the model's context."""
    num_overhead_calls: int = 0
    """Calls that the recording does not have: the architecture's own."""
    calls: list[CallRecord] = field(default_factory=list)
    tools: list[ToolRecord] = field(default_factory=list)
    tasks: list[TaskRecord] = field(default_factory=list)
    samples: list[ServerSample] = field(default_factory=list)
    _known_ids: set[str] = field(default_factory=set)
    """Calls and tasks that were recorded before the run was resumed."""
    _num_known_tools: Counter[str] = field(default_factory=Counter)
    """Likewise the tools, by the call that asked for them."""

    def take_over(self, run: Run) -> None:
        """The run is resumed: what ``run`` holds is on disk already, and will be heard of once more."""
        self.calls, self.tools, self.tasks, self.samples = run.calls, run.tools, run.tasks, run.samples
        self._known_ids.update(f"call {call.call_id}" for call in run.calls)
        self._known_ids.update(f"task {task.task_id}" for task in run.tasks)
        self._num_known_tools.update(tool.call_id for tool in run.tools)

    def call(self, record: CallRecord) -> None:
        """A model call has ended."""
        if self._known_ids and f"call {record.call_id}" in self._known_ids:
            return
        self.calls.append(record)
        if self.lag_limit is not None and record.lag_s is not None and record.lag_s > self.lag_limit.lag_s:
            self.num_late += 1
        if self.writer is not None:
            self.writer.call(record if self.keep_chunks or not record.chunk_at else replace(record, chunk_at=()))
        self.on_record()

    @property
    def is_hopeless(self) -> bool:
        """Whether so many calls were late that the run cannot be valid any more."""
        return self.lag_limit is not None and self.num_late > self.lag_limit.num_calls

    def tool(self, record: ToolRecord) -> None:
        """A tool has ended."""
        if self._num_known_tools and self._num_known_tools[record.call_id]:
            self._num_known_tools[record.call_id] -= 1
            return
        self.tools.append(record)
        if self.writer is not None:
            self.writer.tool(record)

    def task(self, record: TaskRecord) -> None:
        """A task has ended."""
        if self._known_ids and f"task {record.task_id}" in self._known_ids:
            return
        self.tasks.append(record)
        if self.writer is not None:
            self.writer.task(record)
        self.on_record()

    def sample(self, record: ServerSample) -> None:
        """The server was looked at."""
        self.samples.append(record)
        if self.writer is not None:
            self.writer.sample(record)
        self.on_record()

    def digest(self) -> str:
        """sha256 over all records, each kind in an order that does not depend on who ended first."""
        digest = hashlib.sha256()
        for records in (
            sorted(self.calls, key=attrgetter("call_id")),
            sorted(self.tools, key=lambda tool: (tool.call_id, tool.started_at, tool.ended_at, tool.name)),
            sorted(self.tasks, key=attrgetter("task_id")),
            self.samples,
        ):
            _update(digest, records)
        return digest.hexdigest()


def _update(digest: Any, records: list[Any]) -> None:
    for record in records:
        digest.update(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
    digest.update(b"\n")
