"""Which data-parallel rank a request goes to. Each rank has its own scheduler, pool and prefix cache.

vLLM's own balancer looks at load only, so the turns of one agent scatter over the ranks and each rank computes their
shared prefix anew, unless something else pins them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from mockserver.engine.engine import Engine
from mockserver.engine.request import Request

_MAX_SESSIONS = 100_000  # sessions remembered for affinity; the longest unused is forgotten
# SGLang's cache-aware router: beyond this imbalance load decides, below this share of hits a prefix is no reason.
_IMBALANCE_REQUESTS = 64
_IMBALANCE_RATIO = 1.5
_MIN_HIT_SHARE = 0.3


class Router:
    """Chooses ranks by one policy; keeps what the policy has to remember."""

    def __init__(self, policy: str, engines: Sequence[Engine]) -> None:
        if policy not in ROUTING_POLICIES:
            raise ValueError(f"routing policy must be one of {', '.join(ROUTING_POLICIES)}, got {policy!r}")
        self.engines = engines
        self.rank_by_session: OrderedDict[str, int] = OrderedDict()
        self._choose = ROUTING_POLICIES[policy]
        self._next_rank = 0

    def rank_of(self, request: Request, session_id: str | None = None) -> int:
        """The rank for a request; ``session_id`` says which requests belong together."""
        if len(self.engines) == 1:
            return 0
        return self._choose(self, request, session_id)

    def lightest(self, load: Callable[[Engine], float]) -> int:
        """The rank with the least load; ties rotate."""
        num_ranks = len(self.engines)
        first = self._next_rank
        rank = min(
            ((first + offset) % num_ranks for offset in range(num_ranks)), key=lambda rank: load(self.engines[rank])
        )
        self._next_rank = (rank + 1) % num_ranks
        return rank


def _round_robin(router: Router, request: Request, session_id: str | None) -> int:
    return router.lightest(lambda _: 0.0)


def _least_loaded(router: Router, request: Request, session_id: str | None) -> int:
    return router.lightest(lambda engine: engine.num_requests)


def _vllm(router: Router, request: Request, session_id: str | None) -> int:
    """Waiting plus running, and six times the waiting where the pool is more than half full (core_client.py)."""

    def score(engine: Engine) -> float:
        num_waiting = len(engine.scheduler.waiting)
        pool = engine.scheduler.pool
        return engine.num_requests + num_waiting * 6 * max(0.0, pool.num_used / pool.num_blocks - 0.5)

    return router.lightest(score)


def _session_affinity(router: Router, request: Request, session_id: str | None) -> int:
    """All requests of a session where its first one went."""
    if session_id is None:
        return _vllm(router, request, session_id)
    rank = router.rank_by_session.get(session_id)
    if rank is None:
        rank = router.rank_by_session[session_id] = _vllm(router, request, session_id)
        if len(router.rank_by_session) > _MAX_SESSIONS:
            router.rank_by_session.popitem(last=False)
    router.rank_by_session.move_to_end(session_id)
    return rank


def _prefix_aware(router: Router, request: Request, session_id: str | None) -> int:
    """Where most of its prompt is cached, unless that rank has far more to do than another."""
    loads = [engine.num_requests for engine in router.engines]
    is_unbalanced = max(loads) - min(loads) > _IMBALANCE_REQUESTS and max(loads) > _IMBALANCE_RATIO * min(loads)
    if not is_unbalanced:
        hits = [engine.num_cached_tokens_of(request) for engine in router.engines]
        best = max(hits)
        if best > _MIN_HIT_SHARE * request.num_prompt_tokens:
            return min((rank for rank, hit in enumerate(hits) if hit == best), key=loads.__getitem__)
    return _least_loaded(router, request, session_id)


ROUTING_POLICIES: dict[str, Callable[[Router, Request, str | None], int]] = {
    "vllm": _vllm,
    "round-robin": _round_robin,
    "least-loaded": _least_loaded,
    "prefix-aware": _prefix_aware,
    "session-affinity": _session_affinity,
}
