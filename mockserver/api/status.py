"""The status page at ``/`` and what it shows: queue, batch, cache, and the requests that ended last."""

from __future__ import annotations

import dataclasses
import functools
from collections import deque
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

import orjson
from aiohttp import web

from mockserver.api.http import json_response
from mockserver.driver import Generation

if TYPE_CHECKING:
    from mockserver.api.machine import Machine

_NUM_RECENT = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentRequest:
    """A request that has ended; durations are simulated seconds."""

    request_id: str
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int
    queue_s: float | None
    ttft_s: float | None
    e2e_s: float | None
    num_preemptions: int
    finish_reason: str


class RecentRequests:
    """The last requests that ended, the newest first."""

    def __init__(self) -> None:
        self.rows: deque[RecentRequest] = deque(maxlen=_NUM_RECENT)

    def note(self, generation: Generation) -> None:
        """A request has ended."""

        def since_arrival(at: float | None) -> float | None:
            return None if at is None else at - generation.arrived_at

        self.rows.appendleft(
            RecentRequest(
                request_id=generation.request_id,
                num_prompt_tokens=generation.request.num_prompt_tokens,
                num_cached_tokens=generation.num_cached_tokens,
                num_output_tokens=generation.num_output_tokens,
                queue_s=since_arrival(generation.scheduled_at),
                ttft_s=since_arrival(generation.first_token_at),
                e2e_s=since_arrival(generation.last_token_at),
                num_preemptions=generation.num_preemptions,
                finish_reason=generation.finish_reason or "abort",
            )
        )


async def page(_request: web.BaseRequest, _machine: Machine) -> web.StreamResponse:
    """``/`` for browsers; others get vLLM's answer, which has nothing there."""
    response = web.Response(body=_page())
    response.headers["Content-Type"] = "text/html; charset=utf-8"
    return response


@functools.cache
def _page() -> bytes:
    return resources.files("mockserver.api").joinpath("page", "status.html").read_bytes()


async def status(request: web.BaseRequest, machine: Machine) -> web.StreamResponse:
    """``/replayrig/status``: the page's data; ``?evictions``: and whose blocks were evicted since that was asked."""
    wants_evictions = "evictions" in request.query
    return json_response(
        orjson.dumps(
            {
                "model": machine.model_names[0],
                "profile": machine.profile.name,
                "time_scale": machine.clock.rate,
                "simulated_s": machine.clock.now(),
                "num_requests": len(machine.live_request_ids),
                "max_num_seqs": machine.config.max_num_seqs * len(machine.driver.engines),
                "lag_p99_s": machine.lag.summary().p99_s,
                "engine": dataclasses.asdict(machine.driver.snapshot()),
                "recent": [dataclasses.asdict(row) for row in machine.recent.rows],
                **({"evictions": machine.owners.take_evictions(machine.driver.engines)} if wants_evictions else {}),
            }
        )
    )
