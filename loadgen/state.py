"""Agents' state: loaded and stored with every step, so that a run that was killed goes on where it stood.

A step is a model call, or the tools that it asked for. What is stored with it, all or nothing: the step's records,
and the agent's state after it (how many calls it has made, and its history with the tools' answers). Before a step
the agent's state is loaded, and must be where this process believes it to be: a store that lost steps, or a second
process at the same run, is found out there.

To resume, what the store has becomes the run's past (``loadgen.past``).
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import orjson
from pydantic import TypeAdapter

from loadgen.call import DoneCall
from loadgen.context import Conversation, Message
from loadgen.past import Past
from loadgen.stores.store import IN_PROCESS, StateStore, StoreDownError, StoreError, open_store, scheme_of
from mockserver.clock import Clock, real_seconds
from traces.record import ToolRecord

T = TypeVar("T")

_RUN, _AGENT, _CALL, _TOOLS = "run", "agent/", "call/", "tools/"
_PAUSE_REAL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """An agent after a step."""

    agent_id: str
    num_calls: int
    conversation: Conversation
    reply: Message | None
    """What it said last, where its history does not have it yet."""

    def to_json(self) -> bytes:
        """What is stored; the history's text is made once and grows with it."""
        history = bytes(self.conversation.messages_json()) or b"["
        if self.reply is not None:
            history += (b"" if history == b"[" else b",") + orjson.dumps(self.reply)
        return b'{"num_calls":%d,"history":%b]}' % (self.num_calls, history)


@functools.cache
def _reader(kind: Any) -> TypeAdapter[Any]:
    """Reads ``kind`` from JSON; built when something is read, for most runs have nothing stored."""
    return TypeAdapter(kind)


def num_calls_of(checkpoint: bytes | None) -> int:
    """The position that a stored checkpoint holds; nothing stored is the start."""
    if checkpoint is None:
        return 0
    return int(checkpoint[len(b'{"num_calls":') : checkpoint.index(b",")])


@dataclass(eq=False, slots=True)
class StateTotals:
    """What keeping state took."""

    num_steps: int = 0
    num_retries: int = 0
    loaded_bytes: int = 0
    stored_bytes: int = 0
    real_s: float = 0.0

    def text(self, num_taken: int) -> str:
        """One line for the run's header; ``num_taken`` steps were in the store already."""
        text = f"{self.num_steps:,} steps stored, {num_taken:,} taken from the store, {self.num_retries:,} retries"
        if not self.num_steps:
            return text
        return (
            f"{text}; a step loads {self.loaded_bytes / self.num_steps / 1000:.1f} KB and stores"
            f" {self.stored_bytes / self.num_steps / 1000:.1f} KB in {self.real_s / self.num_steps * 1000:.2f} ms of"
            " real time"
        )


@dataclass(eq=False, slots=True, kw_only=True)
class StateKeeper:
    """The state of one run's agents in a store."""

    store: StateStore
    clock: Clock
    patience_s: float
    """Real seconds to wait for a store that does not answer."""
    past: Past = field(default_factory=Past)
    """What was done before, which grows by what the store has of it."""
    totals: StateTotals = field(default_factory=StateTotals)

    async def begin(self, fingerprint: Mapping[str, Any], *, resume: bool, run: str) -> None:
        """Start ``run`` afresh, or take over all that the store has of it."""
        if not resume:
            await self._patiently(self.store.clear)
            await self._save({_RUN: orjson.dumps(fingerprint, option=orjson.OPT_SORT_KEYS)})
            return
        stored = await self._patiently(lambda: self.store.load(_RUN))
        if stored is None:
            raise StoreError(f"nothing to resume: the store has no run {run!r}")
        before = orjson.loads(stored)
        differing = [name for name, value in fingerprint.items() if before.get(name) != value]
        if differing:
            raise StoreError(f"run {run!r} cannot be resumed: it differs in {', '.join(differing)}")
        for call in (await self._patiently(lambda: self.store.load_all(_CALL))).values():
            self.past.add_call(_reader(DoneCall).validate_json(call))
        for key, tools in (await self._patiently(lambda: self.store.load_all(_TOOLS))).items():
            self.past.add_tools(key.removeprefix(_TOOLS), _reader(list[ToolRecord]).validate_json(tools))

    async def begin_step(self, agent_id: str, num_calls: int) -> None:
        """Load the state of an agent that is about to make its next call, having made ``num_calls``."""
        value = await self._patiently(lambda: self.store.load(_AGENT + agent_id))
        self.totals.loaded_bytes += len(value or b"")
        found = num_calls_of(value)
        if found < num_calls:
            raise StoreError(f"the store has lost steps: {agent_id} has made {num_calls} calls, {found} are there")
        if found > num_calls:
            raise StoreError(f"somebody else is at this run: {agent_id} has made {num_calls} calls, {found} are there")

    async def save_call(self, done: DoneCall, checkpoint: Checkpoint) -> None:
        """A call has ended."""
        await self._save_step(_CALL + done.record.call_id, orjson.dumps(done), checkpoint)

    async def save_tools(self, call_id: str, records: Sequence[ToolRecord], checkpoint: Checkpoint) -> None:
        """The tools that a call asked for have answered."""
        await self._save_step(_TOOLS + call_id, orjson.dumps(records), checkpoint)

    async def _save_step(self, key: str, records: bytes, checkpoint: Checkpoint) -> None:
        self.totals.num_steps += 1
        await self._save({key: records, _AGENT + checkpoint.agent_id: checkpoint.to_json()})

    async def _save(self, entries: Mapping[str, bytes]) -> None:
        self.totals.stored_bytes += sum(map(len, entries.values()))
        await self._patiently(lambda: self.store.save(entries))

    async def _patiently(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Do it, again and again while the store is down: every operation may be done twice."""
        started_at = real_seconds()
        while True:
            try:
                result = await operation()
            except StoreDownError as error:
                waited_s = real_seconds() - started_at
                if waited_s >= self.patience_s or self.clock.rate == float("inf"):
                    raise StoreError(f"the state store is down ({error}); waited {waited_s:.0f} s for it") from None
                self.totals.num_retries += 1
                await self.clock.sleep_until(self.clock.now() + _PAUSE_REAL_S * self.clock.rate)
            else:
                self.totals.real_s += real_seconds() - started_at
                return result


@asynccontextmanager
async def open_state(
    url: str, run: str, *, fingerprint: Mapping[str, Any], resume: bool, clock: Clock, patience_s: float, past: Past
) -> AsyncIterator[StateKeeper]:
    """The state of ``run``, which has a ``past``, in the store at ``url``; StoreError where that is down."""
    if clock.rate == float("inf") and scheme_of(url) not in IN_PROCESS:
        raise StoreError("a state behind a socket needs real time: --clock wall or --target http")
    async with open_store(url, run) as store:
        keeper = StateKeeper(store=store, clock=clock, patience_s=patience_s, past=past)
        await keeper.begin(fingerprint, resume=resume, run=run)
        yield keeper
