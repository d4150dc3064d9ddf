"""What tests of the load generator pass in: small tasks, and a transport that answers after a fixed time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from loadgen.agents.react import react
from loadgen.architectures import Architecture
from loadgen.call import Call, Completion, Transport
from loadgen.context import Message
from loadgen.harness import Harness
from loadgen.recorder import Recorder
from loadgen.run import replay
from loadgen.tools import ToolTimes
from mockserver.clock import Clock, VirtualClock, run_virtual
from traces.record import ServerSample
from traces.trajectory import ToolCall, ToolSchema, Trajectory, Turn


def make_tool(name: str, domain: str) -> ToolSchema:
    return ToolSchema(name=name, domain=domain, text=f'{{"type":"function","function":{{"name":"{name}"}}}}')


def make_call(call_id: str, domain: str, *, result: str = "done", latency_s: float | None = None) -> ToolCall:
    return ToolCall(
        call_id=call_id, name=f"{domain}-do", domain=domain, arguments="{}", result=result, latency_s=latency_s
    )


def make_task(task_id: str, *turns: Turn, **fields: Any) -> Trajectory:
    return Trajectory(
        task_id=task_id,
        turns=turns,
        user_prompt=f"Do {task_id}.",
        system_prompt="You are helpful.",
        tools=tuple(make_tool(f"{domain}-do", domain) for domain in ("mail", "files", "local")),
        **fields,
    )


@dataclass(eq=False, slots=True)
class FakeTransport:
    """Answers each call after ``latency_s``; remembers the prompts it saw."""

    clock: Clock
    latency_s: float = 1.0
    lag_s: float | None = None
    fail: Callable[[Call], str | None] = lambda _: None
    answer: Callable[[Call], Message | None] = lambda _: None
    """What it says that it said, where that is not the recorded answer."""
    prompts: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    tools: dict[str, tuple[str, ...]] = field(default_factory=dict)
    recorded_replies: list[dict[str, Any]] = field(default_factory=list)
    overhead_replies: list[dict[str, Any]] = field(default_factory=list)
    most_in_flight: int = 0
    _num_in_flight: int = 0

    async def complete(self, call: Call) -> Completion:
        sent_at = self.clock.now()
        self.prompts[call.call_id] = list(call.conversation.messages)
        self.tools[call.call_id] = call.conversation.tools
        (self.overhead_replies if call.is_overhead else self.recorded_replies).append(call.reply)
        self._num_in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self._num_in_flight)
        await self.clock.sleep_until(sent_at + self.latency_s)
        self._num_in_flight -= 1
        error = self.fail(call)
        at = self.clock.now()
        if error is not None:
            return Completion(sent_at=sent_at, ended_at=at, error=error, status=500)
        return Completion(
            sent_at=sent_at,
            ended_at=at,
            first_token_at=sent_at,
            last_token_at=at,
            num_prompt_tokens=10,
            num_cached_tokens=0,
            num_output_tokens=2,
            expected_output_tokens=2,
            finish_reason="stop",
            lag_s=self.lag_s,
            answer=self.answer(call),
        )


async def see_nothing() -> ServerSample | None:
    return None


def replaying(
    clock: Clock, transport: Transport, recorder: Recorder, *tasks: Trajectory, **different: Any
) -> Coroutine[Any, Any, None]:
    """ReAct tasks that all arrive at 0 and are looked at by nobody, but for what is ``different``."""
    usual: dict[str, Any] = {
        "architecture": react,
        "look": see_nothing,
        "tool_times": ToolTimes(recorded=True, mean_s=0.0),
        "max_concurrency": None,
        "sample_period_s": 1.0,
    }
    return replay(tasks, (0.0,) * len(tasks), clock=clock, transport=transport, recorder=recorder, **usual | different)


def replay_virtually(
    architecture: Architecture,
    *tasks: Trajectory,
    arrives_at: tuple[float, ...] | None = None,
    max_concurrency: int | None = None,
    tool_times: ToolTimes | None = None,
    is_open_loop: bool = False,
    duration_s: float | None = None,
    fail: Callable[[Call], str | None] = lambda _: None,
    answer: Callable[[Call], Message | None] = lambda _: None,
    harness: Harness | None = None,
    latency_s: float = 1.0,
) -> tuple[Recorder, FakeTransport]:
    """Replay ``tasks`` against a transport that takes ``latency_s`` a call."""
    recorder = Recorder()
    transports: list[FakeTransport] = []

    def main(clock: VirtualClock) -> Coroutine[Any, Any, None]:
        transports.append(FakeTransport(clock, latency_s=latency_s, fail=fail, answer=answer))
        return replay(
            tasks,
            arrives_at or (0.0,) * len(tasks),
            architecture=architecture,
            clock=clock,
            transport=transports[0],
            look=see_nothing,
            recorder=recorder,
            tool_times=tool_times or ToolTimes(recorded=True, mean_s=0.0),
            max_concurrency=max_concurrency,
            sample_period_s=1.0,
            is_open_loop=is_open_loop,
            duration_s=duration_s,
            harness=harness,
        )

    run_virtual(main)
    return recorder, transports[0]
