"""Recorded requests to turns: what many recordings have is each call's whole prompt, again and again.

Where each prompt is the one before it, the answer to that one and something new, it is a history that grew, and only
the new messages are kept. Where one prompt of an agent is anything else (its history was compacted, it ends in a
reminder that the next one drops), all of them stand for themselves: as many tokens as they have, in blocks that are
equal where their text is equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from traces.importers.chat import (
    SYSTEM_ROLES,
    TOOL_ROLES,
    UNMEASURED,
    Conversation,
    ConversationBuilder,
    Measured,
    text_of,
)
from traces.importers.fields import get, get_list, get_object, get_text
from traces.importers.hashes import KeptBlocks
from traces.importers.log import BadRecord, ImportLog
from traces.importers.prompt_blocks import BLOCK_SIZE, PromptBlocks
from traces.trajectory import Subagent, ToolSchema

_REPLACED = "prompts of agents whose history was rewritten: replayed as filler that shares the same blocks"
Key = tuple[str, str, str]
"""What makes a message the same as another: role, text, tool calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one tool returned."""

    call_id: str
    text: str
    latency_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One recorded call: the whole prompt, and what came back if that was recorded."""

    messages: list[Any]
    reply: Any = None
    """The answer as an assistant message; None where only the next prompt may have it."""
    measured: Measured = UNMEASURED
    latency_by_call_id: Mapping[str, float] = field(default_factory=dict)
    """How long the tools took whose results are new in this prompt."""
    spawns: Sequence[Subagent] = ()
    """The agents that this call started."""
    results: Sequence[Result] = ()
    """What the tools of this call returned, where that is known without a later prompt."""


def read_requests(
    requests: list[Request], *, tools: tuple[ToolSchema, ...], domain_of: Callable[[str], str], log: ImportLog
) -> Conversation:
    """The conversation that ``requests`` were made in, in that order."""
    builder = ConversationBuilder(domain_of=domain_of, log=log)
    kept = KeptBlocks(block_size=BLOCK_SIZE, scope="")
    blocks = PromptBlocks()
    if not all(request.messages for request in requests):
        raise BadRecord("a call without a prompt")
    split = [_without_answer(request) for request in requests]
    keys = [[key_of(message) for message in request.messages] for request in split]
    grown = [
        _new_messages(keys[index - 1] if index else None, one, split[index].messages) for index, one in enumerate(keys)
    ]
    # Text and filler share nothing, so where one prompt needs filler all prompts of the agent are filler.
    is_text = all(has_grown for _, has_grown in grown)
    log.note(_REPLACED, 0 if is_text else len(split))
    for index, request in enumerate(split):
        if not is_text:
            builder.replace_history(kept.prompt(*blocks.blocks_of(_texts_of(keys[index], tools))))
        for message in _worth_keeping(grown[index][0], is_text=is_text):
            _add(builder, message, request)
        builder.add_reply(_reply(split, index, keys[index]), request.measured)
        if request.spawns:
            builder.add_spawns(list(request.spawns))
            kept.forget()
    for result in requests[-1].results if requests else ():  # the others' are in the prompts after them
        builder.add_result(result.text, call_id=result.call_id, latency_s=result.latency_s)
    return builder.conversation()


def _worth_keeping(messages: list[Any], *, is_text: bool) -> list[Any]:
    """Of new messages, those that the turns should have.

    Where the prompt is filler anyway, what follows the results of tools is a reminder that the next prompt drops.
    """
    if is_text:
        return messages
    results = [message for message in messages if get_text(message, "role") in TOOL_ROLES]
    return results or messages


def _without_answer(request: Request) -> Request:
    """Some logs have the answer as the last message of the prompt."""
    if request.reply is None and request.messages and get(request.messages[-1], "role") == "assistant":
        return replace(request, messages=request.messages[:-1], reply=request.messages[-1])
    return request


def key_of(message: Any) -> Key:
    """Messages with equal keys are the same message."""
    calls = get_list(message, "tool_calls")
    functions = [get_object(call, "function") or call for call in calls]
    called = "\n".join(f"{text_of(get(one, 'name'))}({text_of(get(one, 'arguments'))})" for one in functions)
    return get_text(message, "role"), text_of(get(message, "content")), called


def _new_messages(before: list[Key] | None, keys: list[Key], messages: list[Any]) -> tuple[list[Any], bool]:
    """What follows the answer to the prompt before, and whether the prompt is that one, the answer and this."""
    if before is None:
        has_grown = all(key[0] == "user" or key[0] in SYSTEM_ROLES for key in keys)
        return (messages, True) if has_grown else ([], False)
    num_same = 0
    while num_same < min(len(before), len(keys)) and before[num_same] == keys[num_same]:
        num_same += 1
    if num_same == len(keys) or keys[num_same][0] != "assistant":
        return [], False
    new_roles = {key[0] for key in keys[num_same + 1 :]}
    if not new_roles <= TOOL_ROLES | SYSTEM_ROLES | {"user"}:
        return [], False
    # Agents that end each prompt with a reminder and drop it afterwards are the case of num_same < len(before).
    return messages[num_same + 1 :], num_same == len(before)


def _reply(requests: list[Request], index: int, keys: list[Key]) -> Any:
    """The answer to a prompt: as recorded, or as the next prompt has it after what both have."""
    if requests[index].reply is not None:
        return requests[index].reply
    if index + 1 == len(requests):
        return None
    for at, message in enumerate(requests[index + 1].messages):
        if at >= len(keys) or key_of(message) != keys[at]:
            return message if at > 0 and get_text(message, "role") == "assistant" else None
    return None


def _add(builder: ConversationBuilder, message: Any, request: Request) -> None:
    if get_text(message, "role") not in TOOL_ROLES:
        builder.add(message)
        return
    call_id = get(message, "tool_call_id")
    call_id = call_id if isinstance(call_id, str) else None
    latency_s = request.latency_by_call_id.get(call_id or "")
    builder.add_result(text_of(get(message, "content")), call_id=call_id, latency_s=latency_s)


def _texts_of(keys: list[Key], tools: tuple[ToolSchema, ...]) -> list[str]:
    """The texts that a prompt is made of."""
    texts = ["\n".join(tool.text for tool in tools)] if tools else []
    for role, content, called in keys:
        texts += [f"\n{role}\n", content, called]
    return texts
