"""What vLLM refuses about a request before it looks at the fields' types, in its order and words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from mockserver.api.errors import ApiError, BadParameter

_MAX_SALT_CHARS = 128
_TOOL_CHOICE_USAGE = 'Correct usage: `{"type": "function", "function": {"name": "my_function"}}`'
_MAX_PROMPTS = 1024


def check_chat(data: dict[str, Any]) -> None:
    """Refuse what ``ChatCompletionRequest`` refuses; fills in the default ``tool_choice``."""
    messages = data.get("messages", [])
    if not isinstance(messages, list | str | dict):
        raise ApiError(f"'{type(messages).__name__}' object is not iterable")
    check_generation_prompt(data)
    _check_tools(data)
    _check_structured_outputs(data, parameter=None)
    is_named = data.get("tool_choice", "none") not in ("none", "auto", "required")
    if is_named and _num_constraints(data.get("structured_outputs")) > 0:
        raise BadParameter("You can only either use constraints for structured outputs or tools, not both.")
    _check_logprobs(data, "top_logprobs")
    _check_top_logprobs(data)
    _check_stream_options(data)
    _check_response_format(data)
    _check_cache_salt(data)


def check_completion(data: dict[str, Any]) -> None:
    """Refuse what ``CompletionRequest`` refuses."""
    prompt = data.get("prompt")
    if isinstance(prompt, list) and len(prompt) > _MAX_PROMPTS and not isinstance(prompt[0], int):
        raise BadParameter(
            f"prompt list length {len(prompt)} exceeds the maximum allowed count of {_MAX_PROMPTS}. To increase this "
            "limit, set the VLLM_MAX_COMPLETION_PROMPTS environment variable.",
            parameter="prompt",
        )
    if data.get("prompt_embeds") is not None:
        raise BadParameter("You must set `--enable-prompt-embeds` to input `prompt_embeds`.", parameter="prompt_embeds")
    if prompt is None or prompt == "":
        raise BadParameter("Either prompt or prompt_embeds must be provided and non-empty.", parameter="prompt")
    _check_stream_options(data)
    _check_logprobs(data, "logprobs")
    if data.get("logprob_token_ids") and data.get("logprobs") is None:
        raise BadParameter("when using `logprob_token_ids`, `logprobs` must be set.", parameter="logprob_token_ids")
    _check_structured_outputs(data, parameter="structured_outputs")
    _check_response_format(data)
    if data.get("max_tokens") is None:
        data["max_tokens"] = 16
    _check_cache_salt(data)


def check_generation_prompt(data: Mapping[str, Any]) -> None:
    if data.get("continue_final_message") and data.get("add_generation_prompt"):
        raise BadParameter("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")


def _check_tools(data: dict[str, Any]) -> None:
    tools = data.get("tools")
    if tools == []:
        raise BadParameter(
            "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.",
            parameter="tools",
        )
    if "tool_choice" not in data and tools:
        data["tool_choice"] = "auto"
    choice = data.get("tool_choice")
    if choice is None or choice == "none":
        return
    if tools is None:
        raise BadParameter("When using `tool_choice`, `tools` must be set.", parameter="tool_choice")
    if isinstance(choice, dict):
        _check_named_choice(choice, tools)
    elif choice not in ("auto", "required"):
        raise BadParameter(
            f'Invalid value for `tool_choice`: {choice}! Only named tools, "none", "auto" or "required" are supported.',
            parameter="tool_choice",
        )


def _check_named_choice(choice: Mapping[str, Any], tools: Any) -> None:
    function = choice.get("function")
    if not isinstance(function, dict):
        raise BadParameter(
            f"Invalid value for `function`: `{function}` in `tool_choice`! {_TOOL_CHOICE_USAGE}",
            parameter="tool_choice.function",
        )
    if "name" not in function:
        raise BadParameter(
            f"Expected field `name` in `function` in `tool_choice`! {_TOOL_CHOICE_USAGE}",
            parameter="tool_choice.function.name",
        )
    name = function["name"]
    if not isinstance(name, str) or not name:
        raise BadParameter(
            f"Invalid `name` in `function`: `{name}` in `tool_choice`! {_TOOL_CHOICE_USAGE}",
            parameter="tool_choice.function.name",
        )
    if not isinstance(tools, list):
        return  # the types are checked later, with a better text
    functions = [tool.get("function") for tool in tools if isinstance(tool, dict)]
    if name not in [function.get("name") for function in functions if isinstance(function, dict)]:
        raise BadParameter(
            "The tool specified in `tool_choice` does not match any of the specified `tools`",
            parameter="tool_choice",
        )


def _num_constraints(structured_outputs: Any) -> int:
    if not isinstance(structured_outputs, dict):
        return 0
    return sum(structured_outputs.get(kind) is not None for kind in ("json", "regex", "choice"))


def _check_structured_outputs(data: Mapping[str, Any], *, parameter: str | None) -> None:
    constraint = data.get("structured_outputs")
    tag = constraint.get("structural_tag") if isinstance(constraint, dict) else None
    if tag is not None and not _is_structural_tag(_parsed(tag)):
        raise BadParameter("Invalid structured_outputs structural_tag specification.", parameter="structured_outputs")
    if _num_constraints(constraint) > 1:
        raise BadParameter(
            "You can only use one kind of constraints for structured outputs ('json', 'regex' or 'choice').",
            parameter=parameter,
        )


def _check_logprobs(data: Mapping[str, Any], field: str) -> None:
    if field == "top_logprobs" and data.get("logprob_token_ids") and not data.get("logprobs"):
        raise BadParameter(
            "when using `logprob_token_ids`, `logprobs` must be set to true.", parameter="logprob_token_ids"
        )
    for name in ("prompt_logprobs", field):
        value = data.get(name)
        if value is not None and not isinstance(value, int | float):
            raise BadParameter(f"`{name}` must be an integer.", parameter=name, value=value)
    wanted = data.get("prompt_logprobs")
    if wanted is not None:
        if data.get("stream") and (wanted > 0 or wanted == -1):
            raise BadParameter("`prompt_logprobs` are not available when `stream=True`.", parameter="prompt_logprobs")
        _check_count(wanted, "prompt_logprobs")
    if data.get(field) is not None:
        _check_count(data[field], field)


def _check_count(value: float, name: str) -> None:
    if value < 0 and value != -1:
        raise BadParameter(f"`{name}` must be a positive value or -1.", parameter=name, value=value)


def _check_top_logprobs(data: Mapping[str, Any]) -> None:
    wanted = data.get("top_logprobs")
    if wanted is not None and (wanted == -1 or wanted > 0) and not data.get("logprobs"):
        raise BadParameter("when using `top_logprobs`, `logprobs` must be set to true.", parameter="top_logprobs")


def _check_stream_options(data: Mapping[str, Any]) -> None:
    if data.get("stream_options") and not data.get("stream"):
        raise BadParameter("Stream options can only be defined when `stream=True`.", parameter="stream_options")


def _check_response_format(data: Mapping[str, Any]) -> None:
    response_format = data.get("response_format")
    if not isinstance(response_format, dict):
        return
    if response_format.get("type") == "structural_tag" and not _is_structural_tag(response_format):
        raise BadParameter("Invalid response_format structural_tag specification.", parameter="response_format")
    if response_format.get("type") == "json_schema" and response_format.get("json_schema") is None:
        raise BadParameter(
            "When response_format type is 'json_schema', the 'json_schema' field must be provided.",
            parameter="response_format",
        )


def _parsed(text: Any) -> Any:
    try:
        return orjson.loads(text)
    except (orjson.JSONDecodeError, TypeError):
        return None


def _is_structural_tag(tag: Any) -> bool:
    """Whether xgrammar would take it: a format, or tags that all begin with one of the triggers."""
    if not isinstance(tag, dict):
        return False
    if "format" in tag:
        return isinstance(tag["format"], dict) and isinstance(tag["format"].get("type"), str)
    structures, triggers = tag.get("structures"), tag.get("triggers")
    if not (structures and triggers and isinstance(structures, list) and isinstance(triggers, list)):
        return False
    return all(
        isinstance(structure, dict)
        and isinstance(structure.get("begin"), str)
        and isinstance(structure.get("end"), str)
        and any(isinstance(trigger, str) and structure["begin"].startswith(trigger) for trigger in triggers)
        for structure in structures
    )


def _check_cache_salt(data: Mapping[str, Any]) -> None:
    salt = data.get("cache_salt")
    if salt is None:
        return
    if not isinstance(salt, str) or not salt:
        raise BadParameter("Parameter 'cache_salt' must be a non-empty string if provided.", parameter="cache_salt")
    if len(salt) > _MAX_SALT_CHARS or any(char in salt for char in "@/\\\x00"):
        raise BadParameter(
            "Parameter 'cache_salt' must be at most 128 characters and must not contain '@', '/', '\\\\', or NUL.",
            parameter="cache_salt",
        )
