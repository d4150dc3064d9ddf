"""From a validated request to its prompt's token ids, with vLLM's refusals on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mockserver.api.bodies import dumped
from mockserver.api.errors import ApiError, BadParameter, EngineRefusal
from mockserver.api.messages import are_plain
from mockserver.api.sampling import VOCABULARY_SIZE, check_requested_tokens
from mockserver.api.schema import ChatRequest, CompletionRequest
from mockserver.prompt import PromptEncoder, end_of_turn
from mockserver.tokens import TOKEN_BYTES, decode, num_tokens, pack

_TEXT_KINDS = frozenset(("text", "input_text", "output_text", "refusal", "thinking"))
_MEDIA_KINDS = frozenset(
    ("image_url", "input_image", "image_embeds", "audio_url", "input_audio", "audio_embeds", "video_url")
)
_MAX_CHARS_PER_TOKEN = 128  # the longest token of cl100k_base is 128 spaces
INCOMPATIBLE_ENDS = (
    "continue_final_message and add_generation_prompt are not compatible. Use continue_final_message when you want the "
    "model to continue the final message, and add_generation_prompt when you want to add a header that will prompt it "
    "to start a new assistant message instead."
)


def chat_prompt(request: ChatRequest, encoder: PromptEncoder, *, max_model_len: int, model: str) -> bytes:
    """The prompt of a chat request."""
    if request.max_completion_tokens is not None:
        check_requested_tokens(request.max_completion_tokens, "max_completion_tokens", max_model_len)
    else:
        check_requested_tokens(request.max_tokens, "max_tokens", max_model_len)
    if request.continue_final_message and request.add_generation_prompt:
        raise ApiError(INCOMPATIBLE_ENDS)
    check_template(request.chat_template, request.chat_template_kwargs)
    if request.mm_processor_kwargs:
        raise BadParameter(
            "Per-request mm_processor_kwargs are disabled by default because they can change multimodal preprocessing "
            "resource usage. Start the server with --trust-request-mm-kwargs only when clients are trusted.",
            parameter="mm_processor_kwargs",
        )
    messages = plain_messages(request.messages, model=model)
    check_characters(sum(len(message.get("content") or "") for message in messages), max_model_len, request)
    ids = encoder.chat(
        messages,
        tool_texts(request.tools),
        add_generation_prompt=request.add_generation_prompt and not request.continue_final_message,
    )
    if request.continue_final_message:
        ids = ids[: ids.rindex(end_of_turn())]
    return fitted(ids, request, max_model_len, counted_to_the_end=False)


def check_template(template: str | None, options: Mapping[str, Any] | None) -> None:
    """Refuse templates that come with the request."""
    if template is not None or (options and options.get("chat_template") is not None):
        raise ApiError(
            "Chat template is passed with request, but --trust-request-chat-template is not set. "
            "Refused request with untrusted chat template."
        )


def completion_prompts(request: CompletionRequest, encoder: PromptEncoder, *, max_model_len: int) -> list[bytes]:
    """The prompts of a completion request: one, or a batch of them; text or token ids."""
    check_requested_tokens(request.max_tokens, "max_tokens", max_model_len)
    prompt: Any = request.prompt
    if isinstance(prompt, str) or (prompt and isinstance(prompt[0], int)):
        prompt = [prompt]
    if not prompt:
        raise ApiError("You must pass at least one prompt")
    return [_completion_prompt(item, request, encoder, max_model_len) for item in prompt]


def _completion_prompt(
    prompt: str | Sequence[int], request: CompletionRequest, encoder: PromptEncoder, max_model_len: int
) -> bytes:
    if isinstance(prompt, str):
        check_characters(len(prompt), max_model_len, request)
        ids = encoder.text(prompt)
    else:
        unknown = next((token_id for token_id in prompt if token_id >= VOCABULARY_SIZE), None)
        if unknown is not None:
            raise EngineRefusal(f"Token id {unknown} is out of vocabulary")
        ids = pack(list(prompt))
    if not ids:
        raise empty_prompt()
    return fitted(ids, request, max_model_len, counted_to_the_end=not isinstance(prompt, str))


def plain_messages(messages: Sequence[Mapping[str, Any]], *, model: str) -> Sequence[Mapping[str, Any]]:
    """The messages with nothing but text in them, as the template wants them."""
    if not messages:
        raise ApiError("Cannot apply chat template to an empty conversation. Provide at least one message.")
    if are_plain(messages):
        return messages
    return [_plain_message(message, model) for message in messages]


def plain_reply(reply: Mapping[str, Any], *, model: str) -> Mapping[str, Any]:
    """A scripted assistant message as the template wants it, whatever it leaves out."""
    message = {**reply, "role": "assistant"}
    return reply if are_plain([message]) else _plain_message(message, model)


def _plain_message(message: Mapping[str, Any], model: str) -> dict[str, Any]:
    role = message.get("role") or _harmony_role(message)
    plain: dict[str, Any] = {"role": role, "content": _text(message.get("content"), model)}
    calls = message.get("tool_calls")
    calls = [_plain_call(call) for call in calls if isinstance(call, Mapping)] if isinstance(calls, list) else []
    if role == "assistant" and calls:
        plain["tool_calls"] = calls
    return plain


def _harmony_role(message: Mapping[str, Any]) -> str:
    author = message.get("author")
    return str(author.get("role", "user")) if isinstance(author, Mapping) else "user"


def _plain_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if isinstance(function, Mapping):
        return {
            "function": {
                "name": str(function.get("name", "")),
                "arguments": str(function.get("arguments", "")),
            }
        }
    custom = call.get("custom")
    custom = custom if isinstance(custom, Mapping) else {}
    return {"function": {"name": str(custom.get("name", "")), "arguments": str(custom.get("input", ""))}}


def _text(content: Any, model: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list | tuple):
        raise ApiError(f"Invalid content: {content!r}")
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, Mapping):
            raise ApiError(f"Invalid content part: {part!r}")
        kind = part.get("type") or next((key for key in ("image_url", "text") if key in part), None)
        if kind in _MEDIA_KINDS:
            raise ApiError(f"{model} is not a multimodal model")
        if kind not in _TEXT_KINDS:
            raise ApiError(f"Unknown part type: {kind}")
        texts.append(str(part.get("text") or part.get("refusal") or part.get("thinking") or ""))
    return "\n".join(texts)


def tool_texts(tools: Sequence[Mapping[str, Any]] | None) -> list[str]:
    """One compact JSON text a tool, as the template wants them."""
    return [dumped({"type": "function", "function": tool["function"]}).decode() for tool in tools or ()]


def check_characters(num_chars: int, max_model_len: int, request: Any) -> None:
    """Refuse a text that no tokenizer could make fit, before tokenising it."""
    if num_chars > max_model_len * _MAX_CHARS_PER_TOKEN and request.truncate_prompt_tokens is None:
        raise BadParameter(
            f"This model's maximum context length is {max_model_len} tokens. However, your prompt contains "
            f"{num_chars} characters (more than {max_model_len * _MAX_CHARS_PER_TOKEN} characters, which is the "
            f"upper bound for {max_model_len} input tokens). Please reduce the length of the input prompt.",
            parameter="input_text",
            value=num_chars,
        )


def fitted(ids: bytes, request: Any, max_model_len: int, *, counted_to_the_end: bool) -> bytes:
    """The prompt, truncated if the request says so; refused if the context cannot hold it.

    vLLM stops tokenising text one token past the limit, so it can only say "at least".
    """
    kept = request.truncate_prompt_tokens
    if kept is not None:
        if kept > max_model_len:
            raise BadParameter(
                f"truncate_prompt_tokens={kept} cannot be greater than max_model_len = {max_model_len}. "
                "Please request a smaller truncation size.",
                parameter="truncate_prompt_tokens",
                value=kept,
            )
        if kept == 0:
            raise empty_prompt()
        kept = max_model_len - 1 if kept < 0 else kept
        if kept < num_tokens(ids):
            width = kept * TOKEN_BYTES
            return ids[len(ids) - width :] if request.truncation_side == "left" else ids[:width]
    count = num_tokens(ids)
    if count <= max_model_len:
        return ids
    if not counted_to_the_end:
        count = max_model_len + 1
    raise BadParameter(
        f"This model's maximum context length is {max_model_len} tokens. However, your prompt contains "
        f"{'at least ' if count == max_model_len + 1 else ''}{count} input tokens, which exceeds this limit even "
        "without any output tokens. Please reduce the length of the input prompt.",
        parameter="input_tokens",
        value=count,
    )


def empty_prompt() -> EngineRefusal:
    """The answer to a request that gives the model nothing to go on from."""
    return EngineRefusal("The decoder prompt cannot be empty")


def prompt_text(ids: bytes) -> str:
    """The prompt as text, for clients that ask for it."""
    return decode(ids)
