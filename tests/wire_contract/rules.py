"""When two answers are the same. Every way in which they may differ is written here, with its reason, and nowhere else.

What a mock cannot repeat: ids, times, words of a random model, and everything that depends on its tokenizer. Those are
compared by kind. Everything else is compared as it is: status, headers, keys and their order, nulls, finish reasons,
error texts, the order of events.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tests.wire_contract.exchange import Answer, Exchange

# -- headers -----------------------------------------------------------------------------------------------------------

SAME_HEADERS = ("content-type", "allow", "vary", "server", "transfer-encoding", "connection", "www-authenticate")
"""Must be there with the same value, or not be there, on both sides."""
PRESENT_HEADERS = ("x-request-id", "endpoint-load-metrics", "location", "date")
"""Must be there on both sides or on neither; the value is an id, a time, an address or a state."""

# -- values that cannot be equal ---------------------------------------------------------------------------------------

KIND_ONLY = {
    "id": "made up for each answer; its prefix and length are compared",
    "request_id": "made up for each answer",
    "created": "a time",
    "created_at": "a time",
    "model": "the name that this server was given: the same, but for the recorded server's file names",
    "root": "where the weights lie",
    "system_fingerprint": "a digest of the configuration",
    "content": "words of a random model",
    "reasoning": "words of a random model",
    "text": "words of a random model",
    "arguments": "words of a random model",
    "prompt": "text of the recorded tokenizer",
    "prompt_text": "text of the recorded template",
    "token": "a token of the recorded tokenizer",
    "decoded_token": "a token of the recorded tokenizer",
    "bytes": "a token of the recorded tokenizer",
    "tokens": "tokens of the recorded tokenizer",
    "token_strs": "tokens of the recorded tokenizer",
    "token_id": "a token of the recorded tokenizer",
    "token_ids": "tokens of the recorded tokenizer",
    "prompt_token_ids": "tokens of the recorded tokenizer",
    "logprob": "a probability of a random model",
    "rank": "a probability of a random model",
    "token_logprobs": "probabilities of a random model",
    "top_logprobs": "probabilities of a random model",
    "prompt_logprobs": "probabilities of a random model, by tokens of the recorded tokenizer",
    "text_offset": "follows from the tokens' texts",
    "prompt_tokens": "counted by the recorded tokenizer",
    "completion_tokens": "counted by the recorded tokenizer where the text has an end of its own",
    "total_tokens": "the sum of both, which is checked",
    "input_tokens": "counted by the recorded tokenizer",
    "output_tokens": "counted by the recorded tokenizer",
    "original_input_tokens": "counted by the recorded tokenizer",
    "cached_tokens": "whole blocks of the recorded tokenizer's tokens",
    "created_cache_tokens": "whole blocks of the recorded tokenizer's tokens",
    "cache_read_input_tokens": "whole blocks of the recorded tokenizer's tokens",
    "cache_creation_input_tokens": "whole blocks of the recorded tokenizer's tokens",
    "reasoning_tokens": "counted by the recorded tokenizer",
    "cache_write_tokens": "whole blocks of the recorded tokenizer's tokens",
    "sequence_number": "counts events, and how many tokens share one is a matter of time",
    "item_id": "made up for each answer",
    "call_id": "made up for each answer",
    "signature": "made up for each answer",
    "thinking": "words of a random model",
    "partial_json": "words of a random model",
    "paths": "describes the endpoints and bodies that are there",
    "components": "describes the endpoints and bodies that are there",
    "vllm_config": "the recorded machine's configuration",
    "vllm_env": "the recorded machine's configuration",
    "system_env": "the recorded machine's configuration",
    "max_output_tokens": "a limit that was aimed, or what the recorded tokenizer left of the context",
    "max_tokens": "a limit that was aimed, or what the recorded tokenizer left of the context",
    "count": "counted by the recorded tokenizer",
    "max_num_seqs": "a setting",
    "end": "a number of tokens",
}
"""Keys whose values are compared by their type only, each with the reason."""

STOP_REASON_ZERO = (
    "The recorded model's generation config has a second end-of-text token with id 0, which vLLM reports as "
    "stop_reason 0 after guided decoding; a model without it reports null."
)
TWO_OR_THREE_PIECES = (
    "How many chunks a text takes depends on the tokenizer, so runs of chunks of one kind count as one."
)
CUT_CALL = (
    "Where max_tokens cuts a reply inside a tool call, how far the arguments had come depends on the tokenizer: their "
    "chunks may be missing."
)
LAST_WORDS = "Whether the last token shows text, so that the finishing chunk carries some, depends on the tokenizer."

STOP_WORDS = "A stop string or token is the model's own word: ours was re-aimed (aim.py), so the kind is compared."
MORE_CALLS = "How many tools a model calls is its own doing: further calls look like the first."
KV_EVENTS = "The recorded server published KV events; a server that does not has no sources to list."

_ID = re.compile(r"^(.*?)([0-9a-f]{8,})$")


def difference(exchange: Exchange, ours: Answer) -> str | None:
    """What differs between the recorded answer and ours, in a line; None if nothing does."""
    recorded = exchange.answer
    if recorded.status != ours.status:
        return f"status {recorded.status}, ours {ours.status}: {(ours.body or '')[:300]}"
    if found := _headers(recorded, ours):
        return found
    if (recorded.lines is None) != (ours.lines is None):
        return "one answer is a stream and the other is not"
    if recorded.lines is not None and ours.lines is not None:
        return _streams(recorded, ours)
    return _bodies(exchange, recorded.body or "", ours.body or "")


def _headers(recorded: Answer, ours: Answer) -> str | None:
    for name in SAME_HEADERS:
        if recorded.headers.get(name) != ours.headers.get(name):
            return f"header {name}: {recorded.headers.get(name)!r}, ours {ours.headers.get(name)!r}"
    for name in PRESENT_HEADERS:
        if (name in recorded.headers) != (name in ours.headers):
            return f"header {name} is on one side only"
    return None


def _bodies(exchange: Exchange, recorded: str, ours: str) -> str | None:
    if exchange.sent.path.startswith("/metrics"):
        return metrics_difference(recorded, ours)
    if exchange.sent.path == "/kv_event_sources" and ours == "{}":
        return None  # KV_EVENTS
    try:
        parsed, our_parsed = json.loads(recorded), json.loads(ours)
    except json.JSONDecodeError:
        return None if recorded == ours else f"body {recorded[:80]!r}, ours {ours[:80]!r}"
    return values(parsed, our_parsed, "")


# -- JSON --------------------------------------------------------------------------------------------------------------


def values(recorded: Any, ours: Any, path: str) -> str | None:  # noqa: PLR0911  # one return a kind of value
    """The first difference between two JSON values."""
    key = path.rpartition(".")[2]
    if key == "stop_reason" and recorded is not None:
        return None if _same_stop(recorded, ours) else f"{path}: {_short(recorded)}, ours {_short(ours)}"
    if key in KIND_ONLY or (key == "delta" and isinstance(recorded, str)):  # words of a random model
        return _kinds(recorded, ours, path)
    if isinstance(recorded, dict) and isinstance(ours, dict):
        return _objects(recorded, ours, path)
    if isinstance(recorded, list) and isinstance(ours, list):
        if len(recorded) != len(ours):
            return f"{path}: {len(recorded)} items, ours {len(ours)}"
        pairs = enumerate(zip(recorded, ours, strict=True))
        return next((found for at, (one, own) in pairs if (found := values(one, own, f"{path}[{at}]"))), None)
    if type(recorded) is type(ours) and recorded == ours:
        return None
    return f"{path}: {_short(recorded)}, ours {_short(ours)}"


def _objects(recorded: Mapping[str, Any], ours: Mapping[str, Any], path: str) -> str | None:
    if list(recorded) != list(ours):
        return f"{path}: keys {list(recorded)}, ours {list(ours)}"
    if "completion_tokens" in ours and ours["prompt_tokens"] + ours["completion_tokens"] != ours["total_tokens"]:
        return f"{path}: our tokens do not add up"
    return next((found for key in recorded if (found := values(recorded[key], ours[key], f"{path}.{key}"))), None)


def _kinds(recorded: Any, ours: Any, path: str) -> str | None:
    key = path.rpartition(".")[2]
    if key == "id" and isinstance(recorded, str) and isinstance(ours, str):
        return None if _id_shape(recorded) == _id_shape(ours) else f"{path}: {recorded!r}, ours {ours!r}"
    if key in ("content", "text", "reasoning") and isinstance(recorded, list):
        if not isinstance(ours, list):
            return f"{path}: a list, ours {_short(ours)}"
        return (
            None
            if not recorded or (ours and not values(recorded[0], ours[0], f"{path}[0]"))
            else f"{path}: items differ"
        )
    if kind(recorded) != kind(ours):
        return f"{path}: {kind(recorded)}, ours {kind(ours)}"
    if isinstance(recorded, list) and recorded and isinstance(recorded[-1], dict):
        theirs, own = _one_entry(recorded[-1], key), _one_entry(ours[-1] if ours else None, key)
        return f"{path}: the last items differ: {found}" if (found := values(theirs, own, f"{path}[-1]")) else None
    return None


def _one_entry(row: Any, key: str) -> Any:
    """A row of logprobs keyed by tokens: one of its entries stands for all."""
    if key in ("prompt_logprobs", "top_logprobs") and isinstance(row, dict) and "token" not in row and row:
        entry = next(iter(row.values()))
        return entry if isinstance(entry, dict) else {"logprob": entry}
    return row


def _same_stop(recorded: Any, ours: Any) -> bool:
    """STOP_WORDS, STOP_REASON_ZERO."""
    return type(recorded) is type(ours) or (recorded == 0 and ours is None)


def _id_shape(text: str) -> tuple[str, int]:
    """An id's prefix and how long its random part is; an id that the client chose is all prefix."""
    match = _ID.match(text)
    return (match[1], len(match[2])) if match else (text, 0)


