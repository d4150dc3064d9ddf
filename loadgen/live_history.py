"""Histories that hold what the server really answered: which recorded tool result answers which of its tool calls.

The recorded work goes on whatever the server says. A tool call of the server is answered by the recorded result of a
call with the same name and arguments, else of one with the same name, in the order of the recording; a call that the
recording has no result for is answered by a note. Recorded results that the server asked no tool for are told in one
message of the user's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from loadgen.context import Message
from traces.trajectory import ToolCall

NO_RESULT = "No result: this call is not in the recording."


@dataclass(eq=False, slots=True)
class OpenCalls:
    """The tool calls of one live answer, and the recorded results that come back to them."""

    id_by_recorded_id: dict[str, str] = field(default_factory=dict)
    """The server's call that a recorded call's result answers."""
    unknown_ids: tuple[str, ...] = ()
    """The server's calls that the recording has no result for."""
    untold: list[str] = field(default_factory=list)
    """Recorded results that the server did not ask for, until the history has them."""

    def told(self) -> str:
        """The results that nobody asked for, as the user tells them; empty where there are none."""
        text = "\n\n".join(self.untold)
        self.untold.clear()
        return text


def match_calls(recorded: Sequence[ToolCall], answer: Message) -> OpenCalls:
    """Which of the ``recorded`` calls each tool call of ``answer`` stands for."""
    left = list(recorded)
    matched: dict[str, ToolCall] = {}
    calls = answer.get("tool_calls") or ()
    for is_exact in (True, False):
        for call in calls:
            function = call["function"]
            if call["id"] in matched:
                continue
            for number, one in enumerate(left):
                if one.name == function["name"] and (not is_exact or one.arguments == function["arguments"]):
                    matched[call["id"]] = left.pop(number)
                    break
    return OpenCalls(
        id_by_recorded_id={one.call_id: call_id for call_id, one in matched.items()},
        unknown_ids=tuple(call["id"] for call in calls if call["id"] not in matched),
    )
