"""Calls to an engine in this process: the same machine without sockets, which is what virtual time needs.

The only file of the load generator that knows the machine.
"""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass, field
from weakref import WeakKeyDictionary

from loadgen.call import Call, Completion
from loadgen.config import Settings
from loadgen.context import Conversation, Message
from mockserver.clock import Clock
from mockserver.driver import Driver
from mockserver.engine.chains import BlockPath, ChainRun
from mockserver.engine.config import EngineConfig
from mockserver.engine.request import Request
from mockserver.node import build_driver, build_encoder
from mockserver.owners import BlockOwners
from mockserver.prompt import PromptEncoder
from mockserver.tokens import TOKEN_BYTES, num_tokens
from traces.record import SERVER_COUNTS, Lag, ServerSample

_REMEMBERED_TOKENS = 16_000_000
"""Tokens of prompts remembered at least; a run has all its agents at once, and makes each text but once."""


@dataclass(eq=False, slots=True)
class Machine:
    """One engine with its driver and its prompt encoder."""

    driver: Driver
    encoder: PromptEncoder
    config: EngineConfig
    clock: Clock
    owners: BlockOwners = field(default_factory=BlockOwners)
    """The agents whose prompts were the first to hold a chain of blocks."""
    tells_answers: bool = True
    """Its answers are the recorded ones; else texts of its own, as long, which are in nobody's prompt."""

    @property
    def max_model_len(self) -> int:
        """The context; a cache too small for the model's makes it smaller."""
        return min(self.config.max_model_len, self.config.num_kv_tokens)

    def sample(self) -> ServerSample:
        """The engine at this instant."""
        snapshot = self.driver.snapshot()
        known = {name: getattr(snapshot, name) for name in SERVER_COUNTS}
        evicted = self.owners.take_evictions(self.driver.engines)
        return ServerSample(at=self.clock.now(), **known, evicted_by_agent=evicted)

    def lag(self) -> Lag:
        """How late answers were handed over against the model's own time."""
        return Lag(**asdict(self.driver.lag.summary()))


def build_machine(settings: Settings, clock: Clock) -> Machine:
    """The machine that ``settings`` describe; somebody must run its driver."""
    _, config = settings.resolve()
    return Machine(
        driver=build_driver(settings, clock),
        encoder=build_encoder(settings, min_tokens=_REMEMBERED_TOKENS),
        config=config,
        clock=clock,
        tells_answers=settings.recorded_answers,
    )


