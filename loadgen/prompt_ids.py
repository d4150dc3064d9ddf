"""Prompts as token ids: exactly as long as the trace's on any server.

The ids of our own chat template are what a mock of ours makes of the messages, so its blocks are those of the chat
endpoint. A server of another vocabulary gets other ids, one for each of ours, so that lengths stay:

    ours      a  b  c  d        each id is drawn by all of ours up to it, so two prompts that begin alike
    theirs    f(a) f(ab) ..     begin alike there, and share nothing from the first difference on

That is what a prefix cache compares, and one vocabulary may be much smaller than the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import orjson

from loadgen.context import TOKEN_IDS, Conversation
from mockserver import tokens
from mockserver.prompt import PromptEncoder

_MULTIPLIER, _MODULUS = 48_271, 2_147_483_647
"""Lehmer's generator: products stay small, and a difference never vanishes by multiplying."""


@dataclass(eq=False, slots=True)
class _Known:
    """The ids of a conversation so far."""

    num_messages: int = 0
    num_ids: int = 0
    text: bytearray = field(default_factory=bytearray)
    """Comma-separated."""
    state: int = 1
    """Drawn by all ids so far."""


class PromptIds:
    """Makes ids of conversations; only messages that are new since the last call cost anything."""

    def __init__(self, vocabulary: Sequence[int] | None = None) -> None:
        """``vocabulary``: ids that the server knows; None: it knows ours."""
        if vocabulary is not None and not vocabulary:
            raise ValueError("a vocabulary must hold at least one id")
        self._vocabulary = vocabulary
        self._encoder = PromptEncoder(block_size=16)  # it only tokenises here: no block is ever looked at
        self._to_assistant = self._encoder.chat(())
        self._line_end = tokens.encode("\n")
        self._known: WeakKeyDictionary[Conversation, _Known] = WeakKeyDictionary()

    def of(self, conversation: Conversation) -> tuple[bytes, int]:
        """The prompt of ``conversation``, comma-separated, and how many ids it has."""
        known = self._known.get(conversation)
        if known is None:
            known = self._known[conversation] = _Known()
        self._extend(known, conversation)
        opening, _ = self._translated(self._to_assistant, known.state)
        ids = b"%b,%b" % (bytes(known.text), opening) if known.text else opening
        return ids, known.num_ids + tokens.num_tokens(self._to_assistant)

    def _extend(self, known: _Known, conversation: Conversation) -> None:
        messages = conversation.messages
        tools = conversation.tools if known.num_messages == 0 else ()
        first = known.num_messages
        for number in range(first, len(messages)):
            generated = messages[number].get(TOKEN_IDS)
            if generated:  # as the server said it: its own blocks are hit
                self._append(known, self._encoder.chat(messages[first:number], tools, add_generation_prompt=False))
                self._append(known, self._to_assistant)
                self._append_generated(known, generated)
                self._append(known, self._line_end)
                first, tools = number + 1, ()
        self._append(known, self._encoder.chat(messages[first:], tools, add_generation_prompt=False))
        known.num_messages = len(messages)

    def _append(self, known: _Known, own_ids: bytes) -> None:
        if own_ids:
            text, known.state = self._translated(own_ids, known.state)
            known.text += b",%b" % text if known.text else text
            known.num_ids += tokens.num_tokens(own_ids)

    @staticmethod
    def _append_generated(known: _Known, ids: Sequence[int]) -> None:
        for token_id in ids:
            known.state = (known.state * _MULTIPLIER + token_id + 1) % _MODULUS
        known.text += b",%b" % orjson.dumps(ids)[1:-1]
        known.num_ids += len(ids)

    def _translated(self, own_ids: bytes, state: int) -> tuple[bytes, int]:
        ids = tokens.unpack(own_ids)
        vocabulary = self._vocabulary
        if vocabulary is None:
            return orjson.dumps(ids)[1:-1], state
        size = len(vocabulary)
        theirs = []
        for token_id in ids:
            state = (state * _MULTIPLIER + token_id + 1) % _MODULUS
            theirs.append(vocabulary[state % size])
        return orjson.dumps(theirs)[1:-1], state
