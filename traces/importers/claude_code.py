"""Claude Code sessions: the records of ``~/.claude/projects/*/*.jsonl``, also pretty-printed, or in ``{loglines}``.

One answer is spread over several records with the same ``message.id``, each repeating its usage. Results of tools come
as user records. What a subagent did stands in records with ``isSidechain``, in this file or in one of its own
(``agent-<id>.jsonl``), and belongs to the ``Task`` call whose result names the agent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from traces.domains import domain_of
from traces.importers.chat import ConversationBuilder, text_of, to_json
from traces.importers.clock_times import AgentTimes, between
from traces.importers.fields import get, get_count, get_label, get_list, get_object, get_text, get_time
from traces.importers.log import BadRecord, ImportLog
from traces.importers.sources import Source
from traces.trajectory import Subagent, Trajectory

_FILE_ID = re.compile(r"[\w.-]{1,128}", re.ASCII)
"""What a file may be named after: the name comes from the recording."""

NAME = "claude-code"
_RECORD_TYPES = ("user", "assistant", "system", "summary", "attachment", "mode", "permission-mode", "progress")
_INPUTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_MAX_DEPTH = 8


def recognises(value: Any) -> bool:
    """Whether ``value`` is a record of a session, or a session's ``loglines``."""
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("loglines"), list):
        return True
    return value.get("type") in _RECORD_TYPES and ("sessionId" in value or "leafUuid" in value)


def read(source: Source, log: ImportLog) -> Iterator[Trajectory]:
    """The session in ``source``; what cannot be used goes to ``log``."""
    records: list[Any] = []
    for where, value in source.values(log.skip):
        if not isinstance(value, dict):
            log.skip(where, "a record must be an object")
        elif isinstance(value.get("loglines"), list):
            records += [line for line in value["loglines"] if isinstance(line, dict)]
        else:
            records.append(value)
    try:
        if (
            records
            and all(_is_sidechain(one) for one in records if "message" in one)
            and _has_parent(source, records, log)
        ):
            log.note("files of subagents that were read with their parent's")
            return
        yield _read_session(records, source, log)
    except BadRecord as error:
        log.skip(source.name, str(error))


def _read_session(records: list[Any], source: Source, log: ImportLog) -> Trajectory:
    main = [record for record in records if not _is_sidechain(record)] or records
    chains = _Sidechains(source, log)
    if main is not records:
        chains.add([record for record in records if _is_sidechain(record)])
    session_id = next((get_text(one, "sessionId") for one in main if get(one, "sessionId")), "session")
    begin = next((at for one in main if (at := get_time(one, "timestamp")) is not None), None)
    reader = _Records(ConversationBuilder(domain_of=domain_of, log=log), AgentTimes(begin), chains, log)
    reader.add_all(main)
    conversation = reader.builder.conversation()
    chains.note_unused()
    log.note("sessions without system prompt and tool schemas: their prompts are shorter than the run's were")
    return Trajectory(
        task_id=session_id,
        user_prompt=conversation.user_prompt,
        turns=conversation.turns,
        source=NAME,
        model=reader.model,
    )


@dataclass(eq=False, slots=True)
class _Answer:
    """One answer of the model, from all records with its id."""

    message_id: str
    started: float | None
    ended: float | None
    texts: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    num_output_tokens: int | None = None