class InProcessTransport:
    """Hands calls straight to a driver."""

    def __init__(self, machine: Machine) -> None:
        self._driver = machine.driver
        self._encoder = machine.encoder
        self._owners = machine.owners
        self._clock = machine.clock
        self._max_model_len = machine.max_model_len
        self._generation_prompt = machine.encoder.chat(())
        self._num_generation_tokens = num_tokens(self._generation_prompt)
        self._block_bytes = machine.config.block_size * TOKEN_BYTES
        self._has_cache = machine.config.enable_prefix_caching
        """Without one nobody asks which blocks of two prompts are the same."""
        self._tells_answers = machine.tells_answers
        self._own_chains = itertools.count(-1, -1)
        """Of answers that are in nobody's prompt; those of prompts are not negative."""
        self._history: WeakKeyDictionary[Conversation, _History] = WeakKeyDictionary()

    async def complete(self, call: Call) -> Completion:
        """Submit ``call`` and sleep until its last token: nobody here watches the tokens in between."""
        encoder = self._encoder
        conversation = call.conversation
        sent_at = self._clock.now()
        history = self._extended(conversation)
        reply = history.reply_ids = encoder.reply(call.reply)
        history.reply = call.reply
        num_prompt_tokens = history.num_tokens + self._num_generation_tokens
        num_output_tokens = num_tokens(reply)
        max_tokens = self._max_model_len - num_prompt_tokens
        if max_tokens < num_output_tokens:
            return _refused(sent_at, f"prompt of {num_prompt_tokens} tokens: no room for {num_output_tokens} more")
        path: BlockPath = ()
        if self._has_cache and self._tells_answers:
            path = self._path(conversation, history, reply)
        elif self._has_cache:
            path = self._path(conversation, history, b"")
            first, end = (
                count * TOKEN_BYTES // self._block_bytes
                for count in (num_prompt_tokens, num_prompt_tokens + num_output_tokens)
            )
            path += (ChainRun(next(self._own_chains), first, end),) if end > first else ()
        self._owners.note(path, call.agent_id)
        try:
            generation = self._driver.submit(
                Request(
                    request_id=call.call_id,
                    num_prompt_tokens=num_prompt_tokens,
                    path=path,
                    num_output_tokens=num_output_tokens,
                    max_tokens=max_tokens,
                    finish_reason="tool_calls" if call.reply.get("tool_calls") else "stop",
                ),
                session_id=call.agent_id,
            )
        except ValueError as error:
            return _refused(sent_at, str(error))
        try:
            await generation.wait()
        finally:
            if generation.finish_reason is None:
                self._driver.abort(call.call_id)
        ended_at = self._clock.now()
        last_token_at = generation.last_token_at
        return Completion(
            sent_at=sent_at,
            ended_at=ended_at,
            first_token_at=generation.first_token_at,
            last_token_at=last_token_at,
            num_prompt_tokens=num_prompt_tokens,
            num_cached_tokens=generation.num_cached_tokens,
            num_output_tokens=generation.num_output_tokens,
            expected_output_tokens=call.num_output_tokens,
            finish_reason=generation.finish_reason,
            error="the engine aborted the call" if generation.finish_reason == "abort" else None,
            scheduled_at=generation.scheduled_at,
            num_preemptions=generation.num_preemptions,
            lag_s=None if last_token_at is None else ended_at - last_token_at,
        )

    def _extended(self, conversation: Conversation) -> _History:
        """What is known of the conversation, after encoding the messages that are new since its last call."""
        messages = conversation.messages
        history = self._history.get(conversation)
        if history is None:
            history = self._history[conversation] = _History()
            new = self._encoder.chat(messages, conversation.tools, add_generation_prompt=False)
        else:
            messages = messages[history.num_messages :]
            said = b""
            if messages and messages[0] is history.reply:
                said = self._encoder.said(history.reply_ids)
                del messages[0]
            new = said + self._encoder.chat(messages, add_generation_prompt=False)
        history.num_messages = len(conversation.messages)
        history.num_tokens += num_tokens(new)
        if self._has_cache:
            history.rest += new
        return history

    def _path(self, conversation: Conversation, history: _History, reply: bytes) -> BlockPath:
        """The path of prompt and reply; only tokens after the blocks of the last call's path are looked at."""
        path: BlockPath | None = None
        if history.path and history.rest.startswith(history.last_tail):
            num_known = history.path[-1].end
            history.rest = history.rest[(num_known - history.num_cut) * self._block_bytes :]
            history.num_cut = num_known
            tail = history.rest + self._generation_prompt + reply
            path = self._encoder.extend(history.path, tail)
            history.last_tail = tail
        if path is None:  # the first call, a history that was changed, or one that is long forgotten
            history.rest = self._encoder.chat(conversation.messages, conversation.tools, add_generation_prompt=False)
            history.num_cut = 0
            history.last_tail = history.rest + self._generation_prompt + reply
            path = self._encoder.path(history.last_tail)
        history.path = path
        return path


@dataclass(eq=False, slots=True)
class _History:
    """A conversation's prompt so far."""

    num_messages: int = 0
    num_tokens: int = 0
    reply: Message | None = None
    """The answer to the last call, with which the history most often goes on, and its ids."""
    reply_ids: bytes = b""
    path: BlockPath = ()
    """Of the last call's prompt and reply, with which the next prompt starts."""
    num_cut: int = 0
    rest: bytes = b""
    """The ids after the first ``num_cut`` blocks."""
    last_tail: bytes = b""
    """The same of the last call's prompt and reply."""


def _refused(at: float, error: str) -> Completion:
    return Completion(sent_at=at, ended_at=at, error=error)
