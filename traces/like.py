"""Workloads like a given one: tasks of the same shapes in slightly other sizes, with none of its text.

Each new task has the shape of one of the old ones (its calls, tools, domains, fan-outs, resets of its history), so
whatever hangs together in the recordings still does. Every length and duration is drawn anew around the old one. What
tasks share (system prompts, tools, recorded blocks) they share again.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace

from mockserver import tokens
from mockserver.filler import filler
from traces.anonymize import Anonymizer
from traces.exact_json import arguments_text
from traces.jsonl import TraceError
from traces.trajectory import RecordedPrompt, Subagent, ToolCall, Trajectory, Turn

_SIGMA = 0.1
"""Lengths and times differ from the old ones by about a tenth."""


def workload_like(
    trajectories: Iterable[Trajectory], *, name: str, seed: int = 0, num_tasks: int | None = None
) -> Iterator[Trajectory]:
    """``num_tasks`` tasks (default: as many) like ``trajectories``; every old one is followed equally often."""
    anonymizer = Anonymizer(secret=f"{seed}/like")
    shapes = list(trajectories)
    if not shapes:
        raise TraceError(f"{name}: no tasks to be like")
    order = random.Random(f"{seed}/like/order")
    wanted = len(shapes) if num_tasks is None else num_tasks
    chosen: list[int] = []
    while len(chosen) < wanted:
        rest = min(wanted - len(chosen), len(shapes))
        chosen += sorted(order.sample(range(len(shapes)), rest))
    seen: dict[int, int] = {}
    for index, shape in enumerate(chosen):
        repeat = seen[shape] = seen.get(shape, 0) + 1
        task = _Task(random.Random(f"{seed}/like/{index}"), anonymizer, repeat)
        yield task.like(shapes[shape], task_id=f"task-{index:05d}", source=f"like {name}")


class _Task:
    """One task in the making."""

    def __init__(self, rng: random.Random, anonymizer: Anonymizer, repeat: int) -> None:
        self._rng = rng
        self._anonymizer = anonymizer
        self._repeat = repeat

    def like(self, shape: Trajectory, *, task_id: str, source: str) -> Trajectory:
        """A task of the shape of ``shape``."""
        return Trajectory(
            task_id=task_id,
            source=source,
            system_prompt=self._anonymizer.text(shape.system_prompt),
            tools=self._anonymizer.tools(shape.tools),
            user_prompt=self._text(shape.user_prompt),
            turns=self._turns(shape.turns),
            model=shape.model,
            started_at=shape.started_at,
        )

    def _turns(self, turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
        return tuple(
            replace(
                turn,
                content=self._text(turn.content),
                user_message=None if turn.user_message is None else self._text(turn.user_message),
                tool_calls=tuple(self._call(call) for call in turn.tool_calls),
                num_output_tokens=None if turn.num_output_tokens is None else self._count(turn.num_output_tokens),
                prompt=None if turn.prompt is None else self._prompt(turn.prompt),
                started_at=None,  # follows from durations and delays, which are no longer the recorded ones
                duration_s=self._time(turn.duration_s),
                delay_s=self._time(turn.delay_s),
                spawns=tuple(self._subagent(spawn) for spawn in turn.spawns),
            )
            for turn in turns
        )

    def _subagent(self, spawn: Subagent) -> Subagent:
        return replace(
            spawn,
            agent_id=self._anonymizer.name("agent", spawn.agent_id),
            system_prompt=self._anonymizer.text(spawn.system_prompt),
            tools=self._anonymizer.tools(spawn.tools),
            user_prompt=self._text(spawn.user_prompt),
            turns=self._turns(spawn.turns),
            delay_s=self._time(spawn.delay_s) or 0.0,
        )

    def _call(self, call: ToolCall) -> ToolCall:
        num_tokens = self._count(tokens.count(call.arguments))
        return replace(
            call,
            call_id=f"call-{self._rng.getrandbits(48):012x}",
            name=self._anonymizer.tool_name(call.name),
            domain=self._anonymizer.domain(call.domain),
            arguments=arguments_text(num_tokens, seed=self._rng),
            result=self._text(call.result),
            latency_s=self._time(call.latency_s),
        )

    def _prompt(self, prompt: RecordedPrompt) -> RecordedPrompt:
        """Blocks are shared as recorded; a task that is followed a second time shares nothing with the first."""
        scope = self._anonymizer.name("scope", prompt.scope) if prompt.scope else ""
        return replace(prompt, scope=scope if self._repeat == 1 else f"{scope}~{self._repeat}")

    def _text(self, text: str) -> str:
        return filler(self._rng, self._count(tokens.count(text))) if text else ""

    def _count(self, count: int) -> int:
        return max(round(count * self._rng.lognormvariate(0.0, _SIGMA)), 1) if count else 0

    def _time(self, seconds: float | None) -> float | None:
        return None if seconds is None else round(seconds * self._rng.lognormvariate(0.0, _SIGMA), 6)
