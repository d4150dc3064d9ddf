"""``POST /inference/v1/generate``: tokens in, tokens out, with their text if it is wanted."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from aiohttp import web
from pydantic import AfterValidator, Field, InstanceOf, ValidationError
from typing_extensions import TypedDict

from mockserver.api.bodies import Usage, dumped
from mockserver.api.choices import Choice, bursts, running, together
from mockserver.api.completions import CompletionCall, checked, count, run_to_end, started
from mockserver.api.errors import ApiError, BadParameter, invalid_body
from mockserver.api.http import DONE, EventStream, json_response, read_body
from mockserver.api.logprobs import chat_logprobs, prompt_logprobs, token_logprobs
from mockserver.api.machine import Machine
from mockserver.api.schema import RequestModel, StreamOptions
from mockserver.api.views import texts_by_token
from mockserver.tokens import TOKEN_BYTES, num_tokens, unpack


class SamplingParams(dict[str, Any]):
    """vLLM takes its own class, which no client can send, before a dictionary: a wrong value is wrong twice."""


class Parameters(TypedDict, total=False):
    """The dictionary, as far as this server reads it; what it does not know it ignores."""

    n: int
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int | None
    stop: str | list[str] | None
    stop_token_ids: list[int] | None
    ignore_eos: bool
    max_tokens: int | None
    min_tokens: int
    logprobs: int | None
    prompt_logprobs: int | None
    logit_bias: dict[str, float] | None


def _natural(token_ids: list[int]) -> list[int]:
    if min(token_ids) < 0:
        raise ValueError("token_ids must not contain negative values")
    return token_ids


class GenerateRequest(RequestModel):
    """The body."""

    request_id: str | None = None
    token_ids: Annotated[list[int], Field(min_length=1), AfterValidator(_natural)]
    sampling_params: Annotated[InstanceOf[SamplingParams] | Parameters, Field(union_mode="left_to_right")]
    output_mode: Literal["tokens", "text"] = "tokens"
    model: str | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    cache_salt: str | None = None
    priority: int = 0

    @classmethod
    def parse(cls, data: Any) -> Self:
        """``data`` as an instance, or the 400 that vLLM answers."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise invalid_body(error, unnamed=frozenset((Parameters.__name__,))) from None


