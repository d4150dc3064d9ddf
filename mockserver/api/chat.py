"""``POST /v1/chat/completions``: from the body to the answer."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from aiohttp import web

from mockserver.api.answer import answer
from mockserver.api.bodies import Envelope, Usage, chat_body, chat_choice, final_chunk
from mockserver.api.chat_stream import KIND, ChatStream, StreamOptions
from mockserver.api.checks import check_chat
from mockserver.api.choices import Choice, bursts, count_finished, ended, new_call_ids, running, timing, together
from mockserver.api.compose import check_grammar, constraint_of, is_guided, replies_to
from mockserver.api.errors import ApiError, EngineRefusal, unknown_model
from mockserver.api.http import DONE, EventStream, frame, read_body
from mockserver.api.logprobs import chat_logprobs, prompt_logprobs
from mockserver.api.machine import Machine, Placement, placement_of
from mockserver.api.prompts import chat_prompt, prompt_text
from mockserver.api.sampling import Sampling, max_output_tokens, sampling_of
from mockserver.api.schema import ChatRequest, NamedToolChoice
from mockserver.api.views import chat_view
from mockserver.clock import unix_seconds
from mockserver.prompt import end_of_turn, text_of
from mockserver.tokens import num_tokens, unpack


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCall:
    """A chat request that was found good, with everything that its answer depends on."""

    body: ChatRequest
    prompt: bytes
    sampling: Sampling
    request_id: str
    envelope: Envelope
    num_prompt_logprobs: int | None
    placement: Placement
    late_error: ApiError | None
    """What only the engine finds: a stream has begun by then and carries it as an event."""


async def chat_completions(request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """Answer one chat request."""
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


def checked(data: Any, headers: Mapping[str, str], machine: Machine) -> ChatCall:
    """``prepared``, for endpoints that tell of everything before they answer."""
    call = prepared(data, headers, machine)
    if call.late_error is not None:
        raise call.late_error
    return call


def prepared(data: Any, headers: Mapping[str, str], machine: Machine) -> ChatCall:
    """Check a body in vLLM's order, and find its prompt and limits."""
    if isinstance(data, dict):
        check_chat(data)
    body = ChatRequest.parse(data)
    if body.model and body.model not in machine.model_names:
        raise unknown_model(body.model, machine.model_names)
    machine.check_admission(body.n or 1)
    _check_tool_parser(body, machine)
    refusal: ApiError | None = None
    try:
        prompt = chat_prompt(body, machine.encoder, max_model_len=machine.max_model_len, model=machine.model_names[0])
    except EngineRefusal as error:
        refusal, prompt = error, end_of_turn()
    wanted = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    max_tokens = max_output_tokens(wanted, num_tokens(prompt), machine.max_model_len)
    sampling = sampling_of(body, max_tokens)
    request_id = "chatcmpl-" + (headers.get("X-Request-Id", body.request_id or secrets.token_hex(8)))
    num_prompt_logprobs = body.prompt_logprobs
    if num_prompt_logprobs is None and body.echo:
        num_prompt_logprobs = body.top_logprobs
    return ChatCall(
        body=body,
        prompt=prompt,
        sampling=sampling,
        request_id=request_id,
        envelope=Envelope(
            id=request_id,
            created=int(unix_seconds()),
            model=machine.model_names[0],
            fingerprint=machine.fingerprint,
        ),
        num_prompt_logprobs=num_prompt_logprobs,
        placement=placement_of(headers, priority=body.priority, session_id=body.session_id),
        late_error=refusal
        or sampling.late_error
        or _thinking_error(body, machine)
        or check_grammar(constraint_of(body)),
    )


def _thinking_error(body: ChatRequest, machine: Machine) -> ApiError | None:
    if body.thinking_token_budget is None or machine.settings.reasoning_parser:
        return None
    return ApiError(
        "thinking_token_budget is set but reasoning_config is not configured. Please set --reasoning-parser and/or "
        "--reasoning-config to use thinking_token_budget."
    )


