"""Calls through the openai SDK: what an agent built on it would see. Never the timed path: 20 ms of CPU a call.

The server's answers are the same; the times are those at which the SDK hands the pieces over.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import openai
import orjson

from loadgen.call import Call, Completion
from loadgen.target import Target, one_line
from loadgen.transports.said import Said
from mockserver.clock import Clock


class OpenAITransport:
    """Sends calls with an AsyncOpenAI client; use as ``async with``."""

    def __init__(self, target: Target, clock: Clock) -> None:
        self._target = target
        self._clock = clock
        self._client = openai.AsyncOpenAI(
            base_url=target.api_url, api_key="none", default_headers=dict(target.headers), max_retries=0, timeout=None
        )

    async def __aenter__(self) -> OpenAITransport:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()

    async def complete(self, call: Call) -> Completion:
        """Send ``call`` and read its stream to the end."""
        seen = _Seen(Said() if self._target.keeps_answers else None)
        sent_at = self._clock.now()
        try:
            stream = await self._client.chat.completions.create(**self._arguments(call))
            async for chunk in stream:
                seen.take(chunk, self._clock.now())
        except openai.APIStatusError as error:
            return self._failed(call, sent_at, f"HTTP {error.status_code}: {one_line(error)}", error.status_code)
        except (openai.OpenAIError, OSError) as error:
            return self._failed(call, sent_at, one_line(error), None)
        usage = seen.usage
        details = getattr(usage, "prompt_tokens_details", None)
        return Completion(
            sent_at=sent_at,
            ended_at=seen.finished_at or self._clock.now(),
            first_token_at=seen.token_at[0] if seen.token_at else None,
            last_token_at=seen.token_at[-1] if seen.token_at else None,
            num_prompt_tokens=getattr(usage, "prompt_tokens", None),
            num_cached_tokens=getattr(details, "cached_tokens", None),
            num_output_tokens=getattr(usage, "completion_tokens", None),
            answer=seen.said.message() if seen.said is not None and seen.finish_reason else None,
            expected_output_tokens=call.num_output_tokens if self._target.scripted or self._target.exact else None,
            finish_reason=seen.finish_reason,
            error=None if seen.finish_reason else "the stream ended before the answer did",
            status=200,
            chunk_at=tuple(seen.token_at),
        )

    def _arguments(self, call: Call) -> dict[str, Any]:
        target = self._target
        body: dict[str, Any] = dict(target.extra_body)
        arguments: dict[str, Any] = {
            "model": target.model,
            "messages": call.conversation.messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            "extra_body": body,
        }
        if call.conversation.tools:
            arguments["tools"] = [orjson.loads(tool) for tool in call.conversation.tools]
        if target.scripted:
            told = {"reply": call.reply} if target.tells_answers else {"num_output_tokens": call.num_output_tokens}
            body |= {"session_id": call.agent_id, "replayrig": {"first_at_once": True, **told}}
        elif target.exact:
            arguments["max_completion_tokens"] = call.num_output_tokens
            body |= {"min_tokens": call.num_output_tokens, "ignore_eos": True}
            if call.conversation.tools:
                arguments["tool_choice"] = "none"
        return arguments

    @staticmethod
    def _failed(call: Call, sent_at: float, error: str, status: int | None) -> Completion:
        return Completion(sent_at=sent_at, ended_at=sent_at, error=error, status=status)


class _Seen:
    """What a stream of chunks has said so far."""

    def __init__(self, said: Said | None) -> None:
        self.said = said
        self.token_at: list[float] = []
        self.usage: Any = None
        self.finish_reason: str | None = None
        self.finished_at: float | None = None

    def take(self, chunk: Any, at: float) -> None:
        """``chunk`` was handed over at ``at``."""
        self.usage = chunk.usage or self.usage
        for choice in chunk.choices:
            delta = choice.delta
            if delta.content or delta.tool_calls or any(getattr(delta, name, None) for name in _REASONING):
                self.token_at.append(at)
            if self.said is not None:
                self.said.take(choice.model_dump(include={"index", "delta"}))
            if choice.finish_reason:
                self.finish_reason, self.finished_at = choice.finish_reason, at


_REASONING = ("reasoning", "reasoning_content")