def kind(value: Any) -> str:
    """A value's JSON type; numbers are told apart as whole or not."""
    return type(value).__name__


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 400 else text[:400] + "..."


# -- streams -----------------------------------------------------------------------------------------------------------


def _streams(recorded: Answer, ours: Answer) -> str | None:
    assert recorded.lines is not None
    assert ours.lines is not None
    if (": keep-alive" in recorded.lines[:1]) != (": keep-alive" in ours.lines[:1]):
        return "a comment while waiting is on one side only"
    theirs, own = _events(recorded.lines), _events(ours.lines)
    steps, own_steps = _runs(_without_cut_calls(theirs)), _runs(_without_cut_calls(own))
    if steps != own_steps:
        return f"events {' '.join(steps)}, ours {' '.join(own_steps)}"
    return _events_by_step(theirs, own)


def _events(lines: Sequence[str]) -> list[tuple[str, Any]]:
    """(step, event) of each event; comments are left out: how many there are depends on time."""
    events: list[tuple[str, Any]] = []
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            data = line.removeprefix("data: ")
            event = data if data == "[DONE]" else json.loads(data)
            steps = _steps(name, event)
            # Of a chunk that says several things only the last is compared as a whole: the end, if it is one.
            events += [(step, None) for step in steps[:-1]] + [(step, event) for step in steps[-1:]]
    return events


