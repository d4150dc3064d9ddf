"""How many tokens prompts and replies have under our chat template, added up from their pieces.

The template (mockserver/prompt.py) tokenises every piece on its own, so lengths add up: no prompt has to be built to
know its size. Tests hold these numbers to the template's.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

from mockserver import tokens
from traces.trajectory import ToolCall, ToolSchema, Trajectory, Turn

MESSAGE_TOKENS = 5
"""Around the content of a message: ``<|im_start|>role\\n`` and ``<|im_end|>\\n``."""
GENERATION_PROMPT_TOKENS = 3
"""``<|im_start|>assistant\\n`` at a prompt's end."""
END_OF_TURN_TOKENS = 1
"""``<|im_end|>``, which the model generates."""
TOOLS_TOKENS = 34
"""What the system block says around the tools, if there are any."""
TOOL_CALL_TOKENS = 19
"""Around the name and the arguments of one tool call."""


@functools.lru_cache(maxsize=4096)
def tool_call_overhead(name: str) -> int:
    """Tokens of a call of tool ``name`` besides its arguments."""
    return TOOL_CALL_TOKENS + tokens.count(name)


def tool_call_tokens(call: ToolCall) -> int:
    """Tokens of a tool call in a reply."""
    return tool_call_overhead(call.name) + tokens.count(call.arguments)


def reply_tokens(turn: Turn) -> int:
    """Tokens of what the model said in ``turn``, as the history holds it: end of turn included."""
    return tokens.count(turn.content) + sum(tool_call_tokens(call) for call in turn.tool_calls) + END_OF_TURN_TOKENS


def message_tokens(content: str) -> int:
    """Tokens of a message that is not the model's."""
    return tokens.count(content) + MESSAGE_TOKENS


def system_tokens(system_prompt: str, tools: Iterable[ToolSchema]) -> int:
    """Tokens of the block that a prompt starts with; none where there is nothing to say."""
    schemas = [tokens.count(tool.text) + 1 for tool in tools]
    if not system_prompt and not schemas:
        return 0
    return message_tokens(system_prompt) + (sum(schemas) + TOOLS_TOKENS if schemas else 0)


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


def react_prompts(trajectory: Trajectory) -> Iterator[int]:
    """Prompt tokens of each call where one agent does the whole task in one history."""
    num_tokens = system_tokens(trajectory.system_prompt, react_tools(trajectory)) + GENERATION_PROMPT_TOKENS
    if trajectory.user_prompt:
        num_tokens += message_tokens(trajectory.user_prompt)
    for turn in react_steps(trajectory.turns):
        if turn.prompt is not None:
            num_tokens = turn.prompt.num_tokens
        elif turn.user_message is not None:
            num_tokens += message_tokens(turn.user_message)
        yield num_tokens
        # The reply stands between <|im_start|>assistant\n and \n; its own end of turn is counted in it.
        num_tokens += reply_tokens(turn) - END_OF_TURN_TOKENS + MESSAGE_TOKENS
        num_tokens += sum(message_tokens(call.result) for call in turn.tool_calls)
