"""Workloads made of other workloads: fewer tasks, some tasks, other sizes, other times."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from mockserver import tokens
from mockserver.filler import filler
from traces.jsonl import TraceError
from traces.prompt_size import react_calls, react_steps
from traces.trajectory import RecordedPrompt, Subagent, ToolCall, Trajectory, Turn


def sample(trajectories: Iterable[Trajectory], num_tasks: int, *, seed: int) -> list[Trajectory]:
    """``num_tasks`` of the tasks, each as likely as any other, in their order; all where there are fewer."""
    rng = random.Random(f"{seed}/sample")
    kept: list[tuple[int, Trajectory]] = []
    for index, trajectory in enumerate(trajectories):  # a reservoir: the tasks are looked at once
        if len(kept) < num_tasks:
            kept.append((index, trajectory))
        elif (place := rng.randrange(index + 1)) < num_tasks:
            kept[place] = (index, trajectory)
    return [trajectory for _, trajectory in sorted(kept, key=lambda one: one[0])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which tasks to keep; None and empty: whatever they are."""

    domains: frozenset[str] = frozenset()
    """Those that use a tool of one of these domains."""
    min_calls: int | None = None
    max_calls: int | None = None
    min_prompt_tokens: int | None = None
    """Of the longest prompt, as a ReAct replay has it."""
    max_prompt_tokens: int | None = None
    with_fan_out: bool = False
    """Those in which an agent spawned others."""

    def keeps(self, trajectory: Trajectory) -> bool:
        """Whether ``trajectory`` is one of them."""
        steps = list(react_steps(trajectory.turns))
        if not _within(len(steps), self.min_calls, self.max_calls):
            return False
        if self.with_fan_out and not any(turn.spawns for turn in steps):
            return False
        if self.domains and not any(call.domain in self.domains for turn in steps for call in turn.tool_calls):
            return False
        if self.min_prompt_tokens is None and self.max_prompt_tokens is None:
            return True
        longest = max((call.num_prompt_tokens for call in react_calls(trajectory)), default=0)
        return _within(longest, self.min_prompt_tokens, self.max_prompt_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Factors: 1 leaves things as they are."""

    tokens: float = 1.0
    """Of every text and every recorded length. Texts become filler."""
    delays: float = 1.0
    """Of delays, think times and tool latencies."""
    arrivals: float = 1.0
    """Of the times at which tasks start: 0.5 is twice the load."""

    def __post_init__(self) -> None:
        for name in ("tokens", "delays", "arrivals"):
            if not 0 < getattr(self, name) < 1e6:
                raise ValueError(f"{name} must be above 0 and below a million, got {getattr(self, name)}")

    def apply(self, trajectory: Trajectory) -> Trajectory:
        """``trajectory`` in other sizes."""
        begin = trajectory.started_at
        if self.tokens != 1:
            trajectory = replace(
                trajectory,
                user_prompt=self._text(trajectory.user_prompt),
                system_prompt=self._text(trajectory.system_prompt),
            )
        return replace(
            trajectory,
            started_at=None if begin is None else begin * self.arrivals,
            turns=self._turns(trajectory.turns),
        )

    def _turns(self, turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
        return tuple(self._turn(turn) for turn in turns)

    def _turn(self, turn: Turn) -> Turn:
        scaled = replace(
            turn,
            started_at=None if turn.started_at is None else turn.started_at * self.delays,
            delay_s=None if turn.delay_s is None else turn.delay_s * self.delays,
            tool_calls=tuple(self._call(call) for call in turn.tool_calls),
            spawns=tuple(self._subagent(spawn) for spawn in turn.spawns),
        )
        if self.tokens == 1:
            return scaled
        return replace(
            scaled,
            content=self._text(turn.content),
            user_message=None if turn.user_message is None else self._text(turn.user_message),
            num_output_tokens=None if turn.num_output_tokens is None else self._count(turn.num_output_tokens),
            prompt=None if turn.prompt is None else self._prompt(turn.prompt),
        )

    def _call(self, call: ToolCall) -> ToolCall:
        latency_s = None if call.latency_s is None else call.latency_s * self.delays
        if self.tokens == 1:
            return replace(call, latency_s=latency_s)
        return replace(call, latency_s=latency_s, result=self._text(call.result))

    def _subagent(self, spawn: Subagent) -> Subagent:
        scaled = replace(spawn, delay_s=spawn.delay_s * self.delays, turns=self._turns(spawn.turns))
        if self.tokens == 1:
            return scaled
        return replace(scaled, user_prompt=self._text(spawn.user_prompt), system_prompt=self._text(spawn.system_prompt))

    def _prompt(self, prompt: RecordedPrompt) -> RecordedPrompt:
        """Blocks that are so much larger keep what prompts share."""
        block_size = prompt.block_size * self.tokens
        if block_size != int(block_size) or block_size < 1:
            raise TraceError(f"blocks of {prompt.block_size} tokens cannot be scaled by {self.tokens}: no whole number")
        num_blocks, rest = divmod(prompt.num_tokens, prompt.block_size)
        num_tokens = num_blocks * int(block_size) + int(rest * self.tokens)
        return replace(prompt, num_tokens=max(num_tokens, 1), block_size=int(block_size))

    def _text(self, text: str) -> str:
        if not text:
            return text
        return filler(f"scale/{text}", self._count(tokens.count(text)))

    def _count(self, count: int) -> int:
        return max(round(count * self.tokens), 1) if count else 0


def kept(trajectories: Iterable[Trajectory], wanted: Filter) -> Iterator[Trajectory]:
    """Those of ``trajectories`` that ``wanted`` keeps."""
    return (trajectory for trajectory in trajectories if wanted.keeps(trajectory))


def _within(value: int, at_least: int | None, at_most: int | None) -> bool:
    return (at_least is None or value >= at_least) and (at_most is None or value <= at_most)
