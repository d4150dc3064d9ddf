"""A tiny recording in every format, written for these tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Record = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixture:
    """A recording, and what is in it."""

    files: Mapping[str, str]
    """Content by name; the first is the one to import."""
    num_tasks: int
    num_calls: int
    num_tool_calls: int = 0

    @property
    def name(self) -> str:
        """The file to import."""
        return next(iter(self.files))


def lines(*records: Any) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def call(name: str, call_id: str = "c1", **arguments: Any) -> Record:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def tool(name: str) -> Record:
    return {"type": "function", "function": {"name": name, "description": "Does it.", "parameters": {"type": "object"}}}


CHAT: list[Record] = [
    {"role": "system", "content": "You are an agent."},
    {"role": "user", "content": "Count the files."},
    {"role": "assistant", "content": "I look.", "tool_calls": [call("bash", command="ls")]},
    {"role": "tool", "tool_call_id": "c1", "content": "a b c"},
    {"role": "assistant", "content": "Three."},
]
TRAJECTORY = {
    "replayrig": "trajectory/1",
    "task_id": "t",
    "user_prompt": "Go.",
    "turns": [{"content": "Gone.", "num_output_tokens": 3}],
}


def time_at(second: float) -> str:
    return f"2026-01-01T00:00:{second:06.3f}Z"


def openhands_action(number: int, response_id: str, call_id: str, second: float) -> Record:
    message = {"role": "assistant", "content": "I look.", "tool_calls": [call("execute_bash", call_id, command="ls")]}
    response = {
        "id": response_id,
        "model": "m",
        "choices": [{"message": message}],
        "usage": {"completion_tokens": 21, "prompt_tokens": 100},
    }
    return {
        "id": number,
        "timestamp": time_at(second),
        "source": "agent",
        "action": "run",
        "args": {"command": "ls"},
        "tool_call_metadata": {"tool_call_id": call_id, "model_response": response},
    }


OPENHANDS: list[Record] = [
    {
        "id": 0,
        "timestamp": time_at(0),
        "source": "agent",
        "action": "system",
        "args": {"content": "You are an agent.", "tools": [tool("execute_bash")]},
    },
    {"id": 1, "timestamp": time_at(1), "source": "user", "action": "message", "args": {"content": "Count."}},
    openhands_action(2, "r1", "c1", 3),
    {
        "id": 3,
        "timestamp": time_at(3.5),
        "source": "agent",
        "observation": "run",
        "content": "a b c",
        "tool_call_metadata": {"tool_call_id": "c1"},
    },
    {"id": 4, "timestamp": time_at(5), "source": "agent", "action": "message", "args": {"content": "Three."}},
]


def span(span_id: str, parent: str | None, start: float, end: float, name: str = "chat m", **attributes: Any) -> Record:
    return {
        "trace_id": "t1",
        "span_id": span_id,
        "parent_span_id": parent,
        "name": name,
        "start_time": time_at(start),
        "end_time": time_at(end),
        "attributes": {key.replace("__", "."): value for key, value in attributes.items()},
    }


def chat_span(span_id: str, parent: str | None, times: tuple[float, float], prompt: str, answer: str) -> Record:
    return span(
        span_id,
        parent,
        *times,
        gen_ai__operation__name="chat",
        gen_ai__input__messages=json.dumps([{"role": "user", "parts": [{"type": "text", "content": prompt}]}]),
        gen_ai__output__messages=json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": answer}]}]),
        gen_ai__usage__output_tokens=7,
    )


def agent_span(span_id: str, parent: str | None, start: float, end: float, name: str) -> Record:
    return span(
        span_id,
        parent,
        start,
        end,
        f"invoke_agent {name}",
        gen_ai__operation__name="invoke_agent",
        gen_ai__agent__name=name,
    )


OTEL_TREE = {
    "spans": [
        agent_span("root", None, 0, 10, "lead"),
        chat_span("lead1", "root", (0, 1), "plan", "you two go"),
        agent_span("a", "root", 1.5, 5, "left"),
        chat_span("a1", "a", (1.5, 3), "left job", "left done"),
        chat_span("a2", "a", (3.5, 5), "left job again", "left done again"),
        agent_span("b", "root", 1.6, 6, "right"),
        chat_span("b1", "b", (1.6, 6), "right job", "right done"),
        chat_span("lead2", "root", (7, 10), "join", "all done"),
    ]
}


def otlp(trace: Record) -> Record:
    """The same spans as OTLP JSON."""

    def value(one: Any) -> Record:
        return {"intValue": str(one)} if isinstance(one, int) else {"stringValue": one}

    def nanos(text: str) -> str:
        return f"{int(float(text[17:23]) * 1e9) + 1_767_225_600_000_000_000}"

    spans = [
        {
            "traceId": one["trace_id"],
            "spanId": one["span_id"],
            "parentSpanId": one["parent_span_id"] or "",
            "name": one["name"],
            "startTimeUnixNano": nanos(one["start_time"]),
            "endTimeUnixNano": nanos(one["end_time"]),
            "attributes": [{"key": key, "value": value(item)} for key, item in one["attributes"].items()],
        }
        for one in trace["spans"]
    ]
    service = [{"key": "service.name", "value": {"stringValue": "s"}}]
    return {"resourceSpans": [{"resource": {"attributes": service}, "scopeSpans": [{"spans": spans}]}]}


def weka_request(at: float, num_tokens: int, hashes: list[int]) -> Record:
    return {"t": at, "type": "n", "in": num_tokens, "out": 20, "hash_ids": hashes, "api_time": 2.0, "think_time": 1.0}


def weka_subagent(name: str, completed: float, duration_ms: int | None) -> Record:
    return {
        "t": completed,
        "type": "subagent",
        "agent_id": name,
        "duration_ms": duration_ms,
        "status": "completed",
        "requests": [weka_request(0.0, 70, [9, 10]), weka_request(3.0, 140, [9, 11, 12])],
    }


WEKA = {
    "id": "s1",
    "models": ["m"],
    "block_size": 64,
    "hash_id_scope": "local",
    "tool_tokens": 10,
    "system_tokens": 20,
    "requests": [
        weka_request(0.0, 130, [1, 2, 3]),
        weka_subagent("late", 9.0, 6500),
        weka_subagent("early", 8.0, 6000),
        weka_request(10.0, 200, [1, 2, 4, 5]),
    ],
}

CLAUDE_USAGE = {"input_tokens": 3, "cache_read_input_tokens": 100, "output_tokens": 40}


def claude(kind: str, message: Record, second: float, **extra: Any) -> Record:
    return {
        "type": kind,
        "sessionId": "s1",
        "timestamp": time_at(second),
        "message": message,
        "uuid": f"u{second}",
        **extra,
    }


def claude_answer(message_id: str, block: Record, second: float, **extra: Any) -> Record:
    message = {"id": message_id, "model": "m", "role": "assistant", "content": [block], "usage": CLAUDE_USAGE}
    return claude("assistant", message, second, **extra)


CLAUDE: list[Record] = [
    claude("user", {"role": "user", "content": "Count the files."}, 0),
    claude_answer("m1", {"type": "text", "text": "I ask another."}, 2),
    claude_answer("m1", {"type": "tool_use", "id": "t1", "name": "Task", "input": {"prompt": "count"}}, 2.5),
    claude(
        "user",
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "three"}]},
        9,
        toolUseResult={"agentId": "x1", "content": "three"},
    ),
    claude_answer("m2", {"type": "text", "text": "Three."}, 11),
]
CLAUDE_SUBAGENT: list[Record] = [
    claude("user", {"role": "user", "content": "count"}, 3, isSidechain=True, agentId="x1"),
    claude_answer(
        "m3", {"type": "tool_use", "id": "t2", "name": "Bash", "input": {"command": "ls"}}, 4, isSidechain=True
    ),
    claude(
        "user",
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t2", "content": "a b c"}]},
        5,
        isSidechain=True,
    ),
    claude_answer("m4", {"type": "text", "text": "three"}, 8, isSidechain=True),
]


def codex(kind: str, payload: Record, second: float) -> Record:
    return {"timestamp": time_at(second), "type": kind, "payload": payload}


CODEX: list[Record] = [
    codex("session_meta", {"id": "s1", "base_instructions": {"text": "You are an agent."}}, 0),
    codex(
        "response_item", {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Count."}]}, 1
    ),
    codex("response_item", {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": "{}"}, 3),
    codex("event_msg", {"type": "token_count", "info": {"last_token_usage": {"output_tokens": 33}}}, 3.5),
    codex("response_item", {"type": "function_call_output", "call_id": "c1", "output": "a b c"}, 4),
    codex("response_item", {"type": "message", "role": "assistant", "content": [{"text": "Three."}]}, 6),
]

ATIF_STEPS: list[Record] = [
    {"step_id": 1, "source": "system", "message": "You are an agent."},
    {"step_id": 2, "source": "user", "message": "Count the files."},
    {
        "step_id": 3,
        "source": "agent",
        "timestamp": time_at(2),
        "message": "I look.",
        "tool_calls": [{"tool_call_id": "c1", "function_name": "bash", "arguments": {"command": "ls"}}],
        "observation": {
            "results": [
                {
                    "source_call_id": "c1",
                    "content": "a b c",
                    "subagent_trajectory_ref": [{"session_id": "sub", "trajectory_path": "run.sub.json"}],
                }
            ]
        },
        "metrics": {"prompt_tokens": 50, "completion_tokens": 12},
        "a_field_of_a_newer_version": True,
    },
    {"step_id": 4, "source": "agent", "timestamp": time_at(5), "message": "Three."},
]
ATIF = {"schema_version": "ATIF-v1.8", "session_id": "s1", "agent": {"name": "a", "version": "1"}, "steps": ATIF_STEPS}
ATIF_SUBAGENT = {
    "schema_version": "ATIF-v1.5",
    "session_id": "sub",
    "agent": {"name": "sub", "version": "1", "extra": {"parent_session_id": "s1"}},
    "steps": [
        {"step_id": 1, "source": "user", "message": "Help."},
        {"step_id": 2, "source": "agent", "message": "Helped."},
    ],
}


def agentperf_turn(index: int, messages: list[Record]) -> Record:
    return {
        "version": 1,
        "turn_id": f"a:{index}",
        "task_id": "a",
        "conversation_id": "a",
        "conversation_idx": index,
        "messages": messages,
        "tools": [tool("bash")],
        "simulated_tool_delay_ms_after": 250.0,
        "recorded_tool_calls_after": [
            {"duration_ms": 250.0, "tool_call_id": "c1", "tool_name": "bash", "action": {"command": "ls"}}
        ],
        "recorded_completion_tokens": 11,
        "recorded_model_duration_ms": 900.0,
    }


def tau2_message(role: str, content: str | None, second: float, **extra: Any) -> Record:
    return {"role": role, "content": content, "timestamp": time_at(second), **extra}


TAU2 = {
    "timestamp": "x",
    "info": {
        "agent_info": {"llm": "m"},
        "environment_info": {"domain_name": "retail", "policy": "Be kind."},
    },
    "tasks": [{"id": "0"}],
    "simulations": [
        {
            "id": "sim",
            "task_id": "0",
            "trial": 0,
            "termination_reason": "user_stop",
            "mode": "half_duplex",
            "messages": [
                tau2_message("assistant", "Hi!", 0),
                tau2_message("user", "Where is it?", 2),
                tau2_message(
                    "assistant",
                    None,
                    4,
                    tool_calls=[{"id": "c1", "name": "find", "arguments": {"order": 1}, "requestor": "assistant"}],
                    usage={"completion_tokens": 9, "prompt_tokens": 50},
                    generation_time_seconds=1.5,
                ),
                tau2_message("tool", "here", 4.5, id="c1", requestor="assistant", error=False),
                tau2_message("assistant", "Here.", 6, usage={"completion_tokens": 4}, generation_time_seconds=1.0),
            ],
        }
    ],
}


def exgentic(event: str, step: int, **fields: Any) -> Record:
    return {"event": event, "session_id": "s1", "task_key": "k", "step": step, **fields}


FIXTURES: dict[str, Fixture] = {
    "replayrig": Fixture(files={"own.jsonl": lines(TRAJECTORY)}, num_tasks=1, num_calls=1),
    "toolathlon": Fixture(
        files={"rows.jsonl": lines({"task_name": "n", "model": "m", "pass": "True", "messages": CHAT[1:]})},
        num_tasks=1,
        num_calls=2,
        num_tool_calls=1,
    ),
    "weka": Fixture(files={"weka.jsonl": lines(WEKA)}, num_tasks=1, num_calls=6),
    "otel": Fixture(files={"trace.json": json.dumps(OTEL_TREE)}, num_tasks=1, num_calls=5),
    "aiperf-dag": Fixture(
        files={
            "dag.jsonl": lines(
                {
                    "session_id": "root",
                    "turns": [
                        {
                            "messages": CHAT[:2],
                            "max_tokens": 30,
                            "tools": [tool("bash")],
                            "spawns": ["child", {"children": ["other"], "join_at": 2}],
                        },
                        {"messages": [{"role": "user", "content": "and?"}], "max_tokens": 9, "delay": 1500},
                    ],
                },
                {"session_id": "child", "turns": [{"messages": CHAT[1:2], "max_tokens": 5, "delay": 20}]},
                {"session_id": "other", "turns": [{"messages": CHAT[1:2], "max_tokens": 5}]},
            )
        },
        num_tasks=1,
        num_calls=4,
    ),
    "mooncake": Fixture(
        files={
            "mooncake.jsonl": lines(
                {"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]},
                {"timestamp": 30, "input_length": 600, "output_length": 6, "hash_ids": [0, 3]},
            )
        },
        num_tasks=2,
        num_calls=2,
    ),
    "csv": Fixture(
        files={
            "azure.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n"
            "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
        },
        num_tasks=2,
        num_calls=2,
    ),
    "agentperf": Fixture(
        files={"agentperf.jsonl": lines(agentperf_turn(0, CHAT[:2]), agentperf_turn(1, CHAT[:4]))},
        num_tasks=1,
        num_calls=2,
        num_tool_calls=2,
    ),
    "request-log": Fixture(
        files={
            "requests.jsonl": lines(
                {"model": "m", "messages": CHAT[:2], "metadata": {"session_id": "s", "request_index": 0}},
                {"model": "m", "messages": CHAT[:4], "metadata": {"session_id": "s", "request_index": 1}},
            )
        },
        num_tasks=1,
        num_calls=2,
        num_tool_calls=1,
    ),
    "lmcache": Fixture(
        files={
            "lmcache.jsonl": lines(
                {
                    "timestamp": 1760000002000000,
                    "input": "user: a\nassistant: b\nuser: c",
                    "output": "d",
                    "session_id": "s",
                },
                {"timestamp": 1760000001000000, "input": "user: a", "output": "b", "session_id": "s"},
            )
        },
        num_tasks=1,
        num_calls=2,
    ),
    "tau-bench": Fixture(
        files={"tau.json": json.dumps([{"task_id": 3, "trial": 1, "reward": 1.0, "info": {}, "traj": CHAT}])},
        num_tasks=1,
        num_calls=2,
        num_tool_calls=1,
    ),
    "tau2-bench": Fixture(files={"tau2.json": json.dumps(TAU2)}, num_tasks=1, num_calls=2, num_tool_calls=1),
    "mini-swe-agent": Fixture(
        files={
            "mini.traj.json": json.dumps(
                {"info": {"exit_status": "Submitted"}, "messages": CHAT, "trajectory_format": "mini-swe-agent-1"},
                indent=1,
            )
        },
        num_tasks=1,
        num_calls=2,
        num_tool_calls=1,
    ),
    "openhands": Fixture(files={"events.json": json.dumps(OPENHANDS)}, num_tasks=1, num_calls=2, num_tool_calls=1),
    "swe-agent": Fixture(
        files={
            "swe.traj": json.dumps(
                {
                    "environment": "e",
                    "trajectory": [{"action": "ls", "observation": "a", "response": "I look.", "execution_time": 0.3}]
                    * 3,
                    "history": [{**message, "agent": "main"} for message in CHAT],
                    "info": {"exit_status": "submitted"},
                }
            )
        },
        num_tasks=1,
        num_calls=3,
        num_tool_calls=1,
    ),
    "who-and-when": Fixture(
        files={
            "who.jsonl": lines(
                {
                    "question": "q",
                    "split": "s",
                    "file": "1.json",
                    "mistake_agent": "A",
                    "system_prompt": {"A": "You are A.", "B": "You are B."},
                    "history": [
                        {"role": "assistant", "name": "A", "content": "the task"},
                        {"role": "user", "name": "B", "content": "I run code"},
                        {"role": "user", "name": "Computer_terminal", "content": "exit 0"},
                        {"role": "assistant", "name": "A", "content": "well done"},
                    ],
                }
            )
        },
        num_tasks=1,
        num_calls=2,
    ),
    "exgentic": Fixture(
        files={
            "trajectory.jsonl": lines(
                exgentic(
                    "observation",
                    0,
                    observation={"result": {"sender": "user", "message": "Hi"}, "invoking_actions": []},
                ),
                exgentic("action", 1, action={"name": "search", "arguments": {"q": 1}, "id": "c1"}),
                exgentic("observation", 1, observation={"result": "found", "invoking_actions": [{"id": "c1"}]}),
                exgentic("action", 2, action={"name": "finish", "arguments": {}, "id": "c2"}),
            ),
            "session.json": json.dumps(
                {
                    "task": "Find it.",
                    "context": {"policy": "Be kind."},
                    "actions": [{"name": "search", "description": "d", "arguments_schema": {"type": "object"}}],
                }
            ),
        },
        num_tasks=1,
        num_calls=2,
        num_tool_calls=2,
    ),
    "gemini-cli": Fixture(
        files={
            "gemini.json": json.dumps(
                {
                    "sessionId": "s",
                    "projectHash": "h",
                    "startTime": time_at(0),
                    "messages": [
                        {"type": "user", "content": "Hi", "timestamp": time_at(0)},
                        {
                            "type": "gemini",
                            "content": "Hello",
                            "timestamp": time_at(2),
                            "model": "m",
                            "tokens": {"input": 5, "output": 4, "thoughts": 3},
                            "toolCalls": [{"id": "c1", "name": "read_file", "args": {"path": "a"}, "result": "x"}],
                        },
                    ],
                }
            )
        },
        num_tasks=1,
        num_calls=1,
        num_tool_calls=1,
    ),
    "agent-trace": Fixture(
        files={
            "agent.json": json.dumps(
                {
                    "trace_id": "t",
                    "prompt": "Do it.",
                    "model": "m",
                    "llm_steps": [
                        {"model_output": "", "tool_calls": [{"name": "bash", "arguments": {}}], "output_tokens": 9},
                        {"model_output": "Done.", "output_tokens": 3, "duration_ms": 120.0},
                    ],
                    "spans": [
                        {"type": "TOOL", "tool_name": "bash", "tool_output": "ok", "duration_ms": 40, "exit_code": 0}
                    ],
                }
            )
        },
        num_tasks=1,
        num_calls=2,
        num_tool_calls=1,
    ),
    "atif": Fixture(
        files={"run.json": json.dumps(ATIF, indent=2), "run.sub.json": json.dumps(ATIF_SUBAGENT)},
        num_tasks=1,
        num_calls=3,
        num_tool_calls=1,
    ),
    "claude-code": Fixture(
        files={"s1.jsonl": lines(*CLAUDE), "agent-x1.jsonl": lines(*CLAUDE_SUBAGENT)},
        num_tasks=1,
        num_calls=4,
        num_tool_calls=2,
    ),
    "codex": Fixture(files={"rollout.jsonl": lines(*CODEX)}, num_tasks=1, num_calls=2, num_tool_calls=1),
    "tracelab": Fixture(
        files={
            "rounds.jsonl": lines(
                *(
                    {
                        "provider": "claude",
                        "session_id": "s",
                        "round_index": index,
                        "model": "m",
                        "input_tokens_total": 1000 + 500 * index,
                        "prefix_tokens": 800 + 100 * index,
                        "newly_append_tokens": 200,
                        "output_tokens": 30,
                        "timing_events": [
                            {"event_type": "user_message", "timestamp": time_at(10 * index)},
                            {"event_type": "text", "timestamp": time_at(10 * index + 4)},
                        ],
                        "tools": [{"tool_name": "Bash", "tool_call_id": "c", "tool_wall_latency_ms": 860}],
                    }
                    for index in range(2)
                )
            )
        },
        num_tasks=1,
        num_calls=2,
        num_tool_calls=2,
    ),
    "messages": Fixture(
        files={"chat.jsonl": lines({"id": "x", "messages": CHAT, "tools": [tool("bash")]}, {"messages": CHAT})},
        num_tasks=2,
        num_calls=4,
        num_tool_calls=2,
    ),
}
