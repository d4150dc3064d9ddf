"""What all endpoints of one server share: the machine it pretends to be, its clock, its names and its books."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import secrets
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from aiohttp import web

from mockserver.api.errors import ApiError, engine_busy
from mockserver.api.faults import Faults, StreamFault, parsed_fault
from mockserver.api.http import EventStream, HttpRequest, event_stream
from mockserver.api.metrics import Metrics
from mockserver.api.replies import Reply
from mockserver.api.settings import ServerSettings
from mockserver.api.status import RecentRequests
from mockserver.clock import Clock
from mockserver.driver import Generation
from mockserver.engine.engine import RequestTooLongError
from mockserver.engine.request import Request
from mockserver.filler import filler
from mockserver.lag import LagMeter
from mockserver.node import build_driver, build_encoder
from mockserver.owners import BlockOwners
from mockserver.tokens import num_tokens

VLLM_VERSION = "0.32.0"
"""The version whose answers this server gives: see docs/compatibility.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What a request says about when and where it is to run."""

    priority: int = 0
    rank: int | None = None
    session_id: str | None = None


def placement_of(headers: Mapping[str, str], *, priority: int, session_id: str | None) -> Placement:
    """Headers, which routers set, and the body's fields, which they override or fill in."""
    return Placement(
        priority=_number(headers.get("X-Vllm-Priority"), priority) or 0,
        rank=_number(headers.get("X-data-parallel-rank"), None),
        session_id=session_id or headers.get("X-Session-ID"),
    )


def _number(text: str | None, default: int | None) -> int | None:
    try:
        return default if text is None else int(text)
    except ValueError:
        return default


def load_report(request: web.BaseRequest, machine: Machine) -> dict[str, str]:
    """The header with the machine's load, for balancers that ask for it (ORCA)."""
    wanted = request.headers.get("endpoint-load-metrics-format", "").lower()
    if wanted not in ("text", "json"):
        return {}
    snapshot = machine.driver.snapshot()
    load = {
        "num_requests_waiting": float(snapshot.num_waiting),
        "kv_cache_usage_perc": snapshot.num_used_blocks / snapshot.num_blocks,
    }
    if wanted == "json":
        return {"endpoint-load-metrics": f"JSON {json.dumps({'named_metrics': load})}"}
    named = ", ".join(f"named_metrics.{name}={value}" for name, value in load.items())
    return {"endpoint-load-metrics": f"TEXT {named}"}


_REMEMBERED_TOKENS = 1_000_000
"""Tokens of prompts that even a server with a small KV cache remembers; others remember twice their cache's."""
_REMEMBERED_CHAINS = 200_000
"""Chains of blocks whose sessions a server that runs for months remembers."""


