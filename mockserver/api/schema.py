"""What a request body may hold: the fields of vLLM's protocol, with vLLM's types and order.

A wrong value is reported as vLLM reports it, so the unions below are spelt as they are there. Fields that this server
does not know are ignored, as there.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WrapValidator
from pydantic_core.core_schema import ValidatorFunctionWrapHandler

from mockserver.api.errors import invalid_body
from mockserver.api.messages import Messages

_INT64_MIN = -(2**63)
_INT64_MAX = 2**63 - 1

StopStrings = str | Annotated[list[str], Field(max_length=4)] | None
TopLogprobs = Annotated[int, BeforeValidator(lambda value: 0 if value is None else value)]
Seed = Annotated[int, Field(ge=_INT64_MIN, le=_INT64_MAX)] | None
TokenId = Annotated[int, Field(ge=0)]


class RequestModel(BaseModel):
    """A request's body. Its subclasses' names are left out of the locations of errors, as vLLM's are."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())

    @classmethod
    def parse(cls, data: Any) -> Self:
        """``data`` as an instance, or the 400 that vLLM answers."""
        try:
            return cls.model_validate(data, from_attributes=True)
        except ValidationError as error:
            raise invalid_body(error, unnamed=_model_names()) from None


@functools.cache
def _model_names() -> frozenset[str]:
    """vLLM wraps its models (not its typed dictionaries), which hides their names in the locations of errors."""
    return frozenset(model.__name__ for model in RequestModel.__subclasses__())


class JsonSchemaResponseFormat(RequestModel):
    name: str
    description: str | None = None
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(RequestModel):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaResponseFormat | None = None


class StructuralTagResponseFormat(RequestModel):
    type: Literal["structural_tag"]
    format: Any


class LegacyStructuralTag(RequestModel):
    begin: str
    structural_tag_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    end: str


class LegacyStructuralTagResponseFormat(RequestModel):
    type: Literal["structural_tag"]
    structures: list[LegacyStructuralTag]
    triggers: list[str]


AnyResponseFormat = ResponseFormat | StructuralTagResponseFormat | LegacyStructuralTagResponseFormat


class StreamOptions(RequestModel):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class StructuredOutputs(RequestModel):
    json_: str | dict[str, Any] | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None
    structural_tag: str | None = None


class FunctionDefinition(RequestModel):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


class ToolParam(RequestModel):
    type: Literal["function"] = "function"
    function: FunctionDefinition
    defer_loading: bool | None = None


def _checked_tools(tools: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """The tools as the client sent them: validation only complains, it converts nothing."""
    if not (type(tools) is list and all(map(_is_plain_tool, tools))):
        handler(tools)
    return tools


def _is_plain_tool(tool: Any) -> bool:
    """Whether a tool has the shape that any agent sends, which needs no closer look: there are dozens a request."""
    if type(tool) is not dict or tool.get("type") != "function" or not tool.keys() <= _TOOL_KEYS:
        return False
    function = tool.get("function")
    return (
        type(function) is dict
        and function.keys() <= _FUNCTION_KEYS
        and type(function.get("name")) is str
        and type(function.get("description", "")) is str
        and type(function.get("parameters", _NO_PARAMETERS)) is dict
    )


_TOOL_KEYS = frozenset(("type", "function"))
_FUNCTION_KEYS = frozenset(("name", "description", "parameters"))
_NO_PARAMETERS: dict[str, Any] = {}


if TYPE_CHECKING:
    Tools = list[dict[str, Any]]
else:
    Tools = Annotated[list[ToolParam], WrapValidator(_checked_tools)]


class NamedFunction(RequestModel):
    name: str


class NamedToolChoice(RequestModel):
    function: NamedFunction
    type: Literal["function"] = "function"


class ChatRequest(RequestModel):
    """``POST /v1/chat/completions``."""

    messages: Messages
    model: str | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = False
    top_logprobs: TopLogprobs = 0
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int | None = 1
    presence_penalty: float | None = None
    response_format: AnyResponseFormat | None = None
    seed: Seed = None
    stop: StopStrings = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    tools: Tools | None = None
    # Spelt out because an invalid value is reported once for each branch.
    tool_choice: Literal["none"] | Literal["auto"] | Literal["required"] | NamedToolChoice | None = "none"
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    thinking_token_budget: int | None = None
    include_reasoning: bool = True
    parallel_tool_calls: bool | None = True
    user: str | None = None
    use_beam_search: bool = False
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    length_penalty: float = 1.0
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    truncate_prompt_tokens: Annotated[int, Field(ge=-1, le=_INT64_MAX)] | None = None
    truncation_side: Literal["left", "right"] | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] = Field(default_factory=list)
    echo: bool = False
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    documents: list[dict[str, str]] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    mm_processor_kwargs: dict[str, Any] | None = None
    structured_outputs: StructuredOutputs | None = None
    priority: Annotated[int, Field(ge=_INT64_MIN, le=_INT64_MAX)] = 0
    request_id: str | None = None
    session_id: str | None = None
    return_tokens_as_token_ids: bool | None = None
    return_token_ids: bool | None = None
    return_prompt_text: bool | None = None
    cache_salt: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    vllm_xargs: dict[str, str | int | float | list[str | int | float]] | None = None
    stream_interval: Annotated[int, Field(ge=1)] | None = None
    replayrig: Script | None = None


class CompletionRequest(RequestModel):
    """``POST /v1/completions``."""

    model: str | None = None
    prompt: list[TokenId] | list[list[TokenId]] | str | list[str] | None = None
    echo: bool | None = False
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: int | None = None
    max_tokens: int | None = 16
    n: int = 1
    presence_penalty: float | None = None
    seed: Seed = None
    stop: StopStrings = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    suffix: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    user: str | None = None
    use_beam_search: bool = False
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    length_penalty: float = 1.0
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    truncate_prompt_tokens: Annotated[int, Field(ge=-1, le=_INT64_MAX)] | None = None
    truncation_side: Literal["left", "right"] | None = None
    allowed_token_ids: list[int] | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    bad_words: list[str] = Field(default_factory=list)
    add_special_tokens: bool = True
    response_format: AnyResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    priority: Annotated[int, Field(ge=_INT64_MIN, le=_INT64_MAX)] = 0
    request_id: str | None = None
    session_id: str | None = None
    return_tokens_as_token_ids: bool | None = None
    return_token_ids: bool | None = None
    cache_salt: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    vllm_xargs: dict[str, str | int | float | list[str | int | float]] | None = None
    stream_interval: Annotated[int, Field(ge=1)] | None = None
    replayrig: Script | None = None


class Script(RequestModel):
    """What the model is to say: this server's own field, which a real vLLM ignores."""

    reply: dict[str, Any] | None = None
    num_output_tokens: Annotated[int, Field(ge=1)] | None = None
    first_at_once: bool = False
    """What shows first of an answer does not wait for the ``stream_interval``, as the name of a tool called does."""


class TokenizeCompletionRequest(RequestModel):
    model: str | None = None
    prompt: str
    add_special_tokens: bool = True
    return_token_strs: bool | None = False


class TokenizeChatRequest(RequestModel):
    model: str | None = None
    messages: Messages
    add_generation_prompt: bool = True
    return_token_strs: bool | None = False
    continue_final_message: bool = False
    add_special_tokens: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: Tools | None = None


class DetokenizeRequest(RequestModel):
    model: str | None = None
    tokens: list[Annotated[int, Field(ge=0, le=_INT64_MAX)]]


ChatRequest.model_rebuild()
CompletionRequest.model_rebuild()
