"""What a run had done before it was broken off: steps that are taken from here and not done again.

To resume, the architectures run again from the start. A call that was answered before is not sent, and tools that had
answered are not run; where the past ends, the present begins. It comes from a run's own records, or from the store of
its agents' state (``loadgen.state``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from loadgen.call import DoneCall
from traces.jsonl import Run
from traces.record import CallRecord, ToolRecord


@dataclass(eq=False, slots=True, kw_only=True)
class Past:
    """Calls that had ended, tools that had answered and tasks that were over. Empty in a run that starts."""

    ended_at: float = 0.0
    """When the latest of it ended: the run goes on at that instant."""
    num_taken: int = 0
    """Steps that were found here."""
    _call_by_id: dict[str, DoneCall] = field(default_factory=dict)
    _tools_by_call_id: dict[str, list[ToolRecord]] = field(default_factory=dict)
    _started_at: dict[str, float] = field(default_factory=dict)
    _ended_task_ids: set[str] = field(default_factory=set)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was done before."""
        return self.ended_at == 0.0

    def call(self, call_id: str) -> DoneCall | None:
        """The call, if it had ended."""
        done = self._call_by_id.get(call_id)
        self.num_taken += done is not None
        return done

    def tools(self, call_id: str, num_tools: int) -> list[ToolRecord] | None:
        """The ``num_tools`` tools that the call asked for, if all of them had answered."""
        records = self._tools_by_call_id.get(call_id, [])
        if not num_tools or len(records) != num_tools:
            return None
        self.num_taken += 1
        return records

    def started_at(self, task_id: str) -> float | None:
        """When ``task_id`` was due, where a step of it is known."""
        return self._started_at.get(task_id)

    def has_ended(self, task_id: str) -> bool:
        """Whether ``task_id`` was over."""
        return task_id in self._ended_task_ids

    def add_call(self, done: DoneCall) -> None:
        """A call had ended."""
        record = done.record
        self._call_by_id[record.call_id] = done
        self.ended_at = max(self.ended_at, done.ended_at)
        self._started_at[record.task_id] = min(self._started_at.get(record.task_id, record.due_at), record.due_at)

    def add_tools(self, call_id: str, records: Sequence[ToolRecord]) -> None:
        """Tools that the call asked for had answered."""
        self._tools_by_call_id[call_id] = list(records)
        self.ended_at = max([self.ended_at, *(record.ended_at for record in records)])

    def add_run(self, run: Run) -> None:
        """All that a run directory holds."""
        tools_by_call_id: dict[str, list[ToolRecord]] = {}
        for tool in run.tools:
            tools_by_call_id.setdefault(tool.call_id, []).append(tool)
        for call in run.calls:
            tools = tools_by_call_id.get(call.call_id, ())
            self.add_call(DoneCall(record=call, ended_at=_ended_at(call, tools)))
        for call_id, records in tools_by_call_id.items():
            self.add_tools(call_id, records)
        for task in run.tasks:
            self._started_at[task.task_id] = task.started_at
            self._ended_task_ids.add(task.task_id)


def _ended_at(call: CallRecord, tools: Iterable[ToolRecord]) -> float:
    """When the call's agent could go on: its tools were asked for then."""
    asked_at = min((tool.started_at for tool in tools), default=None)
    if asked_at is not None:
        return asked_at
    return call.sent_at if call.last_token_at is None else call.last_token_at