def _steps(name: str, event: Any) -> list[str]:
    """What a client learns from an event; the finishing chunk may carry last words (LAST_WORDS)."""
    if event == "[DONE]":
        return ["done"]
    if name:
        return [name]
    if "error" in event:
        return ["error"]
    if not event["choices"]:
        return ["usage"]
    choice = event["choices"][0]
    steps = []
    delta = choice.get("delta", {"text": choice.get("text") or choice.get("token_ids")})
    if "role" in delta:
        steps.append(f"role{choice['index']}")
    for call in delta.get("tool_calls") or ():
        steps.append(f"{'name' if 'id' in call else 'arguments'}{choice['index']}")  # MORE_CALLS
    if "role" not in delta:
        steps += [f"{key}{choice['index']}" for key in ("content", "reasoning", "text") if delta.get(key)]
    if choice["finish_reason"] is not None:
        steps.append(f"finish{choice['index']}={choice['finish_reason']}")
    return steps


def _runs(events: Sequence[tuple[str, Any]]) -> list[str]:
    """The steps, neighbours of one kind as one (TWO_OR_THREE_PIECES); each choice's by themselves, as they interleave.

    What belongs to no choice (usage, the end) comes last.
    """
    by_choice: dict[str, list[str]] = {}
    for step, _ in events:
        runs = by_choice.setdefault(_choice_of(step), [])
        if runs[-1:] != [step] and not (step.startswith(("name", "arguments")) and step in runs):
            runs.append(step)
    rest = by_choice.pop("", [])
    return [*(step for _, runs in sorted(by_choice.items()) for step in runs), *rest]


