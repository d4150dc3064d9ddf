"""What an agent does about a history that grows: five policies, and what each leaves of the prompt's start.

    system | task | round | round | round | round        a round: what was said, and the tools' answers to it
                                                          tools' schemas belong to the system block and always stay

    truncate      x     x      x     keep   keep          the oldest go, whatever they are: the start is gone
    window       keep  keep    x     keep   keep          as little as possible goes, at every call anew
    keep-prefix  keep  keep    x      x     keep          a quarter of the limit at a time: blocks are hit in between
    summarise    keep  keep  [ a summary ]  keep          costs a call

The summary is asked for in the history as it is, so that call's prompt is in the cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from loadgen.context import Conversation, Message, user_message
from loadgen.room import message_tokens, tools_tokens

ContextPolicyName = Literal["none", "truncate", "summarise", "window", "keep-prefix"]
ASK_FOR_A_SUMMARY = "Sum up what was done and found so far; the messages before this one will be gone."
_FREE_SHARE = 0.25
_WORTH_A_SUMMARY = 2
"""What a summary replaces is at least so many times as long as the summary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPolicy:
    """What happens to a history of more than ``max_tokens``."""

    name: ContextPolicyName
    max_tokens: int
    summary_tokens: int

    def __post_init__(self) -> None:
        for name in ("max_tokens", "summary_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} of a context policy must be at least 1, got {getattr(self, name)}")

    @property
    def summarises(self) -> bool:
        """Whether it costs calls."""
        return self.name == "summarise"

    def excess(self, conversation: Conversation) -> int:
        """Tokens over the limit; none or fewer where it is kept."""
        num_tokens = tools_tokens(conversation.tools) + sum(map(message_tokens, conversation.messages))
        return num_tokens - self.max_tokens

    def cut(self, conversation: Conversation) -> Conversation:
        """``conversation``, or one in its place from which the oldest rounds are gone; the last one always stays."""
        excess = self.excess(conversation)
        if excess <= 0 or self.name in ("none", "summarise"):
            return conversation
        if self.name == "keep-prefix":
            excess += int(self.max_tokens * _FREE_SHARE)
        head, rounds = rounds_of(conversation.messages)
        if self.name == "truncate":
            head, rounds = [], [*([message] for message in head), *rounds]
        num_gone = 0
        while excess > 0 and num_gone < len(rounds) - 1:
            excess -= sum(map(message_tokens, rounds[num_gone]))
            num_gone += 1
        if num_gone == 0:
            return conversation
        kept = [message for one in rounds[num_gone:] for message in one]
        return Conversation(tools=conversation.tools, messages=[*head, *kept])

    def is_worth_a_summary(self, conversation: Conversation) -> bool:
        """Whether the history is over the limit, and has enough in it that a summary can stand for."""
        if self.excess(conversation) <= 0:
            return False
        _, rounds = rounds_of(conversation.messages)
        num_tokens = sum(message_tokens(message) for one in rounds[:-1] for message in one)
        return num_tokens >= _WORTH_A_SUMMARY * self.summary_tokens

    def summarised(self, conversation: Conversation, summary: str) -> Conversation:
        """``conversation`` with ``summary`` in place of all but its start and its last round."""
        head, rounds = rounds_of(conversation.messages)
        return Conversation(tools=conversation.tools, messages=[*head, user_message(summary), *rounds[-1]])


def rounds_of(messages: list[Message]) -> tuple[list[Message], list[list[Message]]]:
    """The start (what was told before anything was answered), and each message after it with the tools' answers."""
    num_head = next((number for number, one in enumerate(messages) if one["role"] == "assistant"), len(messages))
    rounds: list[list[Message]] = []
    for message in messages[num_head:]:
        if message["role"] == "tool" and rounds:
            rounds[-1].append(message)
        else:
            rounds.append([message])
    return messages[:num_head], rounds
