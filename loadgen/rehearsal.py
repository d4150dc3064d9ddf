"""The histories that a run will send, found by doing it in virtual time with answers that take no time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from loadgen.architectures import Architecture
from loadgen.call import Call, Completion
from loadgen.context import Conversation
from loadgen.harness import Harness
from loadgen.recorder import Recorder
from loadgen.run import replay
from loadgen.tools import ToolTimes
from mockserver.clock import Clock, VirtualClock, run_virtual
from traces.record import ServerSample
from traces.trajectory import Trajectory

_SAMPLE_PERIOD_S = 3600.0


@dataclass(eq=False, slots=True)
class _Prompter:
    """Answers at once, as the recording did, and remembers what it was shown."""

    clock: Clock
    num_messages: dict[Conversation, int] = field(default_factory=dict)

    async def complete(self, call: Call) -> Completion:
        """``call`` is answered already."""
        now = self.clock.now()
        self.num_messages[call.conversation] = len(call.conversation.messages)
        return Completion(
            sent_at=now,
            ended_at=now,
            first_token_at=now,
            last_token_at=now,
            num_output_tokens=call.num_output_tokens,
            finish_reason="stop",
        )


def rehearse(
    tasks: Sequence[Trajectory],
    *,
    architecture: Architecture,
    harness: Harness,
    tool_times: ToolTimes,
    max_model_len: int | None,
) -> dict[Conversation, int]:
    """Every history, and how many of its messages its longest prompt has."""
    prompters: list[_Prompter] = []

    async def run(clock: VirtualClock) -> None:
        prompters.append(_Prompter(clock))
        await replay(
            tasks,
            [0.0] * len(tasks),
            architecture=architecture,
            clock=clock,
            transport=prompters[0],
            look=_see_nothing,
            recorder=Recorder(),
            tool_times=tool_times,
            max_concurrency=None,
            sample_period_s=_SAMPLE_PERIOD_S,
            max_model_len=max_model_len,
            harness=harness,
        )

    run_virtual(run)
    return prompters[0].num_messages


async def _see_nothing() -> ServerSample | None:
    return None
