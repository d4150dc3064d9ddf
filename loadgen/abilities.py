"""What a model gets wrong: tool calls that have to be made again.

The draws depend on the seed, the task and the tool call only, so every architecture meets the same bad luck; what
differs is how many tools an agent has to choose from.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from loadgen.call import Completion
from traces.trajectory import ToolCall, Turn

MOST_TRIES = 4
"""After three wrong ones the model gets it right: recorded work is always done."""
_KEPT_PER_DOUBLING = 0.9


@dataclass(eq=False, slots=True, kw_only=True)
class Abilities:
    """How well a model calls tools, and how often it failed to so far."""

    tool_call_accuracy: float
    """Share of tool calls that are right at the first try."""
    max_tools: int | None
    """Tools beyond which that suffers."""
    guided_decoding_overhead: float = 0.0
    """Share by which a tool call that is held to its schema takes longer to say."""
    seed: int = 0
    guided_s: float = 0.0
    num_wrong: int = 0
    """Turns that had to be repeated."""
    most_tools: int = 0
    """The largest number of tools that an agent had when it called one."""

    def accuracy(self, num_tools: int) -> float:
        """The share of right calls of an agent that has ``num_tools``.

        An assumption, as published comparisons give a number of tools and not a curve: beyond ``max_tools`` each
        doubling of their number takes a tenth of the accuracy.
        """
        if self.max_tools is None or num_tools <= self.max_tools:
            return self.tool_call_accuracy
        return float(self.tool_call_accuracy * _KEPT_PER_DOUBLING ** math.log2(num_tools / self.max_tools))

    def wrong_tries(self, task_id: str, turn: Turn, *, num_tools: int) -> list[Turn]:
        """What the model says before it says ``turn``: the same calls, each time with something wrong in one."""
        if not turn.tool_calls or turn.prompt is not None:
            return []
        self.most_tools = max(self.most_tools, num_tools)
        accuracy = self.accuracy(num_tools)
        tries = []
        for number in range(MOST_TRIES - 1):
            if self._is_right(task_id, turn.tool_calls, number, accuracy):
                break
            calls = tuple(replace(call, call_id=f"{call.call_id}-wrong-{number}") for call in turn.tool_calls)
            tries.append(Turn(tool_calls=calls))
        self.num_wrong += len(tries)
        return tries

    def guided_delay_s(self, completion: Completion) -> float:
        """How much longer the tool calls in ``completion`` took for being held to their schemas.

        The agent waits for it; the server's other requests do not, as the masks are made beside its steps.
        """
        if completion.first_token_at is None or completion.last_token_at is None:
            return 0.0
        delay_s = (completion.last_token_at - completion.first_token_at) * self.guided_decoding_overhead
        self.guided_s += delay_s
        return delay_s

    def notes(self) -> dict[str, str]:
        """What is to be known of a run: how often calls were wrong, and whether agents had too many tools."""
        notes = {
            "abilities": f"{self.num_wrong:,} turns repeated: a share of {self.tool_call_accuracy:g} of tool calls is"
            " right at the first try"
        }
        if self.guided_decoding_overhead:
            notes["guided_decoding"] = (
                f"tool calls take {self.guided_decoding_overhead:.0%} longer to decode: {self.guided_s:,.1f} s in all"
            )
        if self.max_tools is not None and self.most_tools > self.max_tools:
            notes["max_tools"] = (
                f"WARNING: agents had up to {self.most_tools} tools, the model does well with {self.max_tools};"
                f" its accuracy then is {self.accuracy(self.most_tools):.2f}"
            )
        return notes

    def _is_right(self, task_id: str, calls: Sequence[ToolCall], number: int, accuracy: float) -> bool:
        return all(
            random.Random(f"{self.seed}/ability/{task_id}/{call.call_id}/{number}").random() < accuracy
            for call in calls
        )


def error_text(call: ToolCall) -> str:
    """What the framework answers to a wrong call."""
    return f"Error: the arguments of {call.name} do not match its schema. Correct them and call it again."
