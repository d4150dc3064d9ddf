"""Turns as chat messages in OpenAI's form."""

from __future__ import annotations

from typing import Any

import orjson

from traces.jsonl import TraceError
from traces.trajectory import Subagent, ToolCall, ToolSchema, Trajectory, Turn

Message = dict[str, Any]
Agent = Trajectory | Subagent


def opening_messages(agent: Agent) -> list[Message]:
    """What an agent's history starts with."""
    messages = [{"role": "system", "content": agent.system_prompt}] if agent.system_prompt else []
    if agent.user_prompt:
        messages.append({"role": "user", "content": agent.user_prompt})
    return messages


def reply_message(turn: Turn) -> Message:
    """What the model said in ``turn``."""
    message: Message = {"role": "assistant", "content": turn.content}
    if turn.tool_calls:
        message["tool_calls"] = [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in turn.tool_calls
        ]
    return message


def result_message(call: ToolCall) -> Message:
    """What a tool returned."""
    return {"role": "tool", "tool_call_id": call.call_id, "content": call.result}


def schemas(tools: tuple[ToolSchema, ...]) -> list[Any]:
    """Offered tools, as the API takes them."""
    try:
        return [orjson.loads(str(tool.text)) for tool in tools]  # str(): orjson does not read subclasses of it
    except orjson.JSONDecodeError as error:
        raise TraceError(f"a tool's schema is not JSON: {error}") from None


def require_text(agent: Agent, name: str) -> None:
    """Refuse an agent whose prompts are known by hashes only: format ``name`` holds text."""
    for turn in agent.turns:
        if turn.prompt is not None:
            raise TraceError(
                f"{name} holds text, but this recording has only hashes of its prompts: use mooncake or weka"
            )
        for spawn in turn.spawns:
            require_text(spawn, name)
