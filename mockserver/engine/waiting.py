"""Who waits, and who is admitted next."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator

from mockserver.engine.request import Request


def least_urgent(request: Request) -> tuple[int, float, int]:
    """The order of the priority policy, the most urgent first: priority, then arrival."""
    return (request.priority, request.arrived_at, request.sequence)


class WaitingQueue:
    """Requests that wait for admission: arrivals behind each other (fcfs), or the most urgent first (priority)."""

    __slots__ = ("_by_priority", "_heap", "_queue")

    def __init__(self, policy: str) -> None:
        self._by_priority = policy == "priority"
        self._heap: list[tuple[tuple[int, float, int], Request]] = []
        self._queue: OrderedDict[Request, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._queue)

    def add(self, request: Request) -> None:
        """Queue a newcomer."""
        self._queue[request] = None
        if self._by_priority:
            heapq.heappush(self._heap, (least_urgent(request), request))

    def add_first(self, request: Request) -> None:
        """Queue a preempted request: before all others, or by its priority."""
        self.add(request)
        if not self._by_priority:
            self._queue.move_to_end(request, last=False)

    def first(self) -> Request:
        """The next to be admitted."""
        if not self._by_priority:
            return next(iter(self._queue))
        while self._heap[0][1] not in self._queue:
            heapq.heappop(self._heap)
        return self._heap[0][1]

    def pop_first(self) -> None:
        """Take out the next to be admitted."""
        if self._by_priority:
            self.first()
            _, request = heapq.heappop(self._heap)
            del self._queue[request]
        else:
            self._queue.popitem(last=False)

    def remove(self, request: Request) -> None:
        """Take out any request."""
        del self._queue[request]
