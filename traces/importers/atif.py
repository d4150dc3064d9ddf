"""Agent Trajectory Interchange Format, 1.0 to 1.8: ``{schema_version: "ATIF-v1.x", session_id, agent, steps}``.

Read leniently: newer versions carry more fields. An agent's step with ``llm_call_count`` 0 called no model; with more
than 1 it stands for several calls, of which only the sum is known. Steps marked ``is_copied_context`` are another
trajectory's. Subagents are embedded, or files beside this one, and hang on the step whose observation names them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traces.domains import domain_of
from traces.importers.chat import ConversationBuilder, schemas_of, text_of, to_json
from traces.importers.clock_times import AgentTimes
from traces.importers.fields import get, get_count, get_label, get_list, get_object, get_text, get_time
from traces.importers.groups import read_each
from traces.importers.log import BadRecord, ImportLog
from traces.importers.sources import Source
from traces.trajectory import Subagent, Trajectory

NAME = "atif"
_MAX_DEPTH = 8


def recognises(value: Any) -> bool:
    """Whether ``value`` is a trajectory of this format, or a list of them."""
    record = value[0] if isinstance(value, list) and value else value
    return isinstance(record, dict) and get_label(record, "schema_version").startswith("ATIF")


def read(source: Source, log: ImportLog) -> Iterator[Trajectory]:
    """The trajectories of ``source``; what cannot be used goes to ``log``."""

    def read_one(record: Any, log: ImportLog) -> Trajectory:
        return _read_trajectory(record, source, log)

    parent_id = _parent_of(source.first_value)
    if parent_id and any(_mentions(path, parent_id) for path in source.siblings() if path in log.paths):
        log.note("files of subagents that were read with their parent's")
        return
    yield from read_each(source, log, read_one)


def _parent_of(record: Any) -> str:
    if not isinstance(record, dict):
        return ""
    agent = record.get("agent")
    extra = agent.get("extra") if isinstance(agent, dict) else None
    parent_id = extra.get("parent_session_id") if isinstance(extra, dict) else None
    return parent_id if isinstance(parent_id, str) else ""


def _mentions(path: Path, session_id: str) -> bool:
    """Whether ``path`` is the trajectory ``session_id``, and refers to subagents."""
    record = Source(name=str(path), path=path).first_value
    return (
        isinstance(record, dict)
        and record.get("session_id") == session_id
        and "subagent_trajectory_ref" in to_json(record)
    )


def _read_trajectory(record: Any, source: Source, log: ImportLog) -> Trajectory:
    if get(record, "continued_trajectory_ref") is not None:
        log.note("trajectories that go on in another file: that file is a task of its own")
    agent = _read_agent(record, source, log, depth=0)
    name = get_text(get_object(record, "agent"), "name")
    return Trajectory(
        task_id=get_text(record, "trajectory_id") or get_text(record, "session_id") or name or "trajectory",
        system_prompt=agent.system_prompt,
        user_prompt=agent.user_prompt,
        tools=agent.tools,
        turns=agent.turns,
        source=NAME,
        model=get_text(get_object(record, "agent"), "model_name"),
        metadata={"agent": name, "version": get_text(record, "schema_version")},
    )


def _read_agent(record: Any, source: Source, log: ImportLog, *, depth: int) -> Subagent:
    """A trajectory of this format as an agent; the outermost becomes the task."""
    if depth > _MAX_DEPTH:
        raise BadRecord("subagents nested too deep")
    steps = get_list(record, "steps")
    agent = get_object(record, "agent")
    embedded = {get_text(one, "trajectory_id"): one for one in get_list(record, "subagent_trajectories")}
    reader = _Steps(
        builder=ConversationBuilder(domain_of=domain_of, log=log),
        times=AgentTimes(next((at for one in steps if (at := get_time(one, "timestamp")) is not None), None)),
        source=source,
        log=log,
        depth=depth,
        embedded=embedded,
    )
    for step in steps:
        reader.add(step)
    conversation = reader.builder.conversation()
    return Subagent(
        agent_id=get_text(record, "trajectory_id") or get_text(record, "session_id") or get_text(agent, "name"),
        user_prompt=conversation.user_prompt,
        system_prompt=conversation.system_prompt,
        tools=schemas_of(get_list(agent, "tool_definitions"), domain_of=domain_of),
        turns=conversation.turns,
    )


@dataclass(eq=False, slots=True, kw_only=True)
class _Steps:
    """Puts steps into a conversation."""

    builder: ConversationBuilder
    times: AgentTimes
    source: Source
    log: ImportLog
    depth: int
    embedded: dict[str, Any]
    before: float | None = None
    """When the step before happened."""

    def add(self, step: Any) -> None:
        at = get_time(step, "timestamp")
        text = text_of(get(step, "message"))
        source = get(step, "source")
        if get(step, "is_copied_context") is True and source == "agent":
            self.log.note("answers copied from another trajectory: in the history, but no calls of this one")
            self.builder.add_user(text)
        elif source == "agent" and get_count(step, "llm_call_count") == 0:
            self.log.note("steps without a model call: what they did is taken as said to the model")
            self.builder.add_user("\n".join([text, *self._results(step)]))
        elif source == "agent":
            self._add_answer(step, at)
        elif source == "system" and self.builder.num_turns == 0:
            self.builder.add_system(text)
        else:
            self._add_spawns(step)
            self.builder.add_user(text)
        self.before = at if at is not None else self.before

    def _add_answer(self, step: Any, at: float | None) -> None:
        if (get_count(step, "llm_call_count") or 1) > 1:
            self.log.note("steps of several model calls: taken as one, its tokens are the sum")
        metrics = get_object(step, "metrics")
        calls = [
            {
                "id": get(call, "tool_call_id"),
                "function": {"name": get(call, "function_name"), "arguments": _arguments(get(call, "arguments"))},
            }
            for call in get_list(step, "tool_calls")
        ]
        measured = self.times.call(self.before, at, num_output_tokens=get_count(metrics, "completion_tokens"))
        message = {
            "content": text_of(get(step, "message")),
            "tool_calls": calls,
            "reasoning_content": get(step, "reasoning_content"),
        }
        self.builder.add_reply(message, measured)
        for result in get_list(get_object(step, "observation"), "results"):
            content = text_of(get(result, "content"))
            if calls:
                call_id = get(result, "source_call_id")
                self.builder.add_result(content, call_id=call_id if isinstance(call_id, str) else None)
            elif content:
                self.builder.add_user(content)
        self._add_spawns(step)

    def _add_spawns(self, step: Any) -> None:
        spawns: list[Subagent] = []
        for result in get_list(get_object(step, "observation"), "results"):
            spawns += self._subagents(result)
        if spawns:
            self.log.note("subagents of one step: taken as started together", int(len(spawns) > 1))
            self.builder.add_spawns(spawns)

    def _results(self, step: Any) -> list[str]:
        return [text_of(get(one, "content")) for one in get_list(get_object(step, "observation"), "results")]

    def _subagents(self, result: Any) -> list[Subagent]:
        """The subagents that a result refers to; those that cannot be found are noted."""
        references = get(result, "subagent_trajectory_ref")
        if references is None:
            return []
        agents = []
        for reference in references if isinstance(references, list) else [references]:
            record = self._find(reference)
            if record is None:
                self.log.note("references to subagents whose trajectory is not there: left out")
                continue
            try:
                agents.append(_read_agent(record, self.source, self.log, depth=self.depth + 1))
            except BadRecord:
                self.log.note("subagents without an answer of a model: left out")
        return agents

    def _find(self, reference: Any) -> Any:
        identity = get_text(reference, "trajectory_id") or get_text(reference, "session_id")
        if identity in self.embedded:
            return self.embedded[identity]
        name = get_text(reference, "trajectory_path").rpartition("/")[2]
        if not name:
            return None
        # Exports may prefix all files of a run: run.trajectory.json has its subagent in run.trajectory.sub.json.
        prefix = self.source.path.name.partition("trajectory")[0]
        for candidate in (name, f"{prefix}{name}"):
            record = self.source.companion(candidate)
            if isinstance(record, dict) and "steps" in record:
                return record
        return None


def _arguments(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else to_json(arguments or {})