async def generate(request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """Answer one request."""
    body = await read_body(request, GenerateRequest.parse)
    _check(body, machine)
    data = {
        "max_tokens": machine.max_model_len - len(body.token_ids),
        **body.sampling_params,
        "model": body.model,
        "prompt": body.token_ids,
        "request_id": body.request_id,
        "cache_salt": body.cache_salt,
        "priority": body.priority,
    }
    call = checked(data, request.headers, machine)
    answer = _Answer(
        body=body, call=call, request_id=f"generate-tokens-{body.request_id or secrets.token_hex(8)}", machine=machine
    )
    if not body.stream:
        return json_response(dumped(answer.whole(await run_to_end(call, machine))))
    with running(machine, lambda: started(call, machine, watch=True)) as choices:
        async with machine.event_stream(request) as stream:
            await answer.send(stream, choices)
            count(call, choices, machine)
    return stream


def _check(body: GenerateRequest, machine: Machine) -> None:
    """What the completions endpoint would find too, in other words."""
    logprobs = body.sampling_params.get("logprobs")
    if logprobs is not None and logprobs < -1:
        raise BadParameter(
            f"logprobs must be non-negative or -1, got {logprobs}.", parameter="logprobs", value=logprobs
        )
    length, longest = len(body.token_ids), machine.max_model_len
    if length > longest:
        raise ApiError(
            f"The decoder prompt (length {length}) is longer than the maximum model length of {longest}. "
            "Make sure that `max_model_len` is no smaller than the number of text tokens."
        )
    if length == longest:
        raise ApiError(
            f"The decoder prompt (length {length}) plus the number of requested output tokens (at least 1) is longer "
            f"than the maximum model length of {longest}. Make sure that `max_model_len` is no smaller than the number "
            "of text tokens (prompt + requested output tokens)."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What the answer to one request is made from."""

    body: GenerateRequest
    call: CompletionCall
    request_id: str
    machine: Machine

    def whole(self, choices: list[Choice]) -> dict[str, Any]:
        """The answer in one piece."""
        wanted = self.call.num_prompt_logprobs
        return {
            "request_id": self.request_id,
            "model": self.machine.model_names[0],
            "created": self.call.envelope.created,
            "usage": self._usage(choices).whole(),
            "prompt_logprobs": None if wanted is None else prompt_logprobs(self.call.prompts[0], wanted),
            "prompt_token_id_logprobs": None,
            "prompt_token_ids": self.body.token_ids if self.body.return_token_ids else None,
            "mm_placeholders": None,
            "metrics": None,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "output_mode": self.body.output_mode,
            "choices": [self._choice(one, 0, num_tokens(one.reply.token_ids), is_final=True) for one in choices],
        }

    async def send(self, stream: EventStream, choices: list[Choice]) -> None:
        """One event for each token, then the usage if it is wanted."""

        async def send_choice(choice: Choice) -> None:
            async for burst in bursts(choice, self.machine):
                last = choice.num_sent_tokens + burst.num_tokens
                await stream.send(
                    *(
                        self._event(choice, position, is_final=burst.finished and position == last)
                        for position in range(choice.num_sent_tokens + 1, last + 1)
                    )
                )
                choice.num_sent_tokens = last

        await together([lambda choice=choice: send_choice(choice) for choice in choices])  # type: ignore[misc]
        final = []
        if self.body.stream_options is not None and self.body.stream_options.include_usage:
            usage = self._usage(choices).final_chunk()
            chunk = {"request_id": self.request_id, "usage": usage, "output_mode": self.body.output_mode, "choices": []}
            final = [b"data: %b\n\n" % dumped(chunk)]
        await stream.send(*final, DONE)

    def _event(self, choice: Choice, position: int, *, is_final: bool) -> bytes:
        """The ``position``-th token of a choice, from 1."""
        body = self.body
        options = body.stream_options or StreamOptions()
        usage = None
        if options.include_usage and options.continuous_usage_stats:
            usage = Usage(num_prompt_tokens=len(body.token_ids), num_output_tokens=position).whole()
        chunk: dict[str, Any] = {"request_id": self.request_id, "usage": usage}
        if body.return_token_ids and position == 1 and choice.index == 0:
            chunk["prompt_token_ids"] = body.token_ids
        chunk["output_mode"] = body.output_mode
        chunk["choices"] = [self._choice(choice, position - 1, position, is_final=is_final)]
        return b"data: %b\n\n" % dumped(chunk)

    def _choice(self, choice: Choice, first: int, last: int, *, is_final: bool) -> dict[str, Any]:
        """Tokens ``first`` to ``last`` of a reply."""
        ids = unpack(choice.reply.token_ids[first * TOKEN_BYTES : last * TOKEN_BYTES])
        spans = [{"version": "default", "start": 0, "end": num_tokens(choice.reply.token_ids)}]
        row: dict[str, Any] = {
            "index": choice.index,
            "finish_reason": choice.finish_reason if is_final else None,
            "stop_reason": choice.reply.stop_reason if is_final else None,
            "token_ids": ids,
            "routed_experts": None,
            "sampling_mask": None,
            "weight_versions": spans if is_final else None,
        }
        is_text = self.body.output_mode == "text"
        if is_text:
            row["text"] = "".join(texts_by_token(choice.reply)[first:last])
        row["logprobs"] = None
        if self.call.body.logprobs is not None:
            num_top = max(1, self.call.body.logprobs)
            row["logprobs"] = chat_logprobs(ids, num_top, as_ids=False) if is_text else token_logprobs(ids, num_top)
        return row

    def _usage(self, choices: list[Choice]) -> Usage:
        num_cached_tokens = choices[0].generation.num_cached_tokens
        with_details = self.machine.settings.enable_prompt_tokens_details
        return Usage(
            num_prompt_tokens=len(self.body.token_ids),
            num_output_tokens=sum(choice.generation.num_output_tokens for choice in choices),
            num_cached_tokens=num_cached_tokens if with_details else None,
        )
