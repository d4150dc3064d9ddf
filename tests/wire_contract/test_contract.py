"""The whole recording, where it is at hand, and the rules of comparison themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.wire_contract.exchange import Answer, Exchange, Sent, read_exchanges
from tests.wire_contract.replay import replay
from tests.wire_contract.rules import difference, metrics_difference, values


async def test_no_recorded_exchange_differs(shared_dir: Path) -> None:
    exchanges = list(read_exchanges(shared_dir / "vllm" / "contract"))

    results = await replay(exchanges)

    assert len(results) == 242
    assert [f"{one.exchange.label}: {one.difference}" for one in results if one.difference] == []


KNOWN_DIFFERENCES = {
    "024-collective": "no workers to call",
    "026-r-role-bad": "OpenAI's types of input items are 230 branches; ours names the field and what it may be",
    "027-r-item-bad": "the same",
    "036-scale-elastic": "no expert parallelism to scale",
    "037-is-scaling": "no expert parallelism to scale",
    "134-tool-schema-bad-named": "vLLM's own structural tag is broken by the tool's schema",
    "223-so-str": "vLLM breaks with a 500; ours is a 400",
    "224-so-grammar-bad": "vLLM breaks with a 500; ours does not parse grammars",
}


KNOWN_DIFFERENCES_OF_CALLS = {
    "009-n2-tools-required-stream": "whether the limit cuts a call before its name or after it is the tokenizer's",
    "010-n2-tools-named": "the recorded model filled its calls with whitespace: one was cut, the other came to its end",
    "011-n2-tools-named-stream": "the same",
    "015-n2-tools-cut-stream": "whether the limit cuts a call before its name or after it is the tokenizer's",
}


async def test_what_was_recorded_later_differs_only_where_we_know_it_does() -> None:
    """Another 623 exchanges with servers of the same flags, recorded after ours was written."""
    results = await replay(list(read_exchanges(Path(__file__).parent / "more.jsonl.xz")))

    differing = {one.exchange.label: one.difference for one in results if one.difference}
    assert len(results) == 623
    assert {label: text for label, text in differing.items() if label not in KNOWN_DIFFERENCES} == {}
    assert differing.keys() == KNOWN_DIFFERENCES.keys()


async def test_several_choices_with_tools_and_tokens_in_and_out_differ_only_where_we_know_it() -> None:
    """Another 50: n=2 with tools, whole and streamed, and ``/inference/v1/generate`` with all that it can be asked."""
    results = await replay(list(read_exchanges(Path(__file__).parent / "scale_out.jsonl.xz")))

    differing = {one.exchange.label: one.difference for one in results if one.difference}
    assert len(results) == 50
    assert {label: text for label, text in differing.items() if label not in KNOWN_DIFFERENCES_OF_CALLS} == {}
    assert differing.keys() == KNOWN_DIFFERENCES_OF_CALLS.keys()


@pytest.mark.parametrize(
    ("recorded", "ours"),
    [
        ({"a": 1, "b": None}, {"a": 1}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"finish_reason": "stop"}, {"finish_reason": "length"}),
        ({"content": "x"}, {"content": None}),
        ({"id": "chatcmpl-0123456789abcdef"}, {"id": "cmpl-0123456789abcdef"}),
        ({"id": "chatcmpl-0123456789abcdef"}, {"id": "chatcmpl-0123456789"}),
        ({"created": 1}, {"created": 1.5}),
        ({"choices": [1]}, {"choices": []}),
        ({"usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}},) * 1
        + ({"usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 3}},),
    ],
)
def test_what_a_client_could_stumble_over_is_a_difference(recorded: Any, ours: Any) -> None:
    assert values(recorded, ours, "") is not None


@pytest.mark.parametrize(
    ("recorded", "ours"),
    [
        ({"content": "asic second"}, {"content": " other words"}),
        ({"id": "chatcmpl-0123456789abcdef"}, {"id": "chatcmpl-fedcba9876543210"}),
        ({"usage": {"prompt_tokens": 18}}, {"usage": {"prompt_tokens": 15}}),
        ({"stop_reason": "ome"}, {"stop_reason": "the"}),
    ],
)
def test_what_no_mock_can_repeat_is_compared_by_kind(recorded: Any, ours: Any) -> None:
    assert values(recorded, ours, "") is None


def _stream(*deltas: dict[str, Any], finish: str = "length", done: bool = True) -> Answer:
    events = [
        {
            "id": "chatcmpl-0123456789abcdef",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish if at == len(deltas) - 1 else None}],
        }
        for at, delta in enumerate(deltas)
    ]
    lines = [f"data: {json.dumps(event)}" for event in events] + (["data: [DONE]"] if done else [])
    return Answer(status=200, headers={}, body=None, lines=tuple(lines))


def _exchange(answer: Answer) -> Exchange:
    return Exchange(
        number=1,
        name="x",
        note="",
        sent=Sent(method="POST", path="/v1/chat/completions", headers={}, body={}),
        answer=answer,
        num_lines_before_leaving=None,
        began_at=0.0,
        ended_at=0.0,
    )


ROLE = {"role": "assistant", "content": ""}


def test_streams_may_cut_their_text_differently_but_not_their_order() -> None:
    recorded = _exchange(_stream(ROLE, {"content": "a"}, {"content": "b"}, {"content": "c"}))

    assert difference(recorded, _stream(ROLE, {"content": "abc"}, {})) is None
    assert difference(recorded, _stream({"content": "a"}, ROLE, {"content": "b"})) is not None
    assert difference(recorded, _stream(ROLE, {"content": "a"}, {"content": "b"}, finish="stop")) is not None
    assert difference(recorded, _stream(ROLE, {"content": "a"}, {"content": "b"}, done=False)) is not None
    assert difference(recorded, _stream(ROLE, {"content": None}, {})) is not None


def test_choices_may_interleave_but_each_keeps_its_order() -> None:
    def stream(*steps: tuple[int, dict[str, Any], str | None]) -> Answer:
        events = [{"choices": [{"index": at, "delta": delta, "finish_reason": end}]} for at, delta, end in steps]
        return Answer(
            status=200, headers={}, body=None, lines=(*(f"data: {json.dumps(one)}" for one in events), "data: [DONE]")
        )

    name = {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}]}
    more = {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}
    steps: tuple[tuple[dict[str, Any], str | None], ...] = ((ROLE, None), (name, None), (more, None), ({}, "stop"))
    first, second = ([(at, *step) for step in steps] for at in (0, 1))
    recorded = _exchange(stream(*first, *second))
    mixed = [one for both in zip(second, first, strict=True) for one in both]

    assert difference(recorded, stream(*mixed)) is None
    assert difference(recorded, stream(*first, second[1], second[0], *second[2:])) is not None
    assert difference(recorded, stream(*first, second[0], *second[3:])) is not None
    # Where one choice was cut, the call of the other must still be whole.
    cut: list[tuple[int, dict[str, Any], str | None]] = [*first[:3], (0, {}, "length")]
    assert difference(_exchange(stream(*cut, *second)), stream(*first[:2], cut[3], *second)) is None
    assert difference(_exchange(stream(*cut, *second)), stream(*cut, *second[:2], second[3])) is not None


def test_metrics_must_have_the_same_families_labels_and_buckets() -> None:
    page = '# TYPE vllm:x histogram\nvllm:x_bucket{le="1.0"} 3\nvllm:x_bucket{le="+Inf"} 4\n'

    assert metrics_difference(page, page.replace("3", "9") + "# TYPE replayrig:y gauge\nreplayrig:y 1\n") is None
    assert metrics_difference(page, page.replace("1.0", "2.0")) is not None
    assert metrics_difference(page, page.replace("histogram", "gauge")) is not None
    assert metrics_difference(page, page.replace("vllm:x", "vllm:z")) is not None
