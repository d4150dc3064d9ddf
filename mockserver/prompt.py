"""Messages and tools to token ids: one chat template, used by both doors.

The template is ChatML with the tools in the system block, one JSON line each. It is applied to tokens, not to text:
every piece is tokenised on its own between special tokens, so a piece's ids do not depend on its neighbours, a
conversation that grows by one turn costs the new turn only, and a reply in the history has exactly the ids it was
generated with.

    <|im_start|>system\\n{system}{tools}<|im_end|>\\n
    <|im_start|>user\\n{content}<|im_end|>\\n
    <|im_start|>assistant\\n{content}{tool calls}<|im_end|>\\n      <- from {content} to <|im_end|>: what was generated
    <|im_start|>tool\\n{content}<|im_end|>\\n
    <|im_start|>assistant\\n                                        <- the generation prompt
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from mockserver.engine.chains import BlockPath, ChainTable
from mockserver.tokens import SPECIAL_TOKENS, TokenText, encode, pack

Message = Mapping[str, Any]
"""One message in OpenAI's shape."""

_DEFAULT_CACHE_BYTES = 256 * 2**20
_BYTES_PER_ENTRY = 200  # a dict entry, a str and a bytes object besides their content
TOOL_CALL_BEGIN = '\n<tool_call>\n{"name": "'
TOOL_CALL_MIDDLE = '", "arguments": '
TOOL_CALL_END = "}\n</tool_call>"


class PromptEncoder:
    """The tokenising side of a server with a given block size. Memory is bounded."""

    def __init__(
        self,
        *,
        block_size: int,
        max_chain_tokens: int = 16_000_000,
        max_cache_bytes: int = _DEFAULT_CACHE_BYTES,
    ) -> None:
        self.chains = ChainTable(block_size=block_size, max_tokens=max_chain_tokens)
        self._texts = _TextCache(max_cache_bytes)
        self._system_blocks: dict[tuple[str, tuple[str, ...]], bytes] = {}

    def chat(
        self, messages: Sequence[Message], tools: Sequence[str] = (), *, add_generation_prompt: bool = True
    ) -> bytes:
        """Prompt token ids of a conversation. ``tools`` holds one compact JSON text a tool."""
        template = _template()
        encode_text = self._texts.encode
        parts: list[bytes] = []
        rest: Sequence[Message] = messages
        if messages and messages[0]["role"] in {"system", "developer"}:
            parts.append(self._system_block(text_of(messages[0].get("content")), tuple(tools)))
            rest = messages[1:]
        elif tools:
            parts.append(self._system_block("", tuple(tools)))
        for message in rest:
            role = message["role"]
            if role == "assistant":
                parts.append(template.assistant)
                self._append_reply(parts, message)
                parts.append(template.newline)
                continue
            header = template.header_by_role.get(role)
            parts.append(header if header is not None else template.header(role))
            content = message.get("content")
            parts.append(encode_text(content if isinstance(content, str) else text_of(content)))
            parts.append(template.end)
        if add_generation_prompt:
            parts.append(template.assistant)
        return b"".join(parts)

    def reply(self, message: Message) -> bytes:
        """The ids that a model generates for this assistant message, its end-of-turn token included."""
        parts: list[bytes] = []
        self._append_reply(parts, message)
        return b"".join(parts)

    def said(self, reply: bytes) -> bytes:
        """The ids of an assistant message in a history, from those of ``reply``."""
        template = _template()
        return template.assistant + reply + template.newline

    def text(self, text: str) -> bytes:
        """Ids of a plain text, remembered."""
        return self._texts.encode(text)

    def path(self, token_ids: bytes, *, salt: str = "") -> BlockPath:
        """Content addresses of all full blocks of ``token_ids``; different salts share nothing."""
        return self.chains.path(token_ids, salt=salt)

    def extend(self, path: BlockPath, token_ids: bytes) -> BlockPath | None:
        """The path of what starts with ``path`` and goes on with ``token_ids``; None where ``path`` is forgotten."""
        return self.chains.extend(path, token_ids)

    def _append_reply(self, parts: list[bytes], message: Message) -> None:
        template = _template()
        content = message.get("content")
        if content:
            parts.append(self._texts.encode(content if isinstance(content, str) else text_of(content)))
        for call in message.get("tool_calls") or ():
            function = call["function"]
            parts.append(template.tool_call_begin)
            parts.append(self._texts.encode(function["name"]))
            parts.append(template.tool_call_middle)
            parts.append(self._texts.encode(function["arguments"]))
            parts.append(template.tool_call_end)
        parts.append(template.im_end)

    def _system_block(self, system: str, tools: tuple[str, ...]) -> bytes:
        key = (system, tools)
        block = self._system_blocks.get(key)
        if block is None:
            template = _template()
            parts = [template.header_by_role["system"], self._texts.encode(system)]
            if tools:
                parts.append(template.tools_begin)
                for tool in tools:
                    parts.append(self._texts.encode(tool))
                    parts.append(template.newline)
                parts.append(template.tools_end)
            parts.append(template.end)
            block = b"".join(parts)
            if len(self._system_blocks) >= 4096:  # a block is about 30 KB
                self._system_blocks.clear()
            self._system_blocks[key] = block
        return block


def text_of(content: Any) -> str:
    """The text of a message's content: a string, a list of parts, or nothing."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    texts = [part if isinstance(part, str) else part.get("text") or part.get("refusal") or "" for part in content]
    return texts[0] if len(texts) == 1 else "\n".join(texts)


class _TextCache:
    """Ids by text. The texts used longest ago are forgotten: what was not asked for during half the cache's size."""

    __slots__ = ("_max_bytes", "_num_young_bytes", "_old", "_young")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._young: dict[str, bytes] = {}
        self._old: dict[str, bytes] = {}
        self._num_young_bytes = 0

    def encode(self, text: str) -> bytes:
        if isinstance(text, TokenText):
            return text.token_ids
        ids = self._young.get(text)
        if ids is not None:
            return ids
        ids = self._old.get(text)
        if ids is None:
            ids = encode(text)
        self._num_young_bytes += len(text) + len(ids) + _BYTES_PER_ENTRY
        if self._num_young_bytes > self._max_bytes // 2:
            self._old, self._young = self._young, {}
            self._num_young_bytes = len(text) + len(ids) + _BYTES_PER_ENTRY
        self._young[text] = ids
        return ids


class _Template:
    """The template's constant pieces as ids."""

    def __init__(self) -> None:
        im_start = pack([SPECIAL_TOKENS["<|im_start|>"]])
        self.im_end = pack([SPECIAL_TOKENS["<|im_end|>"]])
        self.newline = encode("\n")
        self.end = self.im_end + self.newline
        self._im_start = im_start
        self.header_by_role = {role: self.header(role) for role in ("system", "user", "assistant", "tool")}
        self.assistant = self.header_by_role["assistant"]
        self.tools_begin = encode("\n\n# Tools\n\nYou may call these functions:\n<tools>\n")
        self.tools_end = encode(
            "</tools>\n\nFor each call answer with a JSON object within <tool_call></tool_call> tags."
        )
        self.tool_call_begin = encode(TOOL_CALL_BEGIN)
        self.tool_call_middle = encode(TOOL_CALL_MIDDLE)
        self.tool_call_end = encode(TOOL_CALL_END)

    def header(self, role: str) -> bytes:
        """The start of a message of ``role``."""
        return self._im_start + encode(role) + self.newline


@functools.cache
def _template() -> _Template:
    return _Template()


def end_of_turn() -> bytes:
    """The id that ends a reply; it counts as an output token."""
    return _template().im_end
