"""A server seen from outside: who it says it is, what it can do, and what its /metrics say while it works."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from loadgen.context import Conversation
from loadgen.metrics import MetricsPage
from loadgen.room import num_tokens
from loadgen.target import Target, TargetError, one_line, refusal
from loadgen.transports.http import KEEP_ALIVE_S
from mockserver.clock import Clock, WallClock
from traces.record import SERVER_COUNTS, Lag, ServerSample

_NUM_CLOCK_PROBES = 9
_QUESTION_TIMEOUT_S = 30.0
_READY_POLL_S = 0.5
MARGIN = 1.1
"""Texts differ: some have more of the server's tokens than the average one."""
FITTED_MARGIN = 1.01
"""Prompts that were fitted are as long as ours, or a few tokens longer."""
NO_ANSWER = (aiohttp.ClientError, OSError, asyncio.TimeoutError)
"""What a question ends in where nobody answers it."""


@dataclass(eq=False, slots=True)
class ServerView:
    """Asks one server about itself; it has a session of its own, so its questions never delay a call."""

    target: Target
    session: aiohttp.ClientSession
    time_scale: float | None = None
    """Simulated seconds per real second, where the server says so."""
    model_names: tuple[str, ...] = ()
    max_model_len: int | None = None
    tokens_per_token: float = 1.0
    """The server's tokens for each of ours, in the workload's own texts."""
    margin: float = MARGIN
    """How much longer a prompt may turn out there than that says."""
    has_metrics: bool = True
    first_page: MetricsPage | None = None
    last_page: MetricsPage | None = None

    @property
    def is_mock(self) -> bool:
        """Whether the server is one of ours."""
        return self.first_page is not None and self.first_page.simulated_s is not None

    async def find_out(self, *, ready_timeout_s: float = 0.0) -> None:
        """Ask for the models, the time scale and the metrics. Raises TargetError where nobody answers in time."""
        clock = WallClock()
        while True:
            try:
                await self._ask_for_models()
                break
            except TargetError:
                if clock.now() >= ready_timeout_s:
                    raise
            await clock.sleep_until(clock.now() + _READY_POLL_S)
        self.first_page = await self.metrics()

    async def _ask_for_models(self) -> None:
        url = f"{self.target.api_url}/models"
        try:
            async with self.session.get(url, headers=self.target.headers) as response:
                body = await response.read()
                if response.status != 200:
                    raise TargetError(f"{url}: {refusal(response.status, body)}")
                scale = response.headers.get("x-replayrig-time-scale")
                self.time_scale = None if scale is None else float(scale)
                models = orjson.loads(body)["data"]
                self.model_names = tuple(model["id"] for model in models)
                self.max_model_len = models[0].get("max_model_len")
        except NO_ANSWER as error:
            raise TargetError(f"{url}: {one_line(error)}") from None
        except (orjson.JSONDecodeError, AttributeError, KeyError, IndexError, TypeError, ValueError):
            raise TargetError(f"{url}: the answer is not a list of models") from None

    async def reset_prefix_cache(self) -> None:
        """Empty the server's prefix cache. Raises TargetError where it cannot be done."""
        url = f"{self.target.root_url}/reset_prefix_cache"
        try:
            async with self.session.post(url, headers=self.target.headers) as response:
                body = await response.read()
                if response.status == 404:
                    raise TargetError(f"{url}: not found: vLLM has it where VLLM_SERVER_DEV_MODE=1 is set")
                if response.status != 200:
                    raise TargetError(f"{url}: {refusal(response.status, body)}")
                if body.strip() and orjson.loads(body).get("success") is False:
                    raise TargetError(f"{url}: the server did not empty its cache: requests are running")
        except NO_ANSWER as error:
            raise TargetError(f"{url}: {one_line(error)}") from None
        except (orjson.JSONDecodeError, AttributeError):
            return  # answered 200 in words of its own

    async def measure_tokenizer(self, conversations: Iterable[Conversation]) -> bool:
        """How many tokens the server makes of a text, against ours: by its /tokenize; False where it has none."""
        ours = theirs = 0
        for conversation in conversations:
            count = await self._count_tokens(conversation)
            if count is None:
                return False
            theirs += count
            ours += num_tokens(conversation)
        if ours:
            self.tokens_per_token = theirs / ours
        return bool(ours)

    async def _count_tokens(self, conversation: Conversation) -> int | None:
        body: dict[str, Any] = {"messages": conversation.messages}
        if tools := conversation.tools_json():
            body["tools"] = orjson.Fragment(tools)
        answer = await self.tokenize(body)
        count = answer.get("count") if answer is not None else None
        return count if isinstance(count, int) else None

    async def tokenize(self, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """What the server's /tokenize says of ``body``; None where it has none, or refuses."""
        url = f"{self.target.root_url}/tokenize"
        headers = {"content-type": "application/json", **self.target.headers}
        try:
            async with self.session.post(url, data=orjson.dumps(body), headers=headers) as response:
                answer = orjson.loads(await response.read()) if response.status == 200 else None
        except (*NO_ANSWER, orjson.JSONDecodeError):
            return None
        return answer if isinstance(answer, dict) else None

    @property
    def room(self) -> int | None:
        """The model's context in tokens as we count them."""
        if self.max_model_len is None or self.is_mock:
            return self.max_model_len
        return int(self.max_model_len / max(self.tokens_per_token * self.margin, 1.0))

    def expect_our_lengths(self, *, margin: float) -> None:
        """From now on prompts have as many tokens there as we count, up to ``margin``."""
        self.tokens_per_token, self.margin = 1.0, margin

    async def metrics(self) -> MetricsPage | None:
        """The server's /metrics now; None where it has none."""
        if not self.has_metrics:
            return None
        try:
            async with self.session.get(f"{self.target.root_url}/metrics", headers=self.target.headers) as response:
                if response.status != 200:
                    self.has_metrics = False
                    return None
                return MetricsPage(await response.text())
        except NO_ANSWER:
            return None

    async def clock_offset_s(self, clock: Clock) -> float | None:
        """The server's clock less ours, from the probe that was answered fastest; None where it shows no clock."""
        if not self.is_mock:
            return None
        best: tuple[float, float] | None = None
        for _ in range(_NUM_CLOCK_PROBES):
            asked_at = clock.now()
            status = await self._status()
            answered_at = clock.now()
            if status is None:
                return None
            way_s = answered_at - asked_at
            if best is None or way_s < best[0]:
                best = (way_s, status["simulated_s"] - (asked_at + way_s / 2))
        return None if best is None else best[1]

    async def hold_clock(self) -> float | None:
        """Make a server of ours stand still: its clock's instant; None where it does not do that."""
        if not self.is_mock:
            return None
        url = f"{self.target.root_url}/replayrig/clock"
        try:
            async with self.session.put(url, headers=self.target.headers) as response:
                if response.status != 200:
                    return None
                return float(orjson.loads(await response.read())["simulated_s"])
        except (*NO_ANSWER, orjson.JSONDecodeError, asyncio.CancelledError) as error:
            with contextlib.suppress(TargetError):  # it may have heard nevertheless
                await self.release_clock()
            if isinstance(error, asyncio.CancelledError):
                raise
            return None

    async def release_clock(self) -> None:
        """Let its time go on. Raises TargetError where it does not answer."""
        url = f"{self.target.root_url}/replayrig/clock"
        try:
            async with self.session.delete(url, headers=self.target.headers) as response:
                body = await response.read()
                if response.status != 200:
                    raise TargetError(f"{url}: {refusal(response.status, body)}")
        except NO_ANSWER as error:
            raise TargetError(f"{url}: {one_line(error)}") from None

    async def num_requests(self) -> int:
        """Requests that a server of ours has and has not ended; 0 where it does not say."""
        status = await self._status()
        return 0 if status is None else int(status.get("num_requests", 0))

    async def sample(self, clock: Clock) -> ServerSample | None:
        """The server now; None where it does not say enough."""
        if self.is_mock:
            status = await self._status("?evictions")
            if status is None:
                return None
            engine = status["engine"]
            return ServerSample(
                at=clock.now(),
                **{name: engine[name] for name in SERVER_COUNTS},
                evicted_by_agent=status.get("evictions"),
            )
        page = await self.metrics()
        if page is None:
            return None
        self.last_page = page
        return page.sample(clock.now())

    async def _status(self, query: str = "") -> dict[str, Any] | None:
        """What a server of ours says in a millisecond, where its /metrics take thirty of the time it simulates in."""
        url = f"{self.target.root_url}/replayrig/status{query}"
        try:
            async with self.session.get(url, headers=self.target.headers) as response:
                status = orjson.loads(await response.read())
        except (*NO_ANSWER, orjson.JSONDecodeError):
            return None
        return status if isinstance(status, dict) and {"engine", "simulated_s"} <= status.keys() else None

    def lag(self) -> Lag | None:
        """How late the server was, as it said when it was last looked at."""
        return None if self.last_page is None else self.last_page.lag()


def new_session() -> aiohttp.ClientSession:
    """A session for questions; unlike calls they may not take long."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(keepalive_timeout=KEEP_ALIVE_S),
        timeout=aiohttp.ClientTimeout(total=_QUESTION_TIMEOUT_S),
    )