def _check_tool_parser(body: ChatRequest, machine: Machine) -> None:
    choice = body.tool_choice
    settings = machine.settings
    if choice in (None, "none") or (
        settings.tool_call_parser and (choice != "auto" or settings.enable_auto_tool_choice)
    ):
        return
    if choice == "auto":
        if settings.enable_auto_tool_choice:
            return
        raise ApiError('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set')
    shown = f'function "{choice.function.name}"' if isinstance(choice, NamedToolChoice) else f'"{choice}"'
    raise ApiError(f"tool_choice={shown} requires --tool-call-parser to be set")


def started(call: ChatCall, machine: Machine, *, watch: bool) -> list[Choice]:
    """Hand the call's replies to the engine."""
    interval = max(call.body.stream_interval or 1, machine.settings.stream_interval) if watch else 0
    guided = is_guided(call.body)
    choices: list[Choice] = []
    for index, reply in enumerate(replies_to(call.body, call.sampling, call.prompt, machine)):
        generation = machine.start(
            call.prompt,
            reply,
            request_id=call.request_id,
            max_tokens=call.sampling.limits.max_tokens,
            salt=call.body.cache_salt or "",
            placement=call.placement,
            reads_cache=call.num_prompt_logprobs is None,
            guided=guided,
            watch=interval,
        )
        choices.append(Choice(index=index, reply=reply, generation=generation, call_ids=_call_ids(call.body, reply)))
    return choices


def _call_ids(body: ChatRequest, reply: Any) -> list[str]:
    """Fresh ids, or those of the script."""
    call_ids = new_call_ids(reply)
    script = body.replayrig.reply if body.replayrig is not None else None
    calls = (script or {}).get("tool_calls")
    for number, call in enumerate(calls if isinstance(calls, list) else ()):
        if number < len(call_ids) and isinstance(call, dict) and isinstance(call.get("id"), str):
            call_ids[number] = call["id"]
    return call_ids


async def run_to_end(call: ChatCall, machine: Machine) -> list[Choice]:
    """The call's choices when all of them have ended."""
    with running(machine, lambda: started(call, machine, watch=False)) as choices:
        await ended(choices, machine)
        count_finished(choices, machine, max_tokens=call.sampling.limits.max_tokens)
    return choices


async def _whole_answer(call: ChatCall, machine: Machine) -> bytes:
    choices = await run_to_end(call, machine)
    delivered_at = machine.clock.now()
    body = call.body
    rows = [whole_choice(call, choice, machine) for choice in choices]
    return chat_body(
        call.envelope,
        rows,
        usage_of(call, choices, machine),
        prompt_logprobs=(
            None if call.num_prompt_logprobs is None else prompt_logprobs(call.prompt, call.num_prompt_logprobs)
        ),
        prompt_token_ids=unpack(call.prompt) if body.return_token_ids else None,
        prompt_text=prompt_text(call.prompt) if body.return_prompt_text else None,
        extension=None if body.replayrig is None else timing(choices, delivered_at),
    )


def whole_choice(call: ChatCall, choice: Choice, machine: Machine) -> dict[str, Any]:
    """One choice of a whole answer."""
    body = call.body
    view = chat_view(choice.reply, choice.call_ids, parallel=body.parallel_tool_calls is not False)
    if machine.settings.reasoning_parser:
        view = replace(view, content=view.content or None, reasoning=view.reasoning if body.include_reasoning else None)
    is_named = isinstance(body.tool_choice, NamedToolChoice)
    finish_reason = choice.finish_reason
    if not is_named and finish_reason == "stop" and (view.tool_calls or body.tool_choice == "required"):
        finish_reason = "tool_calls"
    if body.tools and body.tool_choice != "none":
        outcome = "tool_call" if view.tool_calls else "no_tool_call"
        machine.metrics.http.num_tool_parses["non_streaming", outcome] += 1
    row = chat_choice(
        choice.index,
        view,
        role=_role(body),
        finish_reason=finish_reason,
        stop_reason=choice.reply.stop_reason,
        logprobs=(
            None
            if call.sampling.num_top_logprobs is None
            else chat_logprobs(
                unpack(choice.reply.token_ids),
                call.sampling.num_top_logprobs,
                as_ids=bool(body.return_tokens_as_token_ids),
            )
        ),
        token_ids=unpack(choice.reply.token_ids) if body.return_token_ids else None,
    )
    message = row["message"]
    if message["content"] is None and (is_named or body.tool_choice == "required"):
        message["content"] = ""
    if body.echo:
        message["content"] = _echoed(body) + (message["content"] or "")
    return row


