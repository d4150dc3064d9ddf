"""Agent traces of model steps and tool spans: ``{trace_id, prompt, llm_steps: [...], spans: [{type: "TOOL"}]}``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from traces.domains import domain_of
from traces.importers.chat import ConversationBuilder, Measured, text_of
from traces.importers.fields import get, get_count, get_list, get_number, get_text
from traces.importers.groups import read_each
from traces.importers.log import ImportLog
from traces.importers.sources import Source
from traces.trajectory import Trajectory

NAME = "agent-trace"


def recognises(value: Any) -> bool:
    """Whether ``value`` is a trace of this format."""
    return isinstance(value, dict) and {"llm_steps", "spans", "prompt"} <= value.keys()


def read(source: Source, log: ImportLog) -> Iterator[Trajectory]:
    """The traces of ``source``; what cannot be used goes to ``log``."""
    yield from read_each(source, log, _read_trace)


def _read_trace(trace: Any, log: ImportLog) -> Trajectory:
    builder = ConversationBuilder(domain_of=domain_of, log=log)
    builder.add_user(get_text(trace, "prompt"))
    tools = iter([span for span in get_list(trace, "spans") if get(span, "type") == "TOOL"])
    for step in get_list(trace, "llm_steps"):
        duration_ms = get_number(step, "duration_ms")
        calls = get_list(step, "tool_calls")
        measured = Measured(
            num_output_tokens=get_count(step, "output_tokens"),
            duration_s=None if duration_ms is None else max(duration_ms / 1000, 0.0),
        )
        builder.add_reply({"content": get(step, "model_output"), "tool_calls": calls}, measured)
        for _ in calls:
            span = next(tools, None)  # spans are in the order of the calls
            if span is None:
                break
            took_ms = get_number(span, "duration_ms")
            builder.add_result(
                text_of(get(span, "tool_output")),
                call_id=None,
                latency_s=None if took_ms is None else max(took_ms / 1000, 0.0),
                is_error=bool(get_number(span, "exit_code")),
            )
    conversation = builder.conversation()
    return Trajectory(
        task_id=get_text(trace, "trace_id") or "trace",
        user_prompt=conversation.user_prompt,
        turns=conversation.turns,
        source=NAME,
        model=get_text(trace, "model"),
    )
