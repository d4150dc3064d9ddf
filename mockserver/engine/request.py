"""A request as the scheduler sees it: counts, blocks, and where it stands. Its tokens are known by their path only."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from mockserver.engine.blocks import BlockTable
from mockserver.engine.chains import BlockPath


class Status(Enum):
    """Where a request stands."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


@dataclass(eq=False, slots=True, kw_only=True)
class Request:
    """One completion to be computed. The engine owns it from ``Engine.add`` on; others only read."""

    request_id: str
    num_prompt_tokens: int
    num_output_tokens: int
    """How many tokens it will generate: the mock knows its replies beforehand."""
    path: BlockPath
    """Content addresses of the full blocks of prompt and output together."""
    max_tokens: int | None = None
    """The limit the scheduler may foresee; None: ``num_output_tokens``. A request that ends below it (EOS, a stop
    token) ends by surprise, which costs asynchronous scheduling one more slot."""
    finish_reason: str = "length"
    """Why it ends when it ends by itself; ``abort`` once it was aborted."""
    priority: int = 0
    """Lower runs earlier, under the priority policy."""
    skip_reading_prefix_cache: bool = False
    guided: bool = False
    """A grammar masks its tokens, which takes time."""
    watched: bool = False
    """Somebody reads its tokens as they appear, so time must not skip over them."""

    # What the engine keeps; instants are simulated seconds.
    table: BlockTable = field(init=False)
    status: Status = field(init=False, default=Status.WAITING)
    sequence: int = field(init=False, default=0)
    """Order of arrival; settles equal priorities and arrival times."""
    num_tokens: int = field(init=False)
    """Prompt and the output so far."""
    final_num_tokens: int = field(init=False)
    limit_num_tokens: int = field(init=False)
    num_computed_tokens: int = field(init=False, default=0)
    """Tokens whose KV is written, or scheduled to be."""
    steady_until: int = field(init=False, default=0)
    """While fewer tokens are computed, decoding takes one after the other and nothing else: no block, no end."""
    num_placeholders: int = field(init=False, default=0)
    """Output tokens in flight: scheduled, not yet known (asynchronous scheduling)."""
    num_cached_tokens: int = field(init=False, default=0)
    """Prompt tokens found in the cache at the first admission."""
    num_preemptions: int = field(init=False, default=0)
    arrived_at: float = field(init=False, default=0.0)
    scheduled_at: float | None = field(init=False, default=None)
    first_token_at: float | None = field(init=False, default=None)
    last_token_at: float | None = field(init=False, default=None)
    ended_at: float | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.num_prompt_tokens < 1:
            raise ValueError(f"num_prompt_tokens must be at least 1, got {self.num_prompt_tokens}")
        if self.num_output_tokens < 1:
            raise ValueError(f"num_output_tokens must be at least 1, got {self.num_output_tokens}")
        max_tokens = self.num_output_tokens if self.max_tokens is None else self.max_tokens
        if max_tokens < self.num_output_tokens:
            raise ValueError(
                f"max_tokens must be at least num_output_tokens {self.num_output_tokens}, got {max_tokens}"
            )
        self.table = BlockTable(self.path)
        self.num_tokens = self.num_prompt_tokens
        self.final_num_tokens = self.num_prompt_tokens + self.num_output_tokens
        self.limit_num_tokens = self.num_prompt_tokens + max_tokens

    def give_up(self, at: float) -> None:
        """End a request that no scheduler has seen yet."""
        self.status = Status.FINISHED
        self.finish_reason = "abort"
        self.ended_at = at

    @property
    def num_generated_tokens(self) -> int:
        """Output tokens so far."""
        return self.num_tokens - self.num_prompt_tokens

    @property
    def is_finished(self) -> bool:
        """Ended by itself or aborted."""
        return self.status is Status.FINISHED