def _choice_of(step: str) -> str:
    """The index of the choice that a step is of; empty where it is of none."""
    return "".join(filter(str.isdigit, step.partition("=")[0]))


def _without_cut_calls(events: Sequence[tuple[str, Any]]) -> Sequence[tuple[str, Any]]:
    """CUT_CALL."""
    cut = {_choice_of(step) for step, _ in events if step.startswith("finish") and step.endswith("=length")}
    return [one for one in events if not (one[0].startswith("arguments") and _choice_of(one[0]) in cut)]


def _events_by_step(theirs: Sequence[tuple[str, Any]], own: Sequence[tuple[str, Any]]) -> str | None:
    """Compare one event of each step with ours, key by key."""
    own_by_step: dict[str, list[Any]] = {}
    for step, event in own:
        if event is not None:
            own_by_step.setdefault(step, []).append(event)
    for step, event in theirs:
        candidates = own_by_step.get(step)
        if event is None or candidates is None:
            continue  # CUT_CALL, LAST_WORDS
        shown = _without_words if step.startswith("finish") else lambda one: one
        found = [values(shown(event), shown(one), step) for one in (candidates[0], candidates[-1])]
        if all(found):
            return found[0]
    return None


def _without_words(event: Any) -> Any:
    """A finishing chunk without its last words (LAST_WORDS)."""
    event = json.loads(json.dumps(event))
    choice = event["choices"][0]
    if "delta" in choice:
        choice["delta"] = {}
    else:
        choice["text"] = ""
    return event


# -- metrics -----------------------------------------------------------------------------------------------------------

OWN_METRICS = "replayrig:"
TRAFFIC_METRICS = ("http_",)
"""Families whose series come with the traffic: their types are compared, and the label names of what is there."""


def metrics_difference(recorded: str, ours: str) -> str | None:
    """Families, their types, label names and buckets; the values are those of another machine."""
    theirs, own = _families(recorded), _families(ours)
    for name, (metric_type, series) in theirs.items():
        if name not in own:
            return f"metric {name} is missing"
        our_type, our_series = own[name]
        if metric_type != our_type:
            return f"metric {name} is a {metric_type}, ours a {our_type}"
        if name.startswith(TRAFFIC_METRICS):
            labels, our_labels = ({tuple(name for name, _ in one) for one in rows} for rows in (series, our_series))
            if labels and our_labels and labels != our_labels:
                return f"metric {name}: labels {labels}, ours {our_labels}"
        elif odd := {_fixed(one) for one in series} ^ {_fixed(one) for one in our_series}:
            return f"metric {name}: series on one side only: {sorted(odd)[:4]}"
    extra = [name for name in own if name not in theirs and not name.startswith((OWN_METRICS, *TRAFFIC_METRICS))]
    return f"metrics that vLLM does not have: {extra}" if extra else None


_SERIES = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_FIXED_LABELS = (
    "le",
    "reason",
    "source",
    "finished_reason",
    "sleep_state",
    "mode",
    "outcome",
    "request_type",
    "generation",
)


def _fixed(labels: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """A series as its label names, with the values of those labels that do not depend on the machine."""
    return tuple(sorted(f"{name}={value}" if name in _FIXED_LABELS else name for name, value in labels))


def _families(text: str) -> dict[str, tuple[str, list[tuple[tuple[str, str], ...]]]]:
    families: dict[str, tuple[str, list[tuple[tuple[str, str], ...]]]] = {}
    current = ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, current, metric_type = line.split(" ")
            families[current] = (metric_type, [])
        elif line and not line.startswith("#") and current:
            families[current][1].append(tuple(_SERIES.findall(line)))
    return families
