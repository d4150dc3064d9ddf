"""What one step computes."""

from __future__ import annotations

from dataclasses import dataclass, field

from mockserver.engine.cost import BatchShape
from mockserver.engine.request import Request


@dataclass(eq=False, slots=True)
class Batch:
    """What one step computes."""

    sampling: list[Request] = field(default_factory=list)
    """Requests that get a token when the step ends, in the scheduler's own order."""
    unfinished: list[tuple[int, Request]] = field(default_factory=list)
    """Requests of which it computes a part only, each after how many of ``sampling``."""
    num_tokens_by_request: dict[Request, int] = field(default_factory=dict)
    """Scheduled tokens of those that have more than one; all others have one, as most of those that decode."""
    admitted: list[Request] = field(default_factory=list)
    resumed: list[Request] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    prompts_done: list[Request] = field(default_factory=list)
    """Those of ``sampling`` that come out of prefill: their token may be their first."""
    shape: BatchShape = field(default_factory=BatchShape)

    @property
    def is_empty(self) -> bool:
        """Whether nobody has any tokens."""
        return not self.sampling and not self.unfinished

    def __contains__(self, request: Request) -> bool:
        return request in self.sampling or any(one is request for _, one in self.unfinished)

    def remove(self, request: Request) -> int:
        """Take out a request that must step back; returns the tokens it had. ``shape`` is the caller's."""
        if request in self.sampling:
            index = self.sampling.index(request)
            del self.sampling[index]
            self.unfinished = [(after - (after > index), one) for after, one in self.unfinished]
            if request in self.prompts_done:
                self.prompts_done.remove(request)
        else:
            self.unfinished = [(after, one) for after, one in self.unfinished if one is not request]
        return self.num_tokens_by_request.pop(request, 1)

    def scheduled(self) -> dict[Request, int]:
        """Everyone's scheduled tokens, in the scheduler's own order."""
        requests = list(self.sampling)
        for after, request in reversed(self.unfinished):
            requests.insert(after, request)
        return {request: self.num_tokens_by_request.get(request, 1) for request in requests}
