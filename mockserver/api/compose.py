"""What the model says to a request that brings no script: text, tool calls, or what a constraint allows. Seeded.

The same request gets the same reply where a real model's would be the same: at temperature 0 or with a seed.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import orjson

from mockserver.api.errors import ApiError
from mockserver.api.instances import check_schema, instance
from mockserver.api.machine import Machine
from mockserver.api.patterns import matching
from mockserver.api.prompts import plain_reply
from mockserver.api.replies import Kind, Reply, Span, generate, prose, scripted, thinking
from mockserver.api.sampling import Sampling
from mockserver.api.schema import ChatRequest, CompletionRequest, NamedToolChoice, StructuredOutputs
from mockserver.prompt import end_of_turn
from mockserver.tokens import SPECIAL_TOKENS

FULL_LENGTH_UP_TO = 256
"""A limit on the output that is not larger is taken for the length that is wanted."""
_FORCING_BIAS = 100.0
_SECOND_CALL_SHARE = 0.2
_EOS_IDS = (SPECIAL_TOKENS["<|im_end|>"], SPECIAL_TOKENS["<|endoftext|>"])


def replies_to(
    request: ChatRequest | CompletionRequest, sampling: Sampling, prompt: bytes, machine: Machine
) -> list[Reply]:
    """One reply for each choice that was asked for."""
    if request.replayrig is not None and request.replayrig.reply is not None:
        spans = scripted(plain_reply(request.replayrig.reply, model=machine.model_names[0]), machine.encoder)
        reply = generate(spans, sampling.limits, seed=f"{machine.settings.seed}/script")
        return [reply] * sampling.num_choices
    seed = _seed(request, sampling, prompt, machine)
    return [
        generate(_spans(request, sampling, f"{seed}/{choice}", machine), sampling.limits, seed=f"{seed}/{choice}")
        for choice in range(sampling.num_choices)
    ]


def constraint_of(request: ChatRequest | CompletionRequest) -> StructuredOutputs | None:
    """What guided decoding is asked to produce, if anything; refuses what vLLM refuses."""
    constraint = request.structured_outputs
    if constraint is not None:
        _check_constraint(constraint)
    response_format = request.response_format
    if response_format is None or response_format.type == "text":
        return constraint
    if response_format.type == "json_object":
        return StructuredOutputs(json_object=True)
    if response_format.type == "json_schema" and response_format.json_schema is not None:
        constraint = StructuredOutputs.model_validate({"json": response_format.json_schema.json_schema})
        _check_constraint(constraint)
        return constraint
    return constraint


def is_guided(request: ChatRequest | CompletionRequest) -> bool:
    """A grammar masks what the model may say; ``auto`` tools do not: the model calls them of its own accord."""
    if isinstance(request, ChatRequest) and request.tools and request.tool_choice not in (None, "none", "auto"):
        return True
    return constraint_of(request) is not None


def check_grammar(constraint: StructuredOutputs | None) -> ApiError | None:
    """What the grammar compiler finds wrong; a stream has begun by then."""
    if constraint is None:
        return None
    complaint = None
    if constraint.choice is not None and not constraint.choice:
        complaint = ApiError(f"Choice '{constraint.choice}' cannot be an empty list")
    elif constraint.grammar == "":
        complaint = ApiError("structured_outputs.grammar cannot be an empty string")
    elif constraint.json_ == "":
        complaint = ApiError("structured_outputs.json cannot be an empty string")
    elif constraint.json_ is not None:
        try:
            schema = _schema_of(constraint)
            if not isinstance(schema, Mapping):
                raise ApiError("Invalid grammar specification: Expecting object schema to apply options")
            check_schema(schema)
        except ApiError as error:
            complaint = error
    elif constraint.regex is not None:
        complaint = _pattern_error(constraint.regex)
    return complaint


_PATTERN_ERRORS = {
    "missing ), unterminated subpattern": "unclosed group",
    "unbalanced parenthesis": "unopened group",
    "unterminated character set": "unclosed character class",
    "nothing to repeat": "repetition operator missing expression",
    "multiple repeat": "repetition operator missing expression",
    "min repeat greater than max repeat": "invalid repetition count range, the start must be <= the end",
}
"""What Python's complaints are called by the grammar compiler's parser."""


def _pattern_error(pattern: str) -> ApiError | None:
    try:
        re.compile(pattern)
    except re.error as error:
        pointer = " " * (error.pos or 0) + "^"
        text = _PATTERN_ERRORS.get(error.msg.partition(" at position")[0], error.msg)
        return ApiError(
            f"Grammar error: at 1(8): invalid regex {json.dumps(pattern)} (in regex): regex parse error:\n"
            f"    {pattern}\n    {pointer}\nerror: {text}\n   1 | start: /{pattern}/\n              ^"
        )
    except (OverflowError, RecursionError):
        return ApiError("Grammar error: the pattern is too large")
    return None


def _check_constraint(constraint: StructuredOutputs) -> None:
    kinds = ("json_", "regex", "choice", "grammar", "json_object", "structural_tag")
    num_given = sum(getattr(constraint, kind) is not None for kind in kinds)
    if num_given == 1:
        return
    shown = {
        **{kind.rstrip("_"): getattr(constraint, kind) for kind in kinds[:5]},
        "disable_any_whitespace": constraint.disable_any_whitespace,
        "disable_additional_properties": constraint.disable_additional_properties,
        "whitespace_pattern": constraint.whitespace_pattern,
        "structural_tag": constraint.structural_tag,
        "_backend": None,
        "_backend_was_auto": False,
    }
    if num_given > 1:
        raise ApiError(
            f"You can only use one kind of structured outputs constraint but multiple are specified: {shown}"
        )
    raise ApiError(f"You must use one kind of structured outputs constraint but none are specified: {shown}")


def _seed(request: ChatRequest | CompletionRequest, sampling: Sampling, prompt: bytes, machine: Machine) -> str:
    key = f"{machine.settings.seed}/{zlib.crc32(prompt)}/{len(prompt)}"
    if sampling.seed is not None:
        return f"{key}/seed/{sampling.seed}"
    return key if sampling.is_greedy else f"{key}/{machine.next_number()}"


def _spans(request: ChatRequest | CompletionRequest, sampling: Sampling, seed: str, machine: Machine) -> Sequence[Span]:
    if any(sampling.logit_bias.get(token_id, 0.0) >= _FORCING_BIAS for token_id in _EOS_IDS):
        return (Span(Kind.END, end_of_turn()),)
    rng = Random(seed)
    spans = _answer(request, sampling, rng, seed, machine)
    if isinstance(request, ChatRequest) and machine.settings.reasoning_parser and _thinks(request):
        return thinking(seed, _num_words(rng, machine, is_limited=True), spans, machine.encoder)
    return spans


def _thinks(request: ChatRequest) -> bool:
    options = request.chat_template_kwargs or {}
    return options.get("enable_thinking", options.get("thinking", True)) is not False


def _answer(
    request: ChatRequest | CompletionRequest, sampling: Sampling, rng: Random, seed: str, machine: Machine
) -> Sequence[Span]:
    script = request.replayrig
    if script is not None and script.num_output_tokens is not None:
        return prose(seed, script.num_output_tokens - 1)
    if isinstance(request, ChatRequest) and (calls := _tool_calls(request, rng, machine)):
        return scripted({"content": None, "tool_calls": calls}, machine.encoder)
    constraint = constraint_of(request)
    if constraint is not None:
        text = _constrained_text(constraint, rng)
        if isinstance(request, ChatRequest) and request.tools and "<tool_call>" in text:
            return _parsed_tool_text(text, machine)
        return scripted({"content": text}, machine.encoder)
    return prose(seed, _num_words(rng, machine, is_limited=_has_limit(request)))


def _has_limit(request: ChatRequest | CompletionRequest) -> bool:
    return request.max_tokens is not None or (
        isinstance(request, ChatRequest) and request.max_completion_tokens is not None
    )


def _num_words(rng: Random, machine: Machine, *, is_limited: bool) -> int:
    natural = machine.profile.median_output_tokens * rng.lognormvariate(0.0, machine.profile.sigma_output_tokens)
    return max(FULL_LENGTH_UP_TO if is_limited else 1, min(int(natural), machine.max_model_len))


def _tool_calls(request: ChatRequest, rng: Random, machine: Machine) -> list[dict[str, Any]]:
    """The calls of an unscripted reply: what the request demands, or what the model happens to want."""
    tools = request.tools or []
    choice = request.tool_choice
    if not tools or choice == "none":
        return []
    if isinstance(choice, NamedToolChoice):
        chosen = [tool for tool in tools if tool["function"]["name"] == choice.function.name][:1]
    elif choice == "required" or rng.random() < machine.settings.tool_call_probability:
        num_calls = 1 + (request.parallel_tool_calls is not False and rng.random() < _SECOND_CALL_SHARE)
        chosen = [rng.choice(tools) for _ in range(num_calls)]
    else:
        return []
    return [
        {
            "function": {
                "name": tool["function"]["name"],
                "arguments": _arguments(tool["function"].get("parameters"), rng),
            }
        }
        for tool in chosen
    ]


def _arguments(parameters: Mapping[str, Any] | None, rng: Random) -> str:
    value = instance({"type": "object", **(parameters or {})}, rng)
    return orjson.dumps(value).decode()


def _constrained_text(constraint: StructuredOutputs, rng: Random) -> str:
    if constraint.choice:
        return rng.choice(constraint.choice)
    if constraint.regex is not None:
        return matching(constraint.regex, rng)
    if constraint.json_ is not None:
        return orjson.dumps(instance(_schema_of(constraint), rng)).decode()
    if constraint.grammar is not None:
        return _word_of_grammar(constraint.grammar, rng)
    return orjson.dumps({"answer": instance({"type": "string"}, rng)}).decode()


def _schema_of(constraint: StructuredOutputs) -> Any:
    if isinstance(constraint.json_, str):
        try:
            return orjson.loads(constraint.json_)
        except orjson.JSONDecodeError:
            raise ApiError("Invalid JSON grammar specification.") from None
    return constraint.json_


def _word_of_grammar(grammar: str, rng: Random) -> str:
    """One of the literals of the first rule: enough for a grammar that lists answers."""
    first_rule = grammar.strip().splitlines()[0] if grammar.strip() else ""
    literals = first_rule.split('"')[1::2]
    return rng.choice(literals) if literals else "yes"


def _parsed_tool_text(text: str, machine: Machine) -> Sequence[Span]:
    """Text that happens to be tool calls in the model's own notation, as the tool parser sees it."""
    content, *calls = text.split("<tool_call>")
    try:
        parsed = [orjson.loads(call.partition("</tool_call>")[0]) for call in calls]
        tool_calls = [
            {"function": {"name": call["name"], "arguments": orjson.dumps(call["arguments"]).decode()}}
            for call in parsed
        ]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return scripted({"content": text}, machine.encoder)
    return scripted({"content": content or None, "tool_calls": tool_calls}, machine.encoder)
