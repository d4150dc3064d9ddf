"""What an agent did: its prompts, its model calls, its tools. Pure data.

A trajectory is one task. Its turns follow each other; a turn is one model call and the tool work that came
after it. A turn that spawned subagents carries them in ``spawns``: they run in parallel, and the next turn
starts when all have ended (the join), but for those in the background.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSchema:
    """One tool that was offered to the model."""

    name: str
    domain: str
    """The server the tool belongs to (an MCP server's name); ``local`` for tools of the agent itself."""
    text: str
    """What the prompt holds: compact JSON in OpenAI's form, ``{"type":"function","function":{...}}``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One tool that the model asked for, and what came back."""

    call_id: str
    name: str
    domain: str
    arguments: str
    """JSON text as the model wrote it: it may be empty or cut off."""
    result: str
    latency_s: float | None = None
    """Recorded execution time; None where the recording has none."""
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Subagent:
    """An agent that a turn spawned: its own system prompt, tools and turns."""

    agent_id: str
    user_prompt: str
    turns: tuple[Turn, ...]
    system_prompt: str = ""
    tools: tuple[ToolSchema, ...] = ()
    delay_s: float = 0.0
    """From the end of the spawning call to the subagent's first call."""
    is_background: bool = False
    """Nobody waits for it: the spawning agent's next turn does not join it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPrompt:
    """A prompt of which a recording kept only its length and the hashes of its blocks.

    A session's prompts repeat each other, so a prompt may leave out the blocks that it has from the one before it:
    that of the previous call of the same agent, if that call spawned nothing.
    """

    num_tokens: int
    block_size: int
    block_hashes: tuple[int, ...] = ()
    """Its blocks from number ``num_kept_blocks`` on; the last may be only partly filled."""
    num_kept_blocks: int = 0
    """How many blocks at its start are those of the prompt before it."""
    scope: str = ""
    """Equal hashes mean equal blocks within one scope only."""

    def hashes_after(self, before: tuple[int, ...]) -> tuple[int, ...]:
        """All its blocks' hashes, given all those of the prompt before it."""
        return before[: self.num_kept_blocks] + self.block_hashes


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One model call and the tool work after it."""

    content: str = ""
    """What the model said, without its tool calls."""
    tool_calls: tuple[ToolCall, ...] = ()
    num_output_tokens: int | None = None
    """Output tokens of the call, the end-of-turn token included.

    None: as many as ``content`` and ``tool_calls`` give.
    """
    user_message: str | None = None
    """What the user said before this call, in a conversation of several user turns."""
    prompt: RecordedPrompt | None = None
    """The whole prompt, where the recording has no text to grow one from."""
    started_at: float | None = None
    """Seconds from the trajectory's start to this call's start, where recorded."""
    duration_s: float | None = None
    """From the call's start to its last token, where recorded."""
    delay_s: float | None = None
    """From the end of what this call waited for to its start (tools, think time), where recorded.

    It waits for the previous call, and for the subagents which that one spawned (but for those in the background).
    """
    spawns: tuple[Subagent, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One task, as one agent run did it."""

    task_id: str
    turns: tuple[Turn, ...]
    user_prompt: str = ""
    system_prompt: str = ""
    tools: tuple[ToolSchema, ...] = ()
    source: str = ""
    """Where it came from: a file's format, or the generator's name."""
    model: str = ""
    started_at: float | None = None
    """Seconds from the recording's start, where several tasks share a clock."""
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def num_calls(self) -> int:
        """Model calls, the subagents' included."""
        return _num_calls(self.turns)

    @property
    def num_tool_calls(self) -> int:
        """Tool calls, the subagents' included."""
        return _num_tool_calls(self.turns)


def _num_calls(turns: tuple[Turn, ...]) -> int:
    return sum(1 + sum(_num_calls(spawn.turns) for spawn in turn.spawns) for turn in turns)


def _num_tool_calls(turns: tuple[Turn, ...]) -> int:
    return sum(len(turn.tool_calls) + sum(_num_tool_calls(spawn.turns) for spawn in turn.spawns) for turn in turns)
