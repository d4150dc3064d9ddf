"""Trajectories without their text: the same counts, the same sharing, the same shape, in filler.

Every text becomes filler of as many tokens. Two texts that begin alike begin alike afterwards, to the grain of 16
tokens, because each block of filler is drawn from what the text was up to there, and from a secret: without it nobody
can try out whether some text was in it.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import replace

from mockserver import tokens
from mockserver.filler import filler
from mockserver.tokens import TOKEN_BYTES, TokenText
from traces.domains import PUBLIC_DOMAINS
from traces.exact_json import arguments_text, brief_schema_text
from traces.prompt_size import tool_call_overhead
from traces.trajectory import RecordedPrompt, Subagent, ToolCall, ToolSchema, Trajectory, Turn

_BLOCK_BYTES = 16 * TOKEN_BYTES


class Anonymizer:
    """Takes the text out of trajectories, of all in the same way."""

    def __init__(self, secret: str | None = None) -> None:
        self._secret = secrets.token_hex(16) if secret is None else secret
        self._name_by_name: dict[tuple[str, str], str] = {}
        self._num_tasks = 0

    def apply(self, trajectory: Trajectory) -> Trajectory:
        """``trajectory`` without its text."""
        self._num_tasks += 1
        return Trajectory(
            task_id=f"task-{self._num_tasks - 1:05d}",
            turns=self._turns(trajectory.turns),
            user_prompt=self.text(trajectory.user_prompt),
            system_prompt=self.text(trajectory.system_prompt),
            tools=self.tools(trajectory.tools),
            source=trajectory.source,
            model=trajectory.model,
            started_at=trajectory.started_at,
        )

    def _turns(self, turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
        return tuple(
            replace(
                turn,
                content=self.text(turn.content),
                user_message=None if turn.user_message is None else self.text(turn.user_message),
                tool_calls=tuple(self._call(call) for call in turn.tool_calls),
                prompt=None if turn.prompt is None else self._prompt(turn.prompt),
                spawns=tuple(self._subagent(spawn) for spawn in turn.spawns),
            )
            for turn in turns
        )

    def _subagent(self, spawn: Subagent) -> Subagent:
        return replace(
            spawn,
            agent_id=self.name("agent", spawn.agent_id),
            user_prompt=self.text(spawn.user_prompt),
            system_prompt=self.text(spawn.system_prompt),
            tools=self.tools(spawn.tools),
            turns=self._turns(spawn.turns),
        )

    def _call(self, call: ToolCall) -> ToolCall:
        name = self.tool_name(call.name)
        # What the new name is longer or shorter, the arguments are shorter or longer: the reply's length stays.
        num_tokens = tool_call_overhead(call.name) + tokens.count(call.arguments) - tool_call_overhead(name)
        return replace(
            call,
            call_id=self.name("call", call.call_id),
            name=name,
            domain=self.domain(call.domain),
            arguments=self._arguments(call.arguments, max(num_tokens, 0)),
            result=self.text(call.result),
        )

    def _arguments(self, text: str, num_tokens: int) -> str:
        seed = f"{self._secret}/arguments/{text}"
        arguments = arguments_text(num_tokens, seed=seed)
        return arguments if tokens.count(arguments) == num_tokens else filler(seed, num_tokens)

    def tools(self, tools: tuple[ToolSchema, ...]) -> tuple[ToolSchema, ...]:
        """Schemas of as many tokens, the same for the same schema."""
        return tuple(
            ToolSchema(
                name=self.tool_name(tool.name),
                domain=self.domain(tool.domain),
                text=brief_schema_text(
                    self.tool_name(tool.name),
                    tokens.count(tool.text),
                    seed=f"{self._secret}/schema/{tool.text}",
                ),
            )
            for tool in tools
        )

    def tool_name(self, name: str) -> str:
        """A name that says nothing, and is hardly longer than any other."""
        return f"t{self.name('tool', name).rpartition('_')[2]}"

    def domain(self, domain: str) -> str:
        """The domain if everybody knows it, else a name that says nothing."""
        return domain if domain in PUBLIC_DOMAINS else self.name("domain", domain)

    def name(self, kind: str, name: str) -> str:
        """A name that says nothing, the same for the same name."""
        number = len(self._name_by_name)
        return self._name_by_name.setdefault((kind, name), f"{kind}_{number}")

    def _prompt(self, prompt: RecordedPrompt) -> RecordedPrompt:
        return replace(prompt, scope=self.name("scope", prompt.scope) if prompt.scope else "")

    def text(self, text: str) -> TokenText | str:
        """Filler of as many tokens, block by block."""
        if not text:
            return ""
        ids = tokens.encode(text)
        so_far = hashlib.blake2b(key=self._secret.encode()[:64], digest_size=16)
        blocks = []
        for start in range(0, len(ids), _BLOCK_BYTES):
            block = ids[start : start + _BLOCK_BYTES]
            so_far.update(block)
            blocks.append(filler(so_far.hexdigest(), len(block) // TOKEN_BYTES))
        return TokenText("".join(blocks), b"".join(block.token_ids for block in blocks))
