"""The sampling parameters of a request: vLLM's checks of them, and what is left of them for a mock."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mockserver.api.errors import BadParameter
from mockserver.api.replies import Limits
from mockserver.api.schema import ChatRequest, CompletionRequest

VOCABULARY_SIZE = 100_277  # cl100k_base, its specials included
MAX_LOGPROBS = 20
_MAX_N = 16_384
_GREEDY_BELOW = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How one request's replies are sampled."""

    limits: Limits
    num_choices: int
    is_greedy: bool
    seed: int | None
    logit_bias: dict[int, float]
    num_top_logprobs: int | None
    """Alternatives reported per token; None: no logprobs at all."""
    late_error: BadParameter | None
    """What only the engine finds: a stream has begun by then and carries it as an event."""


def max_output_tokens(wanted: int | None, num_prompt_tokens: int, max_model_len: int) -> int:
    """The request's limit, clipped to what the context leaves."""
    left = max_model_len - num_prompt_tokens
    return left if wanted is None else min(wanted, left)


def check_requested_tokens(wanted: int | None, name: str, max_model_len: int) -> None:
    """Refuse more output than the context could ever hold."""
    if wanted is not None and wanted > max_model_len:
        raise BadParameter(
            f"{name}={wanted} cannot be greater than max_model_len={max_model_len}. "
            "Please request fewer output tokens.",
            parameter=name,
            value=wanted,
        )


def sampling_of(request: ChatRequest | CompletionRequest, max_tokens: int) -> Sampling:
    """The request's sampling parameters, or vLLM's complaint about them."""
    logit_bias = _logit_bias(request)
    num_choices = 1 if request.n is None else request.n
    _check_n(num_choices)
    temperature = 1.0 if request.temperature is None else request.temperature
    top_p = 1.0 if request.top_p is None else request.top_p
    _check_penalties(request)
    _check_temperature(temperature)
    if not 0.0 < top_p <= 1.0:
        raise BadParameter(f"top_p must be in (0, 1], got {top_p}.", parameter="top_p", value=top_p)
    if request.top_k is not None and request.top_k < -1:
        raise BadParameter(f"top_k must be 0 (disable), or at least 1, got {request.top_k}.")
    if request.min_p is not None and not 0.0 <= request.min_p <= 1.0:
        raise BadParameter(f"min_p must be in [0, 1], got {request.min_p}.")
    if max_tokens < 1:
        raise BadParameter(
            f"max_tokens must be at least 1, got {max_tokens}.", parameter="max_tokens", value=max_tokens
        )
    if request.min_tokens < 0:
        raise BadParameter(f"min_tokens must be greater than or equal to 0, got {request.min_tokens}.")
    if request.min_tokens > max_tokens:
        raise BadParameter(
            f"min_tokens must be less than or equal to max_tokens={max_tokens}, got {request.min_tokens}."
        )
    stop = _stop_strings(request)
    if any(not word for word in request.bad_words):
        raise BadParameter(f"bad_words cannot contain an empty string. Got bad_words={request.bad_words}")
    is_greedy = temperature < _GREEDY_BELOW
    if is_greedy and num_choices > 1 and not request.use_beam_search:
        raise BadParameter(f"n must be 1 when using greedy sampling, got {num_choices}.")
    num_top_logprobs = _num_top_logprobs(request)
    return Sampling(
        limits=Limits(
            max_tokens=max_tokens,
            min_tokens=request.min_tokens,
            ignore_eos=request.ignore_eos,
            stop=stop,
            include_stop=request.include_stop_str_in_output,
            stop_token_ids=frozenset(request.stop_token_ids or ()),
        ),
        num_choices=num_choices,
        is_greedy=is_greedy,
        seed=request.seed,
        logit_bias=logit_bias,
        num_top_logprobs=num_top_logprobs,
        late_error=_late_error(request, num_top_logprobs, logit_bias),
    )


