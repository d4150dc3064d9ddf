"""The JSON of answers, with vLLM's keys in vLLM's order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from mockserver.api.views import ChatView, json_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What all chunks of one answer, and the answer as a whole, have in common."""

    id: str
    created: int
    model: str
    fingerprint: str

    def chunk_start(self, kind: str) -> bytes:
        """An event up to its choices."""
        return b'data: {"id":%b,"object":"%b","created":%d,"model":%b,"choices":[' % (
            json_text(self.id),
            kind.encode(),
            self.created,
            json_text(self.model),
        )

    def fingerprint_field(self) -> bytes:
        """What the last chunk says of the server."""
        return b',"system_fingerprint":%b' % json_text(self.fingerprint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one answer."""

    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int | None = None
    """None: the server does not tell."""
    num_created_cache_tokens: int | None = None
    num_reasoning_tokens: int | None = None

    def whole(self) -> dict[str, Any]:
        """As a whole answer has it: every key, nulls too."""
        details = None
        if self.num_cached_tokens is not None:
            details = {
                "cached_tokens": self.num_cached_tokens,
                "created_cache_tokens": self.num_created_cache_tokens,
                "multimodal_tokens": None,
            }
        return {**self._counts(), "prompt_tokens_details": details, "completion_tokens_details": self._reasoning()}

    def final_chunk(self) -> dict[str, Any]:
        """As a stream's last chunk has it: without nulls."""
        usage: dict[str, Any] = self._counts()
        if self.num_cached_tokens is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": self.num_cached_tokens}
            if self.num_created_cache_tokens is not None:
                usage["prompt_tokens_details"]["created_cache_tokens"] = self.num_created_cache_tokens
        if self.num_reasoning_tokens is not None:
            usage["completion_tokens_details"] = self._reasoning()
        return usage

    def _counts(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.num_prompt_tokens,
            "total_tokens": self.num_prompt_tokens + self.num_output_tokens,
            "completion_tokens": self.num_output_tokens,
        }

    def _reasoning(self) -> dict[str, int] | None:
        return None if self.num_reasoning_tokens is None else {"reasoning_tokens": self.num_reasoning_tokens}


def running_usage(num_prompt_tokens: int, num_output_tokens: int, num_reasoning_tokens: int | None) -> bytes:
    """``usage`` of a chat chunk before the end, for clients that want it on every chunk."""
    reasoning = b"null" if num_reasoning_tokens is None else b'{"reasoning_tokens":%d}' % num_reasoning_tokens
    return b',"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"completion_tokens_details":%b}' % (
        num_prompt_tokens,
        num_prompt_tokens + num_output_tokens,
        num_output_tokens,
        reasoning,
    )


def running_completion_usage(num_prompt_tokens: int, num_output_tokens: int) -> bytes:
    """The same for plain completions."""
    return b',"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}' % (
        num_prompt_tokens,
        num_prompt_tokens + num_output_tokens,
        num_output_tokens,
    )


def chat_choice(
    index: int,
    view: ChatView,
    *,
    role: str,
    finish_reason: str,
    stop_reason: str | int | None,
    logprobs: Any,
    token_ids: Sequence[int] | None,
) -> dict[str, Any]:
    """One choice of a whole chat answer."""
    message: dict[str, Any] = {
        "role": role,
        "content": view.content,
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
    }
    if view.tool_calls:
        message["tool_calls"] = [call.as_json() for call in view.tool_calls]
    message["reasoning"] = view.reasoning
    return {
        "index": index,
        "message": message,
        "logprobs": logprobs,
        "finish_reason": finish_reason,
        "stop_reason": stop_reason,
        "token_ids": token_ids,
        "routed_experts": None,
    }


def chat_body(
    envelope: Envelope,
    choices: Sequence[dict[str, Any]],
    usage: Usage,
    *,
    prompt_logprobs: Any = None,
    prompt_token_ids: Sequence[int] | None = None,
    prompt_text: str | None = None,
    extension: dict[str, Any] | None = None,
) -> bytes:
    """A whole chat answer."""
    body = {
        "id": envelope.id,
        "object": "chat.completion",
        "created": envelope.created,
        "model": envelope.model,
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": envelope.fingerprint,
        "usage": usage.whole(),
        "prompt_logprobs": prompt_logprobs,
        "prompt_token_ids": prompt_token_ids,
        "prompt_text": prompt_text,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }
    return _dumped(body, extension)


def completion_body(
    envelope: Envelope,
    choices: Sequence[dict[str, Any]],
    usage: Usage,
    *,
    extension: dict[str, Any] | None = None,
) -> bytes:
    """A whole plain completion."""
    body = {
        "id": envelope.id,
        "object": "text_completion",
        "created": envelope.created,
        "model": envelope.model,
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": envelope.fingerprint,
        "usage": usage.whole(),
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }
    return _dumped(body, extension)


def final_chunk(envelope: Envelope, kind: str, usage: Usage, extension: dict[str, Any] | None = None) -> bytes:
    """The chunk after the last choice: usage, and who answered."""
    more = b"" if extension is None else b',"replayrig":%b' % orjson.dumps(extension)
    return b'%b],"usage":%b%b%b}\n\n' % (
        envelope.chunk_start(kind),
        orjson.dumps(usage.final_chunk()),
        envelope.fingerprint_field(),
        more,
    )


def dumped(value: Any) -> bytes:
    """``value`` as JSON, whatever a client has put into its texts."""
    try:
        return orjson.dumps(value)
    except TypeError:  # lone surrogates, integers of more than 64 bits
        return json.dumps(_cleaned(value), ensure_ascii=False, separators=(",", ":")).encode()


def _dumped(body: dict[str, Any], extension: dict[str, Any] | None) -> bytes:
    return dumped(body if extension is None else {**body, "replayrig": extension})


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(one) for one in value]
    return value
