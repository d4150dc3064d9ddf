"""Toolathlon trajectories (hkust-nlp/Toolathlon-Trajectories): dataset rows, and a run's ``traj_log.json``.

A row is ``{task_name, model, pass, messages}``; the full record is ``{modelname_run, task_name, config, tool_calls,
messages, ...}`` whose nested values are JSON strings in the dataset and plain JSON in ``traj_log.json``. ``tool_calls``
at the top is the list of schemas that were offered.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from traces.domains import toolathlon_domain
from traces.importers.chat import read_conversation, schemas_of
from traces.importers.fields import get, get_list, get_text
from traces.importers.groups import read_each
from traces.importers.log import BadRecord, ImportLog
from traces.importers.sources import Source, parse_json
from traces.trajectory import Trajectory

NAME = "toolathlon"
_MARKS = ({"messages", "task_name", "model"}, {"messages", "tool_calls", "config", "key_stats"})


def recognises(value: Any) -> bool:
    """Whether ``value`` is a row or a record of this format."""
    if isinstance(value, list):
        return bool(value) and recognises(value[0])
    return isinstance(value, dict) and any(mark <= value.keys() for mark in _MARKS)


def read(source: Source, log: ImportLog) -> Iterator[Trajectory]:
    """The trajectories of ``source``; what cannot be used goes to ``log``."""
    yield from read_each(source, log, read_record)


def read_record(record: Any, log: ImportLog) -> Trajectory:
    """One row or record as a trajectory."""
    messages = get_list({"messages": _unpacked(get(record, "messages"))}, "messages")
    conversation = read_conversation(messages, domain_of=toolathlon_domain, log=log)
    offered = _unpacked(get(record, "tool_calls"))
    if isinstance(offered, dict):
        offered = offered.get("tools")
    tools = schemas_of(get_list({"tool_calls": offered}, "tool_calls"), domain_of=toolathlon_domain)
    if not tools:
        log.note("tasks without tool schemas: their prompts are shorter than the run's were")
    config = _unpacked(get(record, "config"))
    system_prompt = conversation.system_prompt or _system_prompt(config)
    if not system_prompt:
        log.note("tasks without a system prompt")
    passed = get(record, "pass")
    return Trajectory(
        task_id=get_text(record, "task_name") or _task_name(config),
        user_prompt=conversation.user_prompt,
        system_prompt=system_prompt,
        tools=tools,
        turns=conversation.turns,
        source=NAME,
        model=get_text(record, "model") or get_text(record, "modelname_run"),
        metadata={"passed": str(passed).lower()} if isinstance(passed, bool | str) else {},
    )


def _task_name(config: Any) -> str:
    """``finalpool/find-papers`` in the configuration is the task ``find-papers``."""
    task_dir = config.get("task_dir") if isinstance(config, dict) else None
    return task_dir.rpartition("/")[2] if isinstance(task_dir, str) else "task"


def _system_prompt(config: Any) -> str:
    """The agent's system prompt stands in the configuration; the dataset has that part as Python's repr()."""
    prompts = config.get("system_prompts") if isinstance(config, dict) else None
    if isinstance(prompts, str):
        try:
            prompts = ast.literal_eval(prompts)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return ""
    prompt = prompts.get("agent") if isinstance(prompts, dict) else None
    return prompt if isinstance(prompt, str) else ""


def _unpacked(value: Any) -> Any:
    """``value``, or what is in it where it is JSON in a string."""
    if not isinstance(value, str) or not value:
        return value
    try:
        return parse_json(value)
    except ValueError as error:
        raise BadRecord(f"a nested JSON string is not JSON: {error}") from None
