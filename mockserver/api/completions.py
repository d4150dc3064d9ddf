"""``POST /v1/completions``: text or token ids in, text out."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

from mockserver.api.answer import answer
from mockserver.api.bodies import Envelope, Usage, completion_body, dumped, final_chunk, running_completion_usage
from mockserver.api.checks import check_completion
from mockserver.api.choices import Choice, bursts, count_finished, ended, running, timing, together
from mockserver.api.compose import check_grammar, constraint_of, is_guided, replies_to
from mockserver.api.errors import ApiError, EngineRefusal, unknown_model
from mockserver.api.http import DONE, EventStream, frame, read_body
from mockserver.api.logprobs import completion_logprobs, prompt_logprobs
from mockserver.api.machine import Machine, Placement, placement_of
from mockserver.api.prompts import completion_prompts
from mockserver.api.sampling import Sampling, max_output_tokens, sampling_of
from mockserver.api.schema import CompletionRequest
from mockserver.api.views import json_text, texts_by_token
from mockserver.clock import unix_seconds
from mockserver.prompt import end_of_turn
from mockserver.tokens import decode, num_tokens, unpack

KIND = "text_completion"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionCall:
    """A completion request that was found good."""

    body: CompletionRequest
    prompts: list[bytes]
    samplings: list[Sampling]
    """One for each prompt."""
    request_id: str
    envelope: Envelope
    num_prompt_logprobs: int | None
    placement: Placement
    generates: bool
    """False where only the prompt is wanted back (echo with max_tokens 0)."""
    late_error: ApiError | None
    """What only the engine finds: a stream has begun by then and carries it as an event."""

    @property
    def num_choices(self) -> int:
        """Choices for each prompt."""
        return self.samplings[0].num_choices


async def completions(request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """Answer one completion request."""
    call = await read_body(request, lambda data: prepared(data, request.headers, machine))
    return await answer(
        request,
        machine,
        is_stream=bool(call.body.stream),
        late_error=call.late_error,
        whole=lambda: _whole_answer(call, machine),
        start=lambda: started(call, machine, watch=True),
        send=lambda stream, choices: _stream_answer(stream, call, choices, machine),
    )


def checked(data: Any, headers: Mapping[str, str], machine: Machine) -> CompletionCall:
    """``prepared``, for endpoints that tell of everything before they answer."""
    call = prepared(data, headers, machine)
    if call.late_error is not None:
        raise call.late_error
    return call


def prepared(data: Any, headers: Mapping[str, str], machine: Machine) -> CompletionCall:
    """Check a body in vLLM's order, and find its prompts and limits."""
    if isinstance(data, dict):
        check_completion(data)
    body = CompletionRequest.parse(data)
    if body.model and body.model not in machine.model_names:
        raise unknown_model(body.model, machine.model_names)
    if body.stream and body.use_beam_search:
        raise ApiError("Streaming is not currently supported with beam search")
    machine.check_admission(body.n)
    if body.suffix:
        raise ApiError("suffix is only supported for models with FIM completion rendering", param="suffix")
    refusal: ApiError | None = None
    try:
        prompts = completion_prompts(body, machine.encoder, max_model_len=machine.max_model_len)
    except EngineRefusal as error:
        refusal, prompts = error, [end_of_turn()]
    generates = not (body.echo and body.max_tokens == 0)
    samplings = []
    for prompt in prompts:
        max_tokens = max_output_tokens(body.max_tokens, num_tokens(prompt), machine.max_model_len)
        samplings.append(sampling_of(body, max_tokens if generates else 1))
    num_prompt_logprobs = body.prompt_logprobs
    if num_prompt_logprobs is None and body.echo:
        num_prompt_logprobs = body.logprobs
    request_id = "cmpl-" + (headers.get("X-Request-Id", body.request_id or secrets.token_hex(8)))
    return CompletionCall(
        body=body,
        prompts=prompts,
        samplings=samplings,
        request_id=request_id,
        envelope=Envelope(
            id=request_id,
            created=int(unix_seconds()),
            model=machine.model_names[0],
            fingerprint=machine.fingerprint,
        ),
        num_prompt_logprobs=num_prompt_logprobs,
        placement=placement_of(headers, priority=body.priority, session_id=body.session_id),
        generates=generates,
        late_error=refusal or samplings[0].late_error or check_grammar(constraint_of(body)),
    )


