"""How prompts are made for one server: decided before a run, by what the settings ask for and what the server can do.

a mock of ours          our own messages or our own ids: it counts as we do
chat, fitted            each text made longer or shorter by what the server counts
chat, as they are       our own messages, however many tokens they are there
completions             ids that the server knows, one for each of ours
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loadgen import capabilities, recut
from loadgen.call import Transport
from loadgen.config import Settings
from loadgen.context import (
    Conversation,
    assistant_message,
    system_message,
    tool_message,
    tool_texts,
    user_message,
)
from loadgen.fitted_prompts import FittedPrompts
from loadgen.prompt_ids import PromptIds
from loadgen.rehearsal import rehearse
from loadgen.server_view import FITTED_MARGIN, MARGIN, ServerView
from loadgen.shard import Shard
from loadgen.target import Target
from loadgen.token_counts import TokenCounts
from loadgen.transports.fitted import FittedTransport
from loadgen.vocabulary import find_vocabulary
from mockserver.clock import Clock, real_seconds
from traces.trajectory import Trajectory

COMPLETIONS = "completions"
_NUM_MEASURED_TASKS = 3
_FIRST_GUESS = 0.95
"""Texts are cut a little too short at first: filling up takes one count, cutting again takes several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptMaking:
    """What a run needs to make its prompts."""

    target: Target
    """As it can be used."""
    prompt_ids: PromptIds | None = None
    fitted: FittedPrompts | None = None
    notes: tuple[str, ...] = ()

    def around(self, transport: Transport) -> Transport:
        """``transport``, with its prompts fitted on the way where they are to be."""
        return transport if self.fitted is None else FittedTransport(transport, self.fitted)


def for_mock(settings: Settings, target: Target) -> PromptMaking:
    """For a server of ours."""
    return PromptMaking(target=target, prompt_ids=PromptIds() if settings.endpoint == COMPLETIONS else None)


async def for_foreign(
    settings: Settings, server: ServerView, target: Target, tasks: Sequence[Trajectory], *, clock: Clock, shard: Shard
) -> PromptMaking:
    """For any other server, which is asked what it can do. Raises TargetError where it cannot be used."""
    if settings.endpoint == COMPLETIONS:
        vocabulary = await find_vocabulary(server, target)
        prompt_ids = PromptIds(vocabulary)
        target, abilities = await capabilities.find_out(target, clock, prompt_ids)
        server.expect_our_lengths(margin=1.0)
        note = f"prompts are ids, one for each of our tokens, drawn from {len(vocabulary):,} that the server knows"
        return PromptMaking(target=target, prompt_ids=prompt_ids, notes=(abilities.in_words(), note))
    target, abilities = await capabilities.find_out(target, clock)
    words = abilities.in_words()
    size = "how many of its tokens make one of ours is unknown"
    if await server.measure_tokenizer(histories(tasks[:_NUM_MEASURED_TASKS])):
        size = f"{server.tokens_per_token:.3g} of its tokens for each of ours"
    if not settings.fit_prompts:
        return PromptMaking(target=target, notes=(words, size))
    counts = TokenCounts(server=server, target=target)
    found = await counts.find_way()
    if found is None:
        note = "texts are not fitted: the server does not count them"
        return PromptMaking(target=target, notes=(words, size, note))
    name, count = found
    fitted = FittedPrompts(
        count=count,
        seed=settings.seed,
        share=min(1.0, _FIRST_GUESS / server.tokens_per_token),
        answers_are_live=settings.history == "live",
    )
    # Live answers are in nobody's count before they are there.
    server.expect_our_lengths(margin=MARGIN if fitted.answers_are_live else FITTED_MARGIN)
    started_at = real_seconds()
    await _fit_all(fitted, settings, shard, tasks, max_model_len=server.room)
    note = (
        f"{fitted.num_pieces:,} texts fitted by {name}: {counts.num_asked:,} counts in"
        f" {real_seconds() - started_at:.1f} s"
    )
    if fitted.num_left:
        note += f"; {fitted.num_left:,} stay as they are, which the server would not count"
    return PromptMaking(target=target, fitted=fitted, notes=(words, size, note))


async def _fit_all(
    fitted: FittedPrompts, settings: Settings, shard: Shard, tasks: Sequence[Trajectory], *, max_model_len: int | None
) -> None:
    """Fit every text that the run will send, so that no call waits for it."""
    if settings.live and shard.is_first:
        sys.stderr.write("fitting prompts to the server's tokenizer (--no-fit-prompts leaves them as they are)\n")
    rehearsed = await asyncio.to_thread(
        rehearse,
        tasks,
        architecture=settings.find_architecture(),
        harness=settings.harness(is_our_model=False, shard=shard),
        tool_times=settings.tool_times(),
        max_model_len=max_model_len,
    )
    async with asyncio.TaskGroup() as group:
        for conversation, num_messages in rehearsed.items():
            group.create_task(fitted.twin(conversation, num_messages))


def histories(tasks: Sequence[Trajectory]) -> Iterator[Conversation]:
    """Every text of the tasks, as one agent's history each."""
    for task in tasks:
        conversation = Conversation(tools=tool_texts(recut.all_tools(task)), messages=[])
        if task.system_prompt:
            conversation.add(system_message(task.system_prompt))
        conversation.add(user_message(task.user_prompt))
        for turn in recut.steps(task):
            if turn.user_message is not None:
                conversation.add(user_message(turn.user_message))
            conversation.add(assistant_message(turn))
            for call in turn.tool_calls:
                conversation.add(tool_message(call.call_id, call.result))
        yield conversation
