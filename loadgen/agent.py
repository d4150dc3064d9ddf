"""What an architecture makes its agents from: a history that grows, model calls and tools, and the time of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from loadgen.abilities import error_text
from loadgen.call import Call, DoneCall, record_of
from loadgen.context import (
    TOKEN_IDS,
    Conversation,
    Message,
    assistant_message,
    tool_message,
    user_message,
    with_text,
)
from loadgen.context_policy import ASK_FOR_A_SUMMARY, ContextPolicy
from loadgen.live_history import NO_RESULT, OpenCalls, match_calls
from loadgen.recorded_text import NO_TEXT, RecordedText
from loadgen.room import fitted
from loadgen.schedule import CallSchedule
from loadgen.state import Checkpoint
from loadgen.tool_layer import failure_text
from mockserver.filler import filler
from traces.prompt_size import reply_tokens
from traces.record import ToolRecord
from traces.trajectory import ToolCall, Turn

if TYPE_CHECKING:
    from loadgen.session import Session


class CallFailed(Exception):
    """A model call failed: its task ends here, the others go on. The text is the call's error."""


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
    recorded_text: RecordedText = NO_TEXT
    """Of the last prompt that the recording has only hashes of."""
    open_calls: OpenCalls | None = None
    """Of its last answer, where that is the server's own."""
    audience: tuple[Agent, ...] = ()
    """Agents whose histories grow by everything that this one's grows by: they share a transcript."""

    @property
    def report(self) -> str:
        """What it says last; where it has said nothing, what its last tool answered."""
        return self.last_said or self.last_result

    def hear(self, text: str) -> None:
        """The user, or another agent, says ``text``."""
        if self.open_calls is not None and (untold := self.open_calls.told()):
            text = f"{untold}\n\n{text}"  # one message: some templates take no two of the user's in a row
        self._grow(user_message(text))

    def follow(self, other: Agent) -> None:
        """Its next call waits for all that ``other`` has done so far."""
        self.due_at = max(self.due_at, other.due_at)

    def receive(self, tool_call_id: str, text: str, *, at: float) -> None:
        """A tool's answer that the architecture made up itself (a subagent's report), there at ``at``."""
        self.due_at = max(self.due_at, at)
        if self.open_calls is None:
            self._grow(tool_message(tool_call_id, text))
        elif tool_call_id in self.open_calls.id_by_recorded_id:
            self._grow(tool_message(self.open_calls.id_by_recorded_id[tool_call_id], text))
        else:
            self.open_calls.untold.append(text)

    async def say(self, turn: Turn, *, is_overhead: bool = False) -> None:
        """One model call, answered as ``turn`` was; the history grows by the answer. Tools are not run.

        ``is_overhead`` marks a call that is not in the recording: a plan, a hand-over, a choice of who is next.
        """
        if turn.prompt is not None:
            self.recorded_text = self.recorded_text.followed_by(turn.prompt)
            self.conversation = Conversation(messages=[user_message(self.recorded_text.text)])
        else:
            if turn.user_message is not None:
                self.hear(turn.user_message)
            self._tell_untold()
            if self.session.harness.context_policy is not None:
                await self._keep_to(self.session.harness.context_policy)
        turn = with_text(turn, f"{self.agent_id}#{self.index}")
        num_output_tokens = reply_tokens(turn)
        self._make_room(num_output_tokens)
        reply = assistant_message(turn)
        answer = await self._call(reply, num_output_tokens, is_overhead=is_overhead)
        self._grow(answer)
        self.open_calls = None
        if answer is not reply and TOKEN_IDS not in answer:  # ids are text, in which no tool call can be told apart
            self.open_calls = match_calls(turn.tool_calls, answer)
            for call_id in self.open_calls.unknown_ids:
                self._grow(tool_message(call_id, NO_RESULT))
        if answer["content"]:
            self.last_said = answer["content"]

    async def use_tools(self, turn: Turn) -> None:
        """Run the tools that ``turn`` asked for, side by side; the history grows by their answers.

        Tools that are given up are asked for once more.
        """
        if not turn.tool_calls:
            return
        failed = await self._run_tools(turn.tool_calls)
        if failed:
            again = Turn(tool_calls=tuple(replace(call, call_id=f"{call.call_id}-again") for call in failed))
            await self.say(again, is_overhead=True)
            await self._run_tools(again.tool_calls, is_last_chance=True)

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

    async def _run_tools(self, calls: Sequence[ToolCall], *, is_last_chance: bool = False) -> list[ToolCall]:
        """Run ``calls``; returns those that were given up."""
        session = self.session
        state = session.harness.state
        call_id = f"{self.agent_id}#{self.index - 1}"
        known = session.harness.past.tools(call_id, len(calls))
        asked_at = self.due_at
        records = known or [self._run_tool(call, call_id, asked_at, is_last_chance=is_last_chance) for call in calls]
        failed = []
        for call, record in zip(calls, records, strict=True):
            is_failed = record.is_error and not call.is_error
            self.receive(call.call_id, failure_text(call) if is_failed else call.result, at=record.ended_at)
            if is_failed:
                failed.append(call)
        if self.audience:
            self._tell_untold()  # somebody else speaks next
        if known is None:
            await session.clock.sleep_until(self.due_at)
            if state is not None:
                await state.save_tools(call_id, records, self._checkpoint())
        for record in records:
            session.recorder.tool(record)
        session.num_tool_calls += len(records)
        session.ended(self.due_at)
        self.last_result = calls[-1].result
        return failed

    def _run_tool(self, call: ToolCall, call_id: str, asked_at: float, *, is_last_chance: bool) -> ToolRecord:
        session = self.session
        layer = session.harness.tools
        is_error = call.is_error
        if layer is None:
            ended_at = asked_at + session.tool_times.latency_s(session.task_id, call)
        else:
            done = layer.run(session.task_id, call, asked_at=asked_at, is_last_chance=is_last_chance)
            ended_at = done.answered_at
            is_error = is_error or done.is_failed
        return ToolRecord(
            task_id=session.task_id,
            agent_id=self.agent_id,
            call_id=call_id,
            name=call.name,
            domain=call.domain,
            started_at=asked_at,
            ended_at=ended_at,
            is_error=is_error,
        )

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
            answer = await self._call(assistant_message(reply), reply_tokens(reply), is_overhead=True)
            self.conversation = policy.summarised(before, answer["content"] or "")
            harness.num_summaries += 1
            return
        shorter = policy.cut(self.conversation)
        harness.num_cuts += shorter is not self.conversation
        self.conversation = shorter

    def _grow(self, message: Message) -> None:
        self.conversation.add(message)
        for agent in self.audience:
            agent.conversation.add(message)

    def _tell_untold(self) -> None:
        if self.open_calls is not None and (untold := self.open_calls.told()):
            self._grow(user_message(untold))

    def _make_room(self, num_output_tokens: int) -> None:
        limit = self.session.max_model_len
        if limit is None:
            return
        self.conversation, num_removed = fitted(self.conversation, num_output_tokens=num_output_tokens, limit=limit)
        self.session.recorder.num_results_removed += num_removed

    async def _call(self, reply: Message, num_output_tokens: int, *, is_overhead: bool) -> Message:
        """Make one call; returns what the history grows by: ``reply``, or what the server said in its place."""
        session = self.session
        call_id = f"{self.agent_id}#{self.index}"
        done = session.harness.past.call(call_id)
        session.recorder.num_overhead_calls += is_overhead
        session.num_calls += 1
        if done is None and session.harness.schedule is not None:
            await self._send_on_schedule(session.harness.schedule, call_id, reply, num_output_tokens)
            return reply
        if done is None:
            done = await self._send(call_id, reply, num_output_tokens, is_overhead=is_overhead)
        session.recorder.call(done.record)
        self.index += 1
        if done.record.error is not None:
            if session.harness.schedule is None:
                raise CallFailed(done.record.error)
            session.first_error = session.first_error or done.record.error  # as when it was sent
        self.due_at = done.ended_at
        session.ended(self.due_at)
        return reply if done.answer is None else done.answer

    async def _send(self, call_id: str, reply: Message, num_output_tokens: int, *, is_overhead: bool) -> DoneCall:
        session = self.session
        harness, recorder = session.harness, session.recorder
        self.due_at = max(self.due_at, harness.past.ended_at)
        if harness.batch_window is not None:
            self.due_at = harness.batch_window.release_at(self.due_at)
            await session.clock.sleep_until(self.due_at)
        if harness.state is not None:
            await harness.state.begin_step(self.agent_id, self.index)
        call = Call(
            call_id=call_id,
            task_id=session.task_id,
            agent_id=self.agent_id,
            conversation=self.conversation,
            reply=reply,
            num_output_tokens=num_output_tokens,
            is_overhead=is_overhead,
        )
        recorder.num_in_flight += 1
        try:
            completion = await session.transport.complete(call)
        finally:
            recorder.num_in_flight -= 1
        ended_at = completion.ended_at
        if harness.abilities is not None and harness.abilities.guided_decoding_overhead and reply.get("tool_calls"):
            ended_at += harness.abilities.guided_delay_s(completion)
            await session.clock.sleep_until(ended_at)
        answer = completion.answer if harness.history_is_live else None
        done = DoneCall(
            record=record_of(call, completion, index=self.index, due_at=self.due_at), ended_at=ended_at, answer=answer
        )
        if harness.state is not None and completion.error is None:
            await harness.state.save_call(done, self._checkpoint(answer or reply))
        return done

    async def _send_on_schedule(
        self, schedule: CallSchedule, call_id: str, reply: Message, num_output_tokens: int
    ) -> None:
        """Send a call when its time has come, and go on without its answer, which is the recorded one anyway."""
        session = self.session
        self.due_at = max(schedule.due_at(call_id, session.started_at), session.harness.past.ended_at)
        await session.clock.sleep_until(self.due_at)
        call = Call(
            call_id=call_id,
            task_id=session.task_id,
            agent_id=self.agent_id,
            # A copy: the history grows while this call is still on its way.
            conversation=Conversation(tools=self.conversation.tools, messages=list(self.conversation.messages)),
            reply=reply,
            num_output_tokens=num_output_tokens,
        )
        session.send(call, index=self.index, due_at=self.due_at)
        self.index += 1
        session.ended(self.due_at)

    def _checkpoint(self, reply: Message | None = None) -> Checkpoint:
        """Its state: with ``reply``, after the call that is being answered by it."""
        return Checkpoint(
            agent_id=self.agent_id,
            num_calls=self.index if reply is None else self.index + 1,
            conversation=self.conversation,
            reply=reply,
        )
