"""What a request takes beside its steps: its way to the scheduler, and what its coming costs the engine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEnd:
    """The parts of it, in seconds; all of them are nothing unless a profile says so or a live server showed it."""

    latency_s: float = 0.0
    """Of a request's way to the scheduler, what passes side by side with that of others: sockets, wake-ups."""
    work_s: float = 0.0
    """Work with a request before the scheduler sees it, together with all that are there: parsing."""
    work_per_prompt_token_s: float = 0.0
    """The same for each prompt token, cached or not: tokenising."""
    wakeup_s: float = 0.0
    """By this the first step of an engine that was idle is longer: sleeping processes, cold caches."""
    arrival_s: float = 0.0
    """Each request that arrives holds the engine up by this: the steps that run, else the next one."""

    def work_with(self, num_prompt_tokens: int) -> float:
        """Seconds of work with a request of so many prompt tokens."""
        return self.work_s + self.work_per_prompt_token_s * num_prompt_tokens
