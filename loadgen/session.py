"""One task being done: what an architecture is given beside the task itself.

An architecture never sees the clock, the transport or the records; it sees a ``Session`` (one per task) and the
``Agent``s it makes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from loadgen.agent import Agent
from loadgen.call import Call, Transport, record_of
from loadgen.context import Conversation, system_message, tool_texts
from loadgen.harness import Harness
from loadgen.recorder import Recorder
from loadgen.tools import ToolTimes
from mockserver.clock import Clock
from traces.trajectory import ToolSchema


@dataclass(eq=False, slots=True)
class Session:
    """One task being done."""

    task_id: str
    started_at: float
    """When the task was due."""
    clock: Clock
    transport: Transport
    tool_times: ToolTimes
    recorder: Recorder
    max_model_len: int | None = None
    """The model's context, where it is known: histories are kept within it."""
    harness: Harness = field(default_factory=Harness)
    shared_tools: tuple[ToolSchema, ...] = ()
    """Given to every agent that has tools, before its own."""
    ready_at: float | None = None
    """When its sandbox had booted; None: it needs none."""
    ended_at: float = 0.0
    """The latest of anything that ended so far."""
    num_calls: int = 0
    num_tool_calls: int = 0
    agents: list[Agent] = field(default_factory=list)
    on_their_way: asyncio.TaskGroup = field(default_factory=asyncio.TaskGroup)
    """Calls that were sent on schedule: the task ends when they have, and none of them goes on without it."""
    first_error: str | None = None
    """Of such a call."""

    def agent(
        self,
        role: str,
        *,
        system_prompt: str = "",
        tools: Sequence[ToolSchema] = (),
        starts_at: float | None = None,
    ) -> Agent:
        """A new agent of this task; ``role`` tells it from the others. It is due at once, or at ``starts_at``."""
        if tools and self.shared_tools:
            tools = tuple(dict.fromkeys((*self.shared_tools, *tools)))
        if starts_at is None:
            starts_at = self.started_at if self.ready_at is None else self.ready_at
        conversation = Conversation(tools=tool_texts(tuple(tools)))
        if system_prompt:
            conversation.add(system_message(system_prompt))
        agent = Agent(
            agent_id=f"{self.task_id}/{role}",
            session=self,
            conversation=conversation,
            due_at=starts_at,
        )
        self.agents.append(agent)
        return agent

    def send(self, call: Call, *, index: int, due_at: float) -> None:
        """Send ``call`` and record it when its answer has ended."""

        async def carry() -> None:
            self.recorder.num_in_flight += 1
            try:
                completion = await self.transport.complete(call)
            finally:
                self.recorder.num_in_flight -= 1
            self.recorder.call(record_of(call, completion, index=index, due_at=due_at))
            self.first_error = self.first_error or completion.error
            self.ended(completion.ended_at)

        self.on_their_way.create_task(carry(), name=call.call_id)

    def ended(self, at: float) -> None:
        """Something of this task ended."""
        self.ended_at = max(self.ended_at, at)
