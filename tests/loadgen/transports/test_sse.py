"""What a stream's bytes mean, wherever they are cut."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from loadgen.transports.sse import EventReader, StreamedAnswer


def event(**fields: Any) -> bytes:
    return b"data: " + orjson.dumps(fields) + b"\n\n"


def delta(finish_reason: str | None = None, **fields: Any) -> bytes:
    return event(choices=[{"index": 0, "delta": fields, "finish_reason": finish_reason}])


ROLE = delta(role="assistant", content="")
USAGE = event(choices=[], usage={"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21})
DONE = b"data: [DONE]\n\n"
LONG = [
    ROLE,
    delta(reasoning="hm"),
    delta(reasoning="m, several tokens at once"),
    delta(content="I'll look. "),
    delta(content=None, tool_calls=[{"index": 0, "id": "a", "type": "function", "function": {"name": "ls"}}]),
    delta(content=None, tool_calls=[{"index": 0, "function": {"arguments": '{"x": "ü\\n\\n"}'}}]),
    delta(content=None, tool_calls=[{"index": 1, "id": "b", "type": "function", "function": {"name": "ls"}}]),
    delta(content=None, tool_calls=[{"index": 1, "function": {"arguments": "{}"}}]),
    delta(finish_reason="tool_calls"),
    USAGE,
    DONE,
]


def read(*chunks: bytes) -> StreamedAnswer:
    """Each chunk comes one second after the one before."""
    answer = StreamedAnswer()
    for at, chunk in enumerate(chunks):
        answer.feed(chunk, float(at))
    answer.close()
    return answer


def test_reasoning_then_content_then_two_parallel_tool_calls() -> None:
    """Every delta with something in it is a token chunk; role, finish and usage chunks are not."""
    answer = read(*LONG)

    assert answer.error is None
    assert answer.first_token_at == 1.0
    assert answer.chunk_at == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert answer.last_token_at == 7.0
    assert answer.finish_reason == "tool_calls"
    assert answer.usage == {"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21}
    assert answer.is_done


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_chunk_borders_at_every_byte_change_nothing(line_end: bytes) -> None:
    stream = b"".join(LONG).replace(b"\n", line_end)
    expected = EventReader().feed(b"".join(LONG))

    for cut in range(len(stream) + 1):
        reader = EventReader()
        assert reader.feed(stream[:cut]) + reader.feed(stream[cut:]) == expected
        assert not reader.is_inside_event
    one_by_one = EventReader()
    assert [payload for byte in stream for payload in one_by_one.feed(bytes([byte]))] == expected


def test_events_that_arrive_together_have_one_instant() -> None:
    answer = read(b"".join(LONG))

    assert answer.first_token_at == answer.last_token_at == 0.0
    assert answer.chunk_at == [0.0] * 7


def test_a_token_that_arrives_with_the_role_counts_from_its_own_chunk() -> None:
    answer = read(ROLE, ROLE + delta(content="x"), delta(finish_reason="stop"), DONE)

    assert answer.first_token_at == 1.0


def test_the_other_name_of_reasoning_counts_too() -> None:
    assert read(delta(reasoning_content="hm"), delta(finish_reason="stop")).first_token_at == 0.0


def test_text_completions_are_read_as_well() -> None:
    answer = read(
        event(choices=[{"index": 0, "text": "", "finish_reason": None}]),
        event(choices=[{"index": 0, "text": "a", "finish_reason": "length"}]),
        DONE,
    )

    assert (answer.first_token_at, answer.finish_reason) == (1.0, "length")


def test_the_last_text_may_come_with_the_finish_reason() -> None:
    answer = read(delta(content="a"), delta(content="b", finish_reason="length"), DONE)

    assert (answer.last_token_at, answer.finish_reason) == (1.0, "length")


def test_an_error_inside_a_stream_is_an_error() -> None:
    answer = read(
        ROLE,
        delta(content="so far"),
        event(error={"message": "engine\n died", "type": "InternalServerError", "code": 500}),
        DONE,
    )

    assert answer.error == "engine died (500)"
    assert answer.first_token_at == 1.0


def test_an_error_may_be_an_event_of_its_own_kind() -> None:
    assert read(b'event: error\ndata: {"error": "gone"}\n\n').error == "gone"


def test_a_stream_that_just_ends_is_an_error() -> None:
    assert read(ROLE, delta(content="so f")).error == "the stream ended before the answer did"
    assert read().error == "the stream ended before the answer did"


def test_an_answer_of_an_end_of_turn_token_only_is_no_error() -> None:
    answer = read(delta(finish_reason="stop"), USAGE, DONE)

    assert (answer.error, answer.first_token_at, answer.finish_reason) == (None, None, "stop")


def test_rubbish_is_an_error() -> None:
    assert "not JSON" in str(read(b"data: {oops\n\n", DONE).error)
    assert "not an object" in str(read(b"data: [1]\n\n", DONE).error)


def test_comments_and_other_fields_are_skipped() -> None:
    reader = EventReader()

    payloads = reader.feed(b": keep-alive\n\nid: 7\nevent: x\ndata: {}\nretry: 5\n\ndata:{}\n\ndata: a\ndata: b\n\n")

    assert payloads == [b"{}", b"{}", b"a\nb"]


def test_what_a_server_of_ours_says_of_its_clock_is_kept() -> None:
    answer = read(delta(content="x", finish_reason="stop"), event(choices=[], replayrig={"arrived_at": 4.5}), DONE)

    assert answer.extension == {"arrived_at": 4.5}
