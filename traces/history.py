"""An agent's prompts as token ids, for telling what they share.

The ids of texts are real. The template's own pieces are filled up with ids that no text has, as many as they are long,
so lengths and shared starts are the real ones.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from mockserver import tokens
from traces.prompt_size import END_OF_TURN_TOKENS, END_TOKENS, HEADER_TOKENS, TOOLS_BEGIN_TOKENS, TOOLS_END_TOKENS
from traces.trajectory import Subagent, ToolSchema, Trajectory, Turn


def _mark(number: int, num_tokens: int) -> bytes:
    """``num_tokens`` ids that stand for one piece of the template."""
    return array("I", [2**32 - 1 - number] * num_tokens).tobytes()


_START = _mark(0, 1)  # what every header starts with
_SYSTEM, _USER, _ASSISTANT, _TOOL = (_START + _mark(number, HEADER_TOKENS - 1) for number in range(1, 5))
_END = _mark(5, END_TOKENS)
_END_OF_TURN = _mark(5, END_OF_TURN_TOKENS)
_TOOLS_BEGIN, _TOOLS_END, _LINE_END = _mark(6, TOOLS_BEGIN_TOKENS), _mark(7, TOOLS_END_TOKENS), _mark(8, 1)
_CALL_BEGIN, _CALL_MIDDLE, _CALL_END = _mark(9, 9), _mark(10, 5), _mark(11, 5)


def start_ids(system_prompt: str, tools: Iterable[ToolSchema], user_prompt: str) -> bytes:
    """What an agent's history starts with."""
    schemas = [piece for tool in tools for piece in (tokens.encode(tool.text), _LINE_END)]
    parts: list[bytes] = []
    if system_prompt or schemas:
        parts += [_SYSTEM, tokens.encode(system_prompt)]
        if schemas:
            parts += [_TOOLS_BEGIN, *schemas, _TOOLS_END]
        parts.append(_END)
    if user_prompt:
        parts += [_USER, tokens.encode(user_prompt), _END]
    return b"".join(parts)


def reply_ids(turn: Turn) -> bytes:
    """What the model says in ``turn``, its end of turn included."""
    parts = [tokens.encode(turn.content)]
    for call in turn.tool_calls:
        parts += [_CALL_BEGIN, tokens.encode(call.name), _CALL_MIDDLE, tokens.encode(call.arguments), _CALL_END]
    return b"".join([*parts, _END_OF_TURN])


def agent_prompts(agent: Trajectory | Subagent) -> Iterator[tuple[Turn, bytes | None]]:
    """Each call of one agent with its prompt; None where the recording has the prompt's hashes only.

    What its subagents did is not in it. A history that goes on from a recorded prompt starts anew here.
    """
    history = start_ids(agent.system_prompt, agent.tools, agent.user_prompt)
    for turn in agent.turns:
        if turn.user_message is not None and turn.prompt is None:
            history += _USER + tokens.encode(turn.user_message) + _END
        yield turn, None if turn.prompt is not None else history + _ASSISTANT
        results = [piece for call in turn.tool_calls for piece in (_TOOL, tokens.encode(call.result), _END)]
        history = b"".join([history, _ASSISTANT, reply_ids(turn), _mark(5, END_TOKENS - END_OF_TURN_TOKENS), *results])