class Machine:
    """One engine with its driver, and what is needed to talk about it in vLLM's dialect."""

    def __init__(self, settings: ServerSettings, clock: Clock) -> None:
        profile, config = settings.resolve()
        self.settings = settings
        self.profile = profile
        self.config = config
        self.clock = clock
        self.driver = build_driver(settings, clock)
        self.encoder = build_encoder(settings, min_tokens=_REMEMBERED_TOKENS)
        self.model_names = settings.model_names()
        self.max_model_len = min(config.max_model_len, config.num_kv_tokens)
        """The context; a cache too small for the model's makes it smaller, as vLLM's ``--max-model-len auto`` does."""
        digest = hashlib.sha256(repr((settings.profile, config)).encode()).hexdigest()
        self.fingerprint = f"vllm-{VLLM_VERSION}-{digest[:8]}"
        self.lag = LagMeter()
        """How late tokens were written to their sockets, in simulated seconds."""
        self.metrics = Metrics(
            self.model_names[0],
            self.max_model_len,
            config,
            num_ranks=len(self.driver.engines),
            snapshots=lambda: [engine.snapshot() for engine in self.driver.engines],
            lag=self.lag.summary,
            now=clock.now,
            faults=lambda: self.faults.num_by_kind,
        )
        self.driver.on_step = self.metrics.count_step
        self.faults = Faults(map(parsed_fault, settings.fault), seed=settings.seed, clock=clock)
        self.recent = RecentRequests()
        self.owners = BlockOwners(_REMEMBERED_CHAINS)
        self.door = asyncio.Event()
        """Open unless the engine sleeps or is paused: requests wait here."""
        self.door.set()
        self.is_asleep = False
        self.is_paused = False
        self.num_in_flight = 0
        """Answers that have begun and not ended."""
        self.live_request_ids: set[str] = set()
        """The engine's requests of these answers."""
        self.end_of_hold: asyncio.TimerHandle | None = None
        """Releases the clock, where a client holds it."""
        self._numbers = itertools.count()
        self._scale_header = {} if clock.rate == 1.0 else {"x-replayrig-time-scale": f"{clock.rate:g}"}

    def headers(self, request: web.BaseRequest) -> dict[str, str]:
        """Headers of every answer to ``request``."""
        headers = {"Server": "uvicorn", "Vary": "Origin", **self._scale_header}
        if self.settings.enable_request_id_headers:
            headers["x-request-id"] = request.headers.get("X-Request-Id") or secrets.token_hex(16)
        return headers

    def event_stream(self, request: web.BaseRequest) -> AbstractAsyncContextManager[EventStream]:
        """An open stream of events as the answer to ``request``."""
        fault = request.fault if isinstance(request, HttpRequest) else None
        return event_stream(
            request,
            self.headers(request),
            comment_interval_s=self.settings.sse_keep_alive_interval,
            interruption=None if fault is None else StreamFault(fault, self.faults),
        )

    def check_admission(self, num_new: int) -> None:
        """Refuse a request when the server holds as many as it may."""
        limit = self.settings.max_num_queued_reqs
        if limit is None:
            return
        snapshot = self.driver.snapshot()
        if snapshot.num_running + snapshot.num_waiting + num_new > limit:
            self.metrics.http.num_rejected += num_new
            raise engine_busy()

    def next_number(self) -> int:
        """A number that no other request of this server has."""
        return next(self._numbers)

    def warm_up(self) -> None:
        """Load what the first request would otherwise wait for: the tokenizer and the words of the filler."""
        self.encoder.chat([{"role": "user", "content": filler("warm-up", 1)}])

    def start(
        self,
        prompt: bytes,
        reply: Reply,
        *,
        request_id: str,
        max_tokens: int,
        salt: str = "",
        placement: Placement,
        reads_cache: bool = True,
        guided: bool = False,
        watch: int = 0,
    ) -> Generation:
        """Hand a reply to the engine, which decides when its tokens appear; ``watch`` as in ``Driver.submit``."""
        num_output_tokens = num_tokens(reply.token_ids)
        request = Request(
            request_id=f"{request_id}-{self.next_number()}",
            num_prompt_tokens=num_tokens(prompt),
            num_output_tokens=num_output_tokens,
            # Without a cache nobody asks which blocks of two prompts are the same.
            path=self.encoder.path(prompt + reply.token_ids, salt=salt) if self.config.enable_prefix_caching else (),
            max_tokens=max(max_tokens, num_output_tokens),
            finish_reason=reply.finish_reason,
            priority=placement.priority,
            skip_reading_prefix_cache=not reads_cache,
            guided=guided,
        )
        try:
            generation = self.driver.submit(request, watch=watch, rank=placement.rank, session_id=placement.session_id)
        except (RequestTooLongError, ValueError) as error:
            raise ApiError(str(error)) from None
        self.live_request_ids.add(request.request_id)
        if placement.session_id is not None:
            self.owners.note(request.path, placement.session_id)
        return generation

    def leave(self, generation: Generation) -> None:
        """Nobody wants this any more; what has not ended is aborted, and its blocks are free at once."""
        self.live_request_ids.discard(generation.request_id)
        if generation.finish_reason is None:
            self.driver.abort(generation.request_id)
        self.recent.note(generation)

    def num_created_cache_tokens(self, generation: Generation) -> int:
        """Prompt tokens that this request put into the prefix cache."""
        if not self.config.enable_prefix_caching:
            return 0
        block_size = self.config.block_size
        num_whole = generation.request.num_prompt_tokens // block_size * block_size
        return max(0, num_whole - generation.num_cached_tokens)
