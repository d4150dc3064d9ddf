"""What an architecture may use: agents that call the model and run tools, and the time of both.

An architecture never sees the clock, the transport or the records; it sees a ``Session`` (one per task) and the
``Agent``s it makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from loadgen.abilities import error_text
from loadgen.call import Call, Completion, Transport
from loadgen.context import (
    Conversation,
    Message,
    assistant_message,
    system_message,
    text_of_recorded_prompt,
    tool_message,
    tool_texts,
    user_message,
    with_text,
)
from loadgen.context_policy import ASK_FOR_A_SUMMARY, ContextPolicy
from loadgen.harness import Harness
from loadgen.recorder import Recorder
from loadgen.room import fitted
from loadgen.tool_layer import ToolLayer, failure_text
from loadgen.tools import ToolTimes
from mockserver.clock import Clock
from mockserver.filler import filler
from traces.prompt_size import reply_tokens
from traces.record import CallRecord, ToolRecord
from traces.trajectory import ToolCall, ToolSchema, Turn


class CallFailed(Exception):
    """A model call failed: its task ends here, the others go on. The text is the call's error."""


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

    def ended(self, at: float) -> None:
        """Something of this task ended."""
        self.ended_at = max(self.ended_at, at)


@dataclass(eq=False, slots=True)
class Agent:
    """One agent: a history that grows, one model call at a time."""

    agent_id: str
    session: Session
    conversation: Conversation
    due_at: float
    """When its next call is due: its predecessors are done and their tools have answered."""
    index: int = 0
    last_said: str = ""
    last_result: str = ""
    recorded_hashes: tuple[int, ...] = ()
    """Of the last prompt that the recording has only hashes of."""
    audience: tuple[Agent, ...] = ()
    """Agents whose histories grow by everything that this one's grows by: they share a transcript."""

    @property
    def report(self) -> str:
        """What it says last; where it has said nothing, what its last tool answered."""
        return self.last_said or self.last_result

    def hear(self, text: str) -> None:
        """The user, or another agent, says ``text``."""
        self._grow(user_message(text))

    def follow(self, other: Agent) -> None:
        """Its next call waits for all that ``other`` has done so far."""
        self.due_at = max(self.due_at, other.due_at)

    def receive(self, tool_call_id: str, text: str, *, at: float) -> None:
        """A tool's answer that the architecture made up itself (a subagent's report), there at ``at``."""
        self._grow(tool_message(tool_call_id, text))
        self.due_at = max(self.due_at, at)

    async def say(self, turn: Turn, *, is_overhead: bool = False) -> None:
        """One model call, answered as ``turn`` was; the history grows by the answer. Tools are not run.

        ``is_overhead`` marks a call that is not in the recording: a plan, a hand-over, a choice of who is next.
        """
        if turn.prompt is not None:
            self.recorded_hashes = turn.prompt.hashes_after(self.recorded_hashes)
            text = text_of_recorded_prompt(turn.prompt, self.recorded_hashes)
            self.conversation = Conversation(messages=[user_message(text)])
        else:
            if turn.user_message is not None:
                self.hear(turn.user_message)
            if self.session.harness.context_policy is not None:
                await self._keep_to(self.session.harness.context_policy)
        turn = with_text(turn, f"{self.agent_id}#{self.index}")
        reply = assistant_message(turn)
        num_output_tokens = reply_tokens(turn)
        self._make_room(num_output_tokens)
        await self._call(reply, num_output_tokens, is_overhead=is_overhead)
        self._grow(reply)
        if turn.content:
            self.last_said = turn.content

    async def use_tools(self, turn: Turn) -> None:
        """Run the tools that ``turn`` asked for, side by side; the history grows by their answers."""
        if not turn.tool_calls:
            return
        session = self.session
        if session.harness.tools is not None:
            await self._use_layer(session.harness.tools, turn)
            return
        started_at = self.due_at
        records = []
        for call in turn.tool_calls:
            ended_at = started_at + session.tool_times.latency_s(session.task_id, call)
            records.append(self._tool_record(call, started_at, ended_at))
            self.receive(call.call_id, call.result, at=ended_at)
        await session.clock.sleep_until(self.due_at)
        for record in records:
            session.recorder.tool(record)
        session.num_tool_calls += len(records)
        session.ended(self.due_at)
        self.last_result = turn.tool_calls[-1].result

    async def take_turn(self, turn: Turn) -> None:
        """One model call and the tools it asks for; where the model gets a call wrong, once more."""
        abilities = self.session.harness.abilities
        if abilities is not None:
            for wrong in abilities.wrong_tries(self.session.task_id, turn, num_tools=len(self.conversation.tools)):
                await self.say(replace(wrong, user_message=turn.user_message), is_overhead=True)
                turn = replace(turn, user_message=None)
                for call in wrong.tool_calls:
                    self.receive(call.call_id, error_text(call), at=self.due_at)
        await self.say(turn)
        await self.use_tools(turn)

    async def _use_layer(self, layer: ToolLayer, turn: Turn, *, is_last_chance: bool = False) -> None:
        """Run the tools that ``turn`` asked for through ``layer``; those that fail are asked for once more."""
        session = self.session
        asked_at = self.due_at
        records, failed = [], []
        for call in turn.tool_calls:
            done = layer.run(session.task_id, call, asked_at=asked_at, is_last_chance=is_last_chance)
            records.append(self._tool_record(call, asked_at, done.answered_at, is_failed=done.is_failed))
            self.receive(call.call_id, failure_text(call) if done.is_failed else call.result, at=done.answered_at)
            if done.is_failed:
                failed.append(replace(call, call_id=f"{call.call_id}-again"))
        await session.clock.sleep_until(self.due_at)
        for record in records:
            session.recorder.tool(record)
        session.num_tool_calls += len(records)
        session.ended(self.due_at)
        self.last_result = turn.tool_calls[-1].result
        if failed:
            again = Turn(tool_calls=tuple(failed))
            await self.say(again, is_overhead=True)
            await self._use_layer(layer, again, is_last_chance=True)

    async def _keep_to(self, policy: ContextPolicy) -> None:
        """Make the history as short as ``policy`` wants it, which may take a call."""
        harness = self.session.harness
        if policy.summarises:
            if not policy.is_worth_a_summary(self.conversation):
                return
            before = self.conversation
            self.conversation = Conversation(tools=before.tools, messages=list(before.messages))
            self.conversation.add(user_message(ASK_FOR_A_SUMMARY))
            summary = filler(f"summary/{self.agent_id}/{self.index}", policy.summary_tokens)
            reply = Turn(content=summary)
            self._make_room(reply_tokens(reply))
            await self._call(assistant_message(reply), reply_tokens(reply), is_overhead=True)
            self.conversation = policy.summarised(before, summary)
            harness.num_summaries += 1
            return
        shorter = policy.cut(self.conversation)
        harness.num_cuts += shorter is not self.conversation
        self.conversation = shorter

    def _grow(self, message: Message) -> None:
        self.conversation.add(message)
        for agent in self.audience:
            agent.conversation.add(message)

    def _make_room(self, num_output_tokens: int) -> None:
        limit = self.session.max_model_len
        if limit is None:
            return
        self.conversation, num_removed = fitted(self.conversation, num_output_tokens=num_output_tokens, limit=limit)
        self.session.recorder.num_results_removed += num_removed

    async def _call(self, reply: Message, num_output_tokens: int, *, is_overhead: bool) -> None:
        session = self.session
        if session.harness.batch_window is not None:
            self.due_at = session.harness.batch_window.release_at(self.due_at)
            await session.clock.sleep_until(self.due_at)
        call = Call(
            call_id=f"{self.agent_id}#{self.index}",
            task_id=session.task_id,
            agent_id=self.agent_id,
            conversation=self.conversation,
            reply=reply,
            num_output_tokens=num_output_tokens,
            is_overhead=is_overhead,
        )
        session.recorder.num_overhead_calls += is_overhead
        session.recorder.num_in_flight += 1
        try:
            completion = await session.transport.complete(call)
        finally:
            session.recorder.num_in_flight -= 1
        session.recorder.call(self._call_record(call, completion))
        self.index += 1
        session.num_calls += 1
        if completion.error is not None:
            raise CallFailed(completion.error)
        self.due_at = completion.ended_at
        session.ended(self.due_at)

    def _call_record(self, call: Call, completion: Completion) -> CallRecord:
        return CallRecord(
            call_id=call.call_id,
            task_id=call.task_id,
            agent_id=call.agent_id,
            index=self.index,
            due_at=self.due_at,
            sent_at=completion.sent_at,
            first_token_at=completion.first_token_at,
            last_token_at=completion.last_token_at,
            num_prompt_tokens=completion.num_prompt_tokens,
            num_cached_tokens=completion.num_cached_tokens,
            num_output_tokens=completion.num_output_tokens,
            expected_output_tokens=completion.expected_output_tokens,
            finish_reason=completion.finish_reason,
            error=completion.error,
            status=completion.status,
            scheduled_at=completion.scheduled_at,
            num_preemptions=completion.num_preemptions,
            num_retries=completion.num_retries,
            lag_s=completion.lag_s,
            chunk_at=completion.chunk_at,
        )

    def _tool_record(
        self, call: ToolCall, started_at: float, ended_at: float, *, is_failed: bool = False
    ) -> ToolRecord:
        return ToolRecord(
            task_id=self.session.task_id,
            agent_id=self.agent_id,
            call_id=f"{self.agent_id}#{self.index - 1}",
            name=call.name,
            domain=call.domain,
            started_at=started_at,
            ended_at=ended_at,
            is_error=call.is_error or is_failed,
        )