def started(call: CompletionCall, machine: Machine, *, watch: bool) -> list[Choice]:
    """Hand the call's replies to the engine; all of them or none."""
    guided = is_guided(call.body)
    choices: list[Choice] = []
    try:
        for number, (prompt, sampling) in enumerate(zip(call.prompts, call.samplings, strict=True)):
            for reply in replies_to(call.body, sampling, prompt, machine):
                generation = machine.start(
                    prompt,
                    reply,
                    request_id=f"{call.request_id}-{number}",
                    max_tokens=sampling.limits.max_tokens,
                    salt=call.body.cache_salt or "",
                    placement=call.placement,
                    reads_cache=call.num_prompt_logprobs is None,
                    guided=guided,
                    watch=watch,
                )
                choices.append(Choice(index=len(choices), reply=reply, generation=generation))
    except ApiError:  # a later prompt of the batch does not fit
        for choice in choices:
            machine.leave(choice.generation)
        raise
    return choices


async def run_to_end(call: CompletionCall, machine: Machine) -> list[Choice]:
    """The call's choices when all of them have ended."""
    with running(machine, lambda: started(call, machine, watch=False)) as choices:
        await ended(choices, machine)
        count(call, choices, machine)
    return choices


async def _whole_answer(call: CompletionCall, machine: Machine) -> bytes:
    choices = await run_to_end(call, machine)
    delivered_at = machine.clock.now()
    extension = None if call.body.replayrig is None else timing(choices, delivered_at)
    rows = [_whole_choice(call, choice) for choice in choices]
    return completion_body(call.envelope, rows, _usage(call, choices, machine), extension=extension)