class _Records:
    """Puts the records of one agent into a conversation."""

    def __init__(
        self, builder: ConversationBuilder, times: AgentTimes, chains: _Sidechains, log: ImportLog, depth: int = 0
    ) -> None:
        self.builder = builder
        self.model = ""
        self._times = times
        self._chains = chains
        self._log = log
        self._depth = depth
        self._answer: _Answer | None = None
        self._called_at: dict[str, float | None] = {}
        self._prompt_by_call_id: dict[str, str] = {}
        self._before: float | None = None

    def add_all(self, records: list[Any]) -> None:
        for record in records:
            kind = get(record, "type")
            at = get_time(record, "timestamp")
            if kind == "assistant":
                self._add_answer(get_object(record, "message"), at)
            elif kind == "user" and get(record, "isMeta") is not True:
                self._flush()
                self._add_user(record, at)
            if kind in ("user", "assistant") and at is not None:
                self._before = at
        self._flush()

    def _add_answer(self, message: Any, at: float | None) -> None:
        message_id = get_text(message, "id")
        if self._answer is None or not message_id or message_id != self._answer.message_id:
            self._flush()
            self._answer = _Answer(message_id, self._before, at)
        answer = self._answer
        self.model = self.model or get_text(message, "model")
        answer.ended = at
        usage = get_object(message, "usage")
        answer.num_output_tokens = max(get_count(usage, "output_tokens") or 0, answer.num_output_tokens or 0) or None
        content = get(message, "content")
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else get_list(message, "content"):
            if get(block, "type") == "text":
                answer.texts.append(get_text(block, "text"))
            elif get(block, "type") == "tool_use":
                function = {"name": get_text(block, "name"), "arguments": to_json(get(block, "input") or {})}
                answer.calls.append({"id": get_text(block, "id"), "function": function})
                self._called_at[get_text(block, "id")] = at
                prompt = get_object(block, "input").get("prompt")
                if isinstance(prompt, str):
                    self._prompt_by_call_id[get_text(block, "id")] = prompt

    def _flush(self) -> None:
        answer = self._answer
        if answer is None:
            return
        self._answer = None
        measured = self._times.call(answer.started, answer.ended, num_output_tokens=answer.num_output_tokens)
        self.builder.add_reply({"content": "\n".join(answer.texts), "tool_calls": answer.calls}, measured)

    def _add_user(self, record: Any, at: float | None) -> None:
        content = get(get_object(record, "message"), "content")
        blocks = content if isinstance(content, list) else [content]
        for block in blocks:
            if isinstance(block, dict) and block.get("type") == "tool_result":
                self._add_result(record, block, at)
            else:
                self.builder.add_user(text_of([block] if isinstance(block, dict) else block))

    def _add_result(self, record: Any, block: Any, at: float | None) -> None:
        call_id = get_text(block, "tool_use_id")
        self.builder.add_result(
            text_of(get(block, "content")),
            call_id=call_id,
            latency_s=between(self._called_at.get(call_id), at),
            is_error=get(block, "is_error") is True,
        )
        outcome = get(record, "toolUseResult")
        agent_id = outcome.get("agentId") if isinstance(outcome, dict) else None
        if agent_id is None:  # older versions do not say which agent it was: it began with what it was asked
            agent_id = self._chains.asked(self._prompt_by_call_id.get(call_id))
        if isinstance(agent_id, str) and self._depth < _MAX_DEPTH:
            subagent = self._chains.take(agent_id, self._called_at.get(call_id), self._depth + 1)
            if subagent is not None:
                self.builder.add_spawns([subagent])
                self._times.waited_for(at)


class _Sidechains:
    """The records of subagents, by agent: those in the session's file, and those in files of their own."""

    def __init__(self, source: Source, log: ImportLog) -> None:
        self._source = source
        self._log = log
        self._records_by_agent: dict[str, list[Any]] = {}

    def add(self, records: list[Any]) -> None:
        """Records of this session's file that belong to subagents; older ones do not say to which."""
        agent_by_uuid: dict[str, str] = {}
        for record in records:
            uuid, parent = get_label(record, "uuid"), get_label(record, "parentUuid")
            agent = get_text(record, "agentId") or agent_by_uuid.get(parent) or f"sidechain-{uuid}"
            agent_by_uuid[uuid] = agent
            self._records_by_agent.setdefault(agent, []).append(record)

    def asked(self, prompt: str | None) -> str | None:
        """The agent in this session's file that began with ``prompt``."""
        for agent_id, records in self._records_by_agent.items():
            if prompt and text_of(get(get_object(records[0], "message"), "content")) == prompt:
                return agent_id
        return None

    def take(self, agent_id: str, spawned_at: float | None, depth: int) -> Subagent | None:
        """The agent ``agent_id`` with what it did."""
        records = self._records_by_agent.pop(agent_id, None) or self._from_file(agent_id)
        if not records:
            self._log.note("subagents whose records are not there: left out")
            return None
        begin = next((at for one in records if (at := get_time(one, "timestamp")) is not None), None)
        reader = _Records(
            ConversationBuilder(domain_of=domain_of, log=self._log), AgentTimes(begin), self, self._log, depth
        )
        try:
            reader.add_all(records)
            conversation = reader.builder.conversation()
        except BadRecord:
            self._log.note("subagents without an answer of a model: left out")
            return None
        return Subagent(
            agent_id=agent_id,
            user_prompt=conversation.user_prompt,
            turns=conversation.turns,
            delay_s=between(spawned_at, begin) or 0.0,
        )

    def note_unused(self) -> None:
        """Whatever no tool call's result referred to."""
        self._log.note("subagents that no tool call's result names: left out", len(self._records_by_agent))

    def _from_file(self, agent_id: str) -> list[Any]:
        if _FILE_ID.fullmatch(agent_id) is None:
            return []
        folder = self._source.path.parent
        session_folder = folder / self._source.path.name.partition(".")[0] / "subagents"
        for path in (folder / f"agent-{agent_id}.jsonl", session_folder / f"agent-{agent_id}.jsonl"):
            if path.is_file():
                values = Source(name=str(path), path=path).values(self._log.skip)
                return [value for _, value in values if isinstance(value, dict)]
        return []


def _is_sidechain(record: Any) -> bool:
    return get(record, "isSidechain") is True


def _has_parent(source: Source, records: list[Any], log: ImportLog) -> bool:
    """Whether the session that these subagent records belong to is imported too."""
    session_id = get(records[0], "sessionId")
    folder = source.path.parent
    candidates = {folder / f"{session_id}.jsonl", folder.parent.parent / f"{session_id}.jsonl"}
    return bool(candidates & {Path(path) for path in log.paths})
