"""The shape of a chat message, as vLLM checks it.

vLLM's type is a union of OpenAI's message types, its own and the harmony format's; an invalid message is reported once
for every branch of it, by the branch's name. So the classes below have those names and that order. Messages of the
plain shapes, which nearly all are, are recognised by hand and never see the union.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired

from pydantic import BaseModel, Field, ValidationError, WrapValidator
from pydantic_core.core_schema import ValidatorFunctionWrapHandler
from typing_extensions import TypedDict

from mockserver.api.errors import ApiError, invalid_body


class PromptCacheBreakpoint(TypedDict):
    mode: Literal["explicit"]
    ttl: NotRequired[Literal["30m", "12h"]]


class ChatCompletionContentPartTextParam(TypedDict):
    text: str
    type: Literal["text"]
    prompt_cache_breakpoint: NotRequired[PromptCacheBreakpoint]


class ImageURL(TypedDict):
    url: str
    detail: NotRequired[Literal["auto", "low", "high", "original"]]


class ChatCompletionContentPartImageParam(TypedDict):
    image_url: ImageURL
    type: Literal["image_url"]
    prompt_cache_breakpoint: NotRequired[PromptCacheBreakpoint]


class InputAudio(TypedDict):
    data: str
    format: Literal["wav", "mp3"]


class ChatCompletionContentPartInputAudioParam(TypedDict):
    input_audio: InputAudio
    type: Literal["input_audio"]
    prompt_cache_breakpoint: NotRequired[PromptCacheBreakpoint]


class FileFile(TypedDict):
    file_data: NotRequired[str]
    file_id: NotRequired[str]
    filename: NotRequired[str]


class File(TypedDict):
    file: FileFile
    type: Literal["file"]
    prompt_cache_breakpoint: NotRequired[PromptCacheBreakpoint]


class ChatCompletionContentPartRefusalParam(TypedDict):
    refusal: str
    type: Literal["refusal"]


OpenAIContentPart = (
    ChatCompletionContentPartTextParam
    | ChatCompletionContentPartImageParam
    | ChatCompletionContentPartInputAudioParam
    | File
)


class AudioURL(TypedDict):
    url: str


class ChatCompletionContentPartAudioParam(TypedDict):
    audio_url: AudioURL
    type: Literal["audio_url"]


class VideoURL(TypedDict):
    url: str


class ChatCompletionContentPartVideoParam(TypedDict):
    video_url: VideoURL
    type: Literal["video_url"]


class CustomChatCompletionContentSimpleImageParam(TypedDict):
    image_url: NotRequired[str | None]
    uuid: NotRequired[str | None]


class CustomThinkCompletionContentParam(TypedDict):
    thinking: str
    closed: NotRequired[bool]
    type: Literal["thinking"]


class CustomChatCompletionContentToolReferenceParam(TypedDict):
    name: NotRequired[str]
    type: NotRequired[Literal["tool_reference"]]


ContentPart = (
    OpenAIContentPart
    | ChatCompletionContentPartAudioParam
    | ChatCompletionContentPartVideoParam
    | ChatCompletionContentPartRefusalParam
    | CustomChatCompletionContentSimpleImageParam
    | CustomChatCompletionContentToolReferenceParam
    | str
    | CustomThinkCompletionContentParam
)


class ChatCompletionDeveloperMessageParam(TypedDict):
    content: str | Iterable[ChatCompletionContentPartTextParam]
    role: Literal["developer"]
    name: NotRequired[str]


class ChatCompletionSystemMessageParam(TypedDict):
    content: str | Iterable[ChatCompletionContentPartTextParam]
    role: Literal["system"]
    name: NotRequired[str]


class ChatCompletionUserMessageParam(TypedDict):
    content: str | Iterable[OpenAIContentPart]
    role: Literal["user"]
    name: NotRequired[str]


class Audio(TypedDict):
    id: str


class FunctionCall(TypedDict):
    arguments: str
    name: str


class Function(TypedDict):
    arguments: str
    name: str


class ChatCompletionMessageFunctionToolCallParam(TypedDict):
    id: str
    function: Function
    type: Literal["function"]


class Custom(TypedDict):
    input: str
    name: str


class ChatCompletionMessageCustomToolCallParam(TypedDict):
    id: str
    custom: Custom
    type: Literal["custom"]


class ChatCompletionAssistantMessageParam(TypedDict):
    role: Literal["assistant"]
    audio: NotRequired[Audio | None]
    content: NotRequired[
        str | Iterable[ChatCompletionContentPartTextParam | ChatCompletionContentPartRefusalParam] | None
    ]
    function_call: NotRequired[FunctionCall | None]
    name: NotRequired[str]
    refusal: NotRequired[str | None]
    tool_calls: NotRequired[
        Iterable[ChatCompletionMessageFunctionToolCallParam | ChatCompletionMessageCustomToolCallParam]
    ]


class ChatCompletionToolMessageParam(TypedDict):
    content: str | Iterable[ChatCompletionContentPartTextParam]
    role: Literal["tool"]
    tool_call_id: str


class ChatCompletionFunctionMessageParam(TypedDict):
    content: str | None
    name: str
    role: Literal["function"]


class CustomChatCompletionMessageParam(TypedDict):
    role: str
    content: NotRequired[str | list[ContentPart]]
    name: NotRequired[str]
    tool_call_id: NotRequired[str | None]
    tool_calls: NotRequired[list[ChatCompletionMessageFunctionToolCallParam] | None]
    reasoning: NotRequired[str | None]


class _Role(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    DEVELOPER = "developer"
    TOOL = "tool"


class _Author(BaseModel):
    role: _Role
    name: str | None = None


class _Content(BaseModel):
    pass


class Message(BaseModel):
    """A message of the harmony format."""

    author: _Author
    content: list[_Content] = Field(default_factory=list)
    channel: str | None = None
    recipient: str | None = None
    content_type: str | None = None


AnyMessage = (
    ChatCompletionDeveloperMessageParam
    | ChatCompletionSystemMessageParam
    | ChatCompletionUserMessageParam
    | ChatCompletionAssistantMessageParam
    | ChatCompletionToolMessageParam
    | ChatCompletionFunctionMessageParam
    | CustomChatCompletionMessageParam
    | Message
)

_TEXT_KEYS = frozenset(("role", "content", "name", "tool_call_id"))
_CALL_KEYS = _TEXT_KEYS | {"tool_calls", "reasoning", "reasoning_content", "refusal"}


class PlainMessages(list[dict[str, Any]]):
    """Messages that were looked at and found plain."""

    __slots__ = ()


def are_plain(messages: object) -> bool:
    """Whether every message has a shape that any agent sends, which needs no closer look."""
    return type(messages) is PlainMessages or (type(messages) is list and all(map(_is_plain, messages)))


def _is_plain(message: Any) -> bool:
    if type(message) is not dict or type(message.get("role")) is not str:
        return False
    content = message.get("content")
    if type(content) is str:
        if len(message) == 2:
            return True
        if message.keys() <= _TEXT_KEYS:
            return all(type(value) is str for value in message.values())
    elif content is not None:
        return False
    return (
        message["role"] == "assistant"
        and message.keys() <= _CALL_KEYS
        and all(
            value is None or type(value) is str
            for key, value in message.items()
            if key not in ("tool_calls", "name", "tool_call_id")
        )
        and "name" not in message
        and "tool_call_id" not in message
        and _are_plain_calls(message.get("tool_calls", ()))
    )


def _are_plain_calls(calls: Any) -> bool:
    return type(calls) in (list, tuple) and all(
        type(call) is dict
        and type(call.get("id")) is str
        and call.get("type") == "function"
        and type(function := call.get("function")) is dict
        and type(function.get("name")) is str
        and type(function.get("arguments")) is str
        for call in calls
    )


def _validate(messages: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """The messages as the client sent them: validation only complains, it converts nothing."""
    if not messages or not are_plain(messages):
        for message in messages if isinstance(messages, list) else ():
            if isinstance(message, dict) and isinstance(message.get("tool_calls"), int | float):
                raise ApiError(f"'{type(message['tool_calls']).__name__}' object is not iterable")
        for message in handler(messages):
            if isinstance(message, dict):
                _look_into(message)
        return messages
    return PlainMessages(messages)


def _look_into(message: dict[str, Any]) -> None:
    """Go through the lists that are checked only as they are gone through."""
    calls, content = message.get("tool_calls"), message.get("content")
    if calls is not None and not isinstance(calls, list):
        try:
            _exhaust(calls)
        except ValidationError as error:
            raise invalid_body(error) from None
    if content is not None and not isinstance(content, str | list):
        try:
            _exhaust(content)
        except ValidationError as error:
            raise ApiError(_PYDANTIC_URL.sub(f"{_PYDANTIC_SITE}2.14/", str(error))) from None


def _exhaust(items: Iterable[Any]) -> None:
    for _ in items:
        pass


_PYDANTIC_SITE = "https://errors.pydantic.dev/"
_PYDANTIC_URL = re.compile(re.escape(_PYDANTIC_SITE) + r"\d+\.\d+/")


if TYPE_CHECKING:
    Messages = list[dict[str, Any]]
    SomeMessages = Messages
else:
    Messages = Annotated[list[AnyMessage], WrapValidator(_validate)]
    SomeMessages = Annotated[list[AnyMessage], Field(min_length=1), WrapValidator(_validate)]
