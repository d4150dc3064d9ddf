"""How many tokens prompts and replies have under our chat template, added up from their pieces.

The template (mockserver/prompt.py) tokenises every piece on its own, so lengths add up: no prompt has to be built to
know its size. Tests hold these numbers to the template's.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mockserver import tokens
from traces.trajectory import ToolCall, ToolSchema, Trajectory, Turn

HEADER_TOKENS = 3
"""``<|im_start|>role\\n`` before a message; at a prompt's end, the model's turn."""
END_TOKENS = 2
"""``<|im_end|>\\n`` after a message."""
END_OF_TURN_TOKENS = 1
"""``<|im_end|>``, which the model generates."""
TOOLS_BEGIN_TOKENS = 13
TOOLS_END_TOKENS = 21
"""What the system block says before and after the tools, if there are any."""
TOOL_CALL_TOKENS = 19
"""Around the name and the arguments of one tool call."""


@functools.lru_cache(maxsize=4096)
def tool_call_overhead(name: str) -> int:
    """Tokens of a call of tool ``name`` besides its arguments."""
    return TOOL_CALL_TOKENS + tokens.count(name)


def tool_call_tokens(call: ToolCall) -> int:
    """Tokens of a tool call in a reply."""
    return tool_call_overhead(call.name) + tokens.remembered_count(call.arguments)


def reply_tokens(turn: Turn) -> int:
    """Tokens of what the model said in ``turn``, as the history holds it: end of turn included."""
    return tokens.count(turn.content) + sum(tool_call_tokens(call) for call in turn.tool_calls) + END_OF_TURN_TOKENS


def message_tokens(content: str) -> int:
    """Tokens of a message that is not the model's."""
    return HEADER_TOKENS + tokens.count(content) + END_TOKENS


def system_tokens(system_prompt: str, tools: Iterable[ToolSchema]) -> int:
    """Tokens of the block that a prompt starts with; none where there is nothing to say."""
    schemas = [tokens.count(tool.text) + 1 for tool in tools]
    if not system_prompt and not schemas:
        return 0
    return message_tokens(system_prompt) + (TOOLS_BEGIN_TOKENS + sum(schemas) + TOOLS_END_TOKENS if schemas else 0)


def num_output_tokens(turn: Turn) -> int:
    """Tokens that the model generates in ``turn``: as recorded, else as many as its text has."""
    return reply_tokens(turn) if turn.num_output_tokens is None else turn.num_output_tokens


def react_steps(turns: Iterable[Turn]) -> Iterator[Turn]:
    """All calls in one line, a spawned subagent's right after the turn that spawned it."""
    for turn in turns:
        yield turn
        for spawn in turn.spawns:
            yield from react_steps(spawn.turns)


def react_tools(trajectory: Trajectory) -> list[ToolSchema]:
    """The tools of the task and of all subagents it spawned, each once."""
    tool_by_name = {tool.name: tool for tool in trajectory.tools}
    for turn in react_steps(trajectory.turns):
        for spawn in turn.spawns:
            for tool in spawn.tools:
                tool_by_name.setdefault(tool.name, tool)
    return list(tool_by_name.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSize:
    """The size of one call of a ReAct replay, where one agent does the whole task in one history."""

    turn: Turn
    num_prompt_tokens: int
    num_output_tokens: int
    """As recorded, else as many as the reply has."""
    num_reply_tokens: int
    """What the history grows by for the reply, its end of turn included."""
    num_result_tokens: tuple[int, ...]
    """What each tool returned."""


def react_calls(trajectory: Trajectory) -> Iterator[CallSize]:
    """The size of each call, in order."""
    num_tokens = system_tokens(trajectory.system_prompt, react_tools(trajectory)) + HEADER_TOKENS
    if trajectory.user_prompt:
        num_tokens += message_tokens(trajectory.user_prompt)
    for turn in react_steps(trajectory.turns):
        if turn.prompt is not None:
            num_tokens = turn.prompt.num_tokens
        elif turn.user_message is not None:
            num_tokens += message_tokens(turn.user_message)
        num_reply = reply_tokens(turn)
        results = tuple(tokens.count(call.result) for call in turn.tool_calls)
        yield CallSize(
            turn=turn,
            num_prompt_tokens=num_tokens,
            num_output_tokens=num_reply if turn.num_output_tokens is None else turn.num_output_tokens,
            num_reply_tokens=num_reply,
            num_result_tokens=results,
        )
        # The reply ends with the end of turn, after which the history has a line's end.
        num_tokens += num_reply - END_OF_TURN_TOKENS + END_TOKENS + HEADER_TOKENS
        num_tokens += sum(results) + len(results) * (HEADER_TOKENS + END_TOKENS)