def _whole_choice(call: CompletionCall, choice: Choice) -> dict[str, Any]:
    body = call.body
    prompt = call.prompts[choice.index // call.num_choices]
    ids = unpack(choice.reply.token_ids) if call.generates else []
    text = "".join(texts_by_token(choice.reply)) if call.generates else ""
    prompt_ids: list[int] = []
    if body.echo:
        prompt_ids = unpack(prompt)
        text = ("" if body.return_token_ids else decode(prompt)) + text
    logprobs = None
    if body.logprobs is not None:
        logprobs = completion_logprobs(
            [*prompt_ids, *ids],
            body.logprobs,
            as_ids=bool(body.return_tokens_as_token_ids),
            num_unknown=1 if prompt_ids else 0,
        )
    return {
        "index": choice.index,
        "text": text,
        "logprobs": logprobs,
        "finish_reason": choice.finish_reason,
        "stop_reason": choice.reply.stop_reason,
        "token_ids": ids if body.return_token_ids else None,
        "prompt_logprobs": (
            None if call.num_prompt_logprobs is None else prompt_logprobs(prompt, call.num_prompt_logprobs)
        ),
        "prompt_token_ids": unpack(prompt) if body.return_token_ids else None,
        "routed_experts": None,
    }


async def _stream_answer(stream: EventStream, call: CompletionCall, choices: list[Choice], machine: Machine) -> None:
    builder = _CompletionStream(call, machine)

    async def send_choice(choice: Choice) -> None:
        async for burst in bursts(choice, machine):
            chunks = builder.take(choice, burst.num_tokens, finished=burst.finished)
            if burst.finished and len(choices) == 1:
                chunks += _ending(call, choices, machine)
            if chunks:
                await stream.send_framed(frame(chunks))

    await together([lambda choice=choice: send_choice(choice) for choice in choices])  # type: ignore[misc]
    if len(choices) > 1:
        await stream.send_framed(frame(_ending(call, choices, machine)))
    count(call, choices, machine)


def _ending(call: CompletionCall, choices: list[Choice], machine: Machine) -> list[bytes]:
    include_usage, _ = _wanted_usage(call.body, machine)
    if not include_usage:
        return [DONE]
    extension = None if call.body.replayrig is None else timing(choices, machine.clock.now())
    return [final_chunk(call.envelope, KIND, _usage(call, choices, machine), extension), DONE]


class _CompletionStream:
    """Builds the chunks of one answer."""

    def __init__(self, call: CompletionCall, machine: Machine) -> None:
        self._call = call
        self._start = call.envelope.chunk_start(KIND)
        self._include_usage, self._continuous_usage = _wanted_usage(call.body, machine)
        self._interval = max(call.body.stream_interval or 1, machine.settings.stream_interval)
        self._texts: dict[int, list[str]] = {}
        self._text_offsets: dict[int, int] = {}

    def take(self, choice: Choice, num_new: int, *, finished: bool) -> list[bytes]:
        """The chunks of the next ``num_new`` tokens of a choice."""
        texts = self._texts.get(choice.index)
        if texts is None:
            texts = self._texts[choice.index] = texts_by_token(choice.reply)
        chunks: list[bytes] = []
        position = choice.num_sent_tokens
        last = choice.num_due_tokens = choice.num_due_tokens + num_new
        while position < last:
            end = min(last, position + (1 if position == 0 else self._interval))
            if end - position < self._interval and position and not finished:
                break
            chunks.append(self._chunk(choice, position, end, is_final=finished and end == last))
            position = end
        if finished and choice.num_sent_tokens == last:  # aborted between tokens
            chunks.append(self._chunk(choice, last, last, is_final=True))
        choice.num_sent_tokens = position
        return chunks

    def _chunk(self, choice: Choice, first: int, last: int, *, is_final: bool) -> bytes:
        call, body = self._call, self._call.body
        prompt = call.prompts[choice.index // call.num_choices]
        ids = unpack(choice.reply.token_ids[first * 4 : last * 4]) if call.generates else []
        text = "".join(self._texts[choice.index][first:last]) if call.generates else ""
        shown_ids = ids
        if first == 0 and body.echo:
            shown_ids = [*unpack(prompt), *ids]
            text = ("" if body.return_token_ids else decode(prompt)) + text
        return b'%b{"index":%d,"text":%b,"logprobs":%b,"finish_reason":%b,"stop_reason":%b,%b}]%b%b}\n\n' % (
            self._start,
            choice.index,
            json_text(text),
            self._logprobs(choice, shown_ids, num_unknown=1 if first == 0 and body.echo else 0),
            b'"%b"' % choice.finish_reason.encode() if is_final else b"null",
            dumped(choice.reply.stop_reason) if is_final else b"null",
            b'"prompt_token_ids":%b,"token_ids":%b'
            % (
                orjson.dumps(unpack(prompt)) if (body.return_token_ids or body.echo) and first == 0 else b"null",
                orjson.dumps(ids) if body.return_token_ids else b"null",
            ),
            running_completion_usage(num_tokens(prompt), last) if self._continuous_usage else b"",
            call.envelope.fingerprint_field() if is_final and not self._include_usage else b"",
        )

    def _logprobs(self, choice: Choice, ids: list[int], *, num_unknown: int) -> bytes:
        wanted = self._call.body.logprobs
        if wanted is None:
            return b"null"
        offset = self._text_offsets.get(choice.index, 0)
        rows = completion_logprobs(
            ids,
            wanted,
            as_ids=bool(self._call.body.return_tokens_as_token_ids),
            offset=offset,
            num_unknown=num_unknown,
        )
        self._text_offsets[choice.index] = offset + sum(map(len, rows["tokens"]))
        return dumped(rows)


def _wanted_usage(body: CompletionRequest, machine: Machine) -> tuple[bool, bool]:
    if machine.settings.enable_force_include_usage:
        return True, True
    options = body.stream_options
    if options is None or not options.include_usage:
        return False, False
    return True, bool(options.continuous_usage_stats)


def _usage(call: CompletionCall, choices: list[Choice], machine: Machine) -> Usage:
    with_details = machine.settings.enable_prompt_tokens_details or call.body.replayrig is not None
    num_output_tokens = sum(choice.generation.num_output_tokens for choice in choices) if call.generates else 0
    shown = choices[0] if call.body.stream else choices[-1]
    return Usage(
        num_prompt_tokens=sum(map(num_tokens, call.prompts)),
        num_output_tokens=num_output_tokens,
        num_cached_tokens=shown.generation.num_cached_tokens if with_details else None,
    )


def count(call: CompletionCall, choices: list[Choice], machine: Machine) -> None:
    """Enter a call's ended choices into the books."""
    for sampling, start in zip(call.samplings, range(0, len(choices), call.num_choices), strict=True):
        count_finished(
            choices[start : start + call.num_choices],
            machine,
            max_tokens=sampling.limits.max_tokens,
        )