async def _stream_answer(stream: EventStream, call: ChatCall, choices: list[Choice], machine: Machine) -> None:
    builder = ChatStream(call.envelope, _stream_options(call, machine))
    is_open = False

    async def send_choice(choice: Choice) -> None:
        nonlocal is_open
        async for burst in bursts(choice, machine):
            parts: list[bytes] = []
            if not is_open:
                is_open = True
                parts = builder.opening([one.index for one in choices], _echoed(call.body))
            parts += builder.take(choice, burst.num_tokens, finished=burst.finished)
            if burst.finished and len(choices) == 1:
                parts += _ending(call, choices, machine)
            if parts:
                await stream.send_framed(parts)
            if (next_look := builder.next_look(choice)) is not None:
                choice.generation.look_at(next_look)

    await together([lambda choice=choice: send_choice(choice) for choice in choices])  # type: ignore[misc]
    if len(choices) > 1:
        await stream.send_framed(_ending(call, choices, machine))
    count_finished(choices, machine, max_tokens=call.sampling.limits.max_tokens)


def _ending(call: ChatCall, choices: list[Choice], machine: Machine) -> list[bytes]:
    """What follows the last choice."""
    include_usage, _ = _wanted_usage(call.body, machine)
    if not include_usage:
        return frame((DONE,))
    extension = None if call.body.replayrig is None else timing(choices, machine.clock.now())
    return frame((final_chunk(call.envelope, KIND, usage_of(call, choices, machine), extension), DONE))


def _stream_options(call: ChatCall, machine: Machine) -> StreamOptions:
    body = call.body
    include_usage, continuous_usage = _wanted_usage(body, machine)
    return StreamOptions(
        role=_role(body),
        num_prompt_tokens=num_tokens(call.prompt),
        include_usage=include_usage,
        continuous_usage=continuous_usage,
        num_top_logprobs=call.sampling.num_top_logprobs,
        as_token_ids=bool(body.return_tokens_as_token_ids),
        with_token_ids=bool(body.return_token_ids),
        prompt_token_ids=unpack(call.prompt) if body.return_token_ids else None,
        prompt_text=prompt_text(call.prompt) if body.return_prompt_text else None,
        interval=max(body.stream_interval or 1, machine.settings.stream_interval),
        first_at_once=body.replayrig is not None and body.replayrig.first_at_once,
        parallel_calls=body.parallel_tool_calls is not False,
        is_named_call=isinstance(body.tool_choice, NamedToolChoice),
        counts_reasoning=machine.settings.reasoning_parser is not None,
        with_reasoning=body.include_reasoning,
    )


def _wanted_usage(body: ChatRequest, machine: Machine) -> tuple[bool, bool]:
    """Whether a usage chunk ends the stream, and whether every chunk has usage."""
    if machine.settings.enable_force_include_usage:
        return True, True
    options = body.stream_options
    if options is None or not options.include_usage:
        return False, False
    return True, bool(options.continuous_usage_stats)


def usage_of(call: ChatCall, choices: list[Choice], machine: Machine) -> Usage:
    """The answer's tokens, as far as this server tells."""
    with_details = machine.settings.enable_prompt_tokens_details or call.body.replayrig is not None
    with_details = with_details and not call.body.use_beam_search
    first = choices[0].generation
    return Usage(
        num_prompt_tokens=num_tokens(call.prompt),
        num_output_tokens=sum(choice.generation.num_output_tokens for choice in choices),
        num_cached_tokens=first.num_cached_tokens if with_details else None,
        num_created_cache_tokens=machine.num_created_cache_tokens(first) if with_details else None,
        num_reasoning_tokens=(
            sum(chat_view(choice.reply, choice.call_ids).num_reasoning_tokens for choice in choices)
            if machine.settings.reasoning_parser
            else None
        ),
    )


def _role(body: ChatRequest) -> str:
    if body.add_generation_prompt:
        return "assistant"
    return str(body.messages[-1].get("role", "assistant"))


def _echoed(body: ChatRequest) -> str:
    if not body.echo:
        return ""
    last = body.messages[-1]
    return text_of(last.get("content")) if last.get("role") == _role(body) else ""