def _check_n(num_choices: int) -> None:
    if num_choices < 1:
        raise BadParameter(f"n must be at least 1, got {num_choices}.")
    if num_choices > _MAX_N:
        raise BadParameter(
            f"n must be at most {_MAX_N}, got {num_choices}. "
            "To increase this limit, set the VLLM_MAX_N_SEQUENCES environment variable."
        )


def _check_penalties(request: ChatRequest | CompletionRequest) -> None:
    for name in ("presence_penalty", "frequency_penalty"):
        value = getattr(request, name)
        if value is not None and not -2.0 <= value <= 2.0:
            raise BadParameter(f"{name} must be in [-2, 2], got {value}.")
    repetition = request.repetition_penalty
    if repetition is None:
        return
    if not math.isfinite(repetition):
        raise BadParameter(f"repetition_penalty must be a finite number, got {repetition}.")
    if repetition <= 0.0:
        raise BadParameter(f"repetition_penalty must be greater than zero, got {repetition}.")


def _check_temperature(temperature: float) -> None:
    complaint = None
    if not math.isfinite(temperature):
        complaint = "be a finite number"
    elif temperature < 0.0:
        complaint = "be non-negative"
    elif temperature > 2.0:
        complaint = "be in [0, 2]"
    if complaint:
        raise BadParameter(
            f"temperature must {complaint}, got {temperature}.", parameter="temperature", value=temperature
        )


def _stop_strings(request: ChatRequest | CompletionRequest) -> tuple[str, ...]:
    if request.stop is None:
        return ()
    stop = (request.stop,) if isinstance(request.stop, str) else tuple(request.stop)
    if any(not text for text in stop):
        raise BadParameter("stop cannot contain an empty string.")
    return stop


def _logit_bias(request: ChatRequest | CompletionRequest) -> dict[int, float]:
    biases: dict[int, float] = {}
    bad_keys = []
    for key, bias in (request.logit_bias or {}).items():
        try:
            biases[int(key)] = min(100.0, max(-100.0, bias))
        except ValueError:
            bad_keys.append(key)
    if bad_keys:
        raise BadParameter(
            f"logit_bias contains key(s) that cannot be converted to integer token IDs: {bad_keys!r}",
            parameter="logit_bias",
            value=bad_keys,
        )
    return biases


def _num_top_logprobs(request: ChatRequest | CompletionRequest) -> int | None:
    if isinstance(request, ChatRequest):
        return request.top_logprobs if request.logprobs else None
    return request.logprobs


def _late_error(
    request: ChatRequest | CompletionRequest, num_top_logprobs: int | None, logit_bias: dict[int, float]
) -> BadParameter | None:
    for name, kind, wanted in (
        ("logprobs", "sample", num_top_logprobs),
        ("prompt_logprobs", "prompt", request.prompt_logprobs),
    ):
        num_wanted = VOCABULARY_SIZE if wanted == -1 else wanted or 0
        if num_wanted > MAX_LOGPROBS:
            return BadParameter(
                f"Requested {kind} logprobs of {num_wanted}, which is greater than max allowed: {MAX_LOGPROBS}",
                parameter=name,
                value=num_wanted,
            )
    for name, ids in (("logit_bias", list(logit_bias)), ("stop_token_ids", request.stop_token_ids or [])):
        unknown = [token_id for token_id in ids if not 0 <= token_id < VOCABULARY_SIZE]
        if unknown:
            return BadParameter(
                f"token_id(s) {unknown} in {name} contain out-of-vocab token ids. Vocabulary size: {VOCABULARY_SIZE}",
                parameter=name,
                value=unknown,
            )
    allowed = request.allowed_token_ids
    if allowed is not None and not allowed:
        return BadParameter("allowed_token_ids is not None and empty!", parameter="allowed_token_ids", value=allowed)
    unknown = [token_id for token_id in allowed or () if not 0 <= token_id < VOCABULARY_SIZE]
    if unknown:
        return BadParameter(
            "allowed_token_ids contains out-of-vocab token id!", parameter="allowed_token_ids", value=unknown
        )
    return None
