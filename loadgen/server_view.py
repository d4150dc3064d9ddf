"""A server seen from outside: who it says it is, and what its /metrics say while it works."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import aiohttp
import orjson

from loadgen.transports.http import Target, refusal
from mockserver.clock import Clock
from traces.record import Lag, ServerSample

_NUM_CLOCK_PROBES = 9
_PROBE_TIMEOUT_S = 30.0
_OWN_PREFIX = "replayrig:"
_QUANTILE_KEYS = {"p50_s": "0.5", "p99_s": "0.99", "max_s": "1"}


class TargetError(Exception):
    """A server cannot be used as a target; the text says why."""


@dataclass(eq=False, slots=True)
class ServerView:
    """Asks one server about itself; it has a session of its own, so its questions never delay a call."""

    target: Target
    session: aiohttp.ClientSession
    time_scale: float | None = None
    """Simulated seconds per real second, where the server says so."""
    model_names: tuple[str, ...] = ()
    max_model_len: int | None = None
    has_metrics: bool = True
    _shows_simulated_time: bool = False
    _last: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_mock(self) -> bool:
        """Whether the server is one of ours."""
        return self.time_scale is not None or self._shows_simulated_time

    async def find_out(self) -> None:
        """Ask for the models, the time scale and the metrics. Raises TargetError where nobody answers."""
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
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise TargetError(f"{url}: {type(error).__name__}: {' '.join(str(error).split())}") from None
        except (orjson.JSONDecodeError, KeyError, IndexError, TypeError, ValueError):
            raise TargetError(f"{url}: the answer is not a list of models") from None
        self._shows_simulated_time = f"{_OWN_PREFIX}simulated_seconds" in await self.metrics()

    async def metrics(self) -> dict[str, float]:
        """The server's metrics by name (with labels where one name has several); empty where it has none."""
        if not self.has_metrics:
            return {}
        try:
            async with self.session.get(f"{self.target.root_url}/metrics", headers=self.target.headers) as response:
                if response.status != 200:
                    self.has_metrics = False
                    return {}
                return parse_metrics(await response.text())
        except (aiohttp.ClientError, OSError, TimeoutError):
            return {}

    async def clock_offset_s(self, clock: Clock) -> float | None:
        """The server's clock less ours, from the probe that was answered fastest; None where it shows no clock."""
        best: tuple[float, float] | None = None
        for _ in range(_NUM_CLOCK_PROBES):
            asked_at = clock.now()
            metrics = await self.metrics()
            answered_at = clock.now()
            shown = metrics.get(f"{_OWN_PREFIX}simulated_seconds")
            if shown is None:
                return None
            way = answered_at - asked_at
            if best is None or way < best[0]:
                best = (way, shown - (asked_at + way / 2))
        return None if best is None else best[1]

    async def sample(self, clock: Clock) -> ServerSample | None:
        """The server now; None where its metrics do not say enough."""
        metrics = await self.metrics()
        values = {}
        for name in _SAMPLE_FIELDS:
            value = metrics.get(_OWN_PREFIX + name, metrics.get(f"{_OWN_PREFIX}{_metric_of(name)}"))
            if value is None:
                return None
            values[name] = value if name.endswith("_s") else int(value)
        self._last = metrics
        return ServerSample(at=clock.now(), **values)  # type: ignore[arg-type]  # the names say which are whole numbers

    def lag(self) -> Lag | None:
        """How late the server was, as it said when it was last looked at."""
        values = {
            name: self._last.get(f'{_OWN_PREFIX}lag_seconds{{quantile="{quantile}"}}')
            for name, quantile in _QUANTILE_KEYS.items()
        }
        if any(value is None for value in values.values()):
            return None
        num_samples = int(self._last.get(f"{_OWN_PREFIX}lag_seconds_count", 0))
        return Lag(num_samples=num_samples, **values)  # type: ignore[arg-type]  # none is None here


def parse_metrics(text: str) -> dict[str, float]:
    """Values of a Prometheus text by ``name`` where it has no labels or all series' sum, and by ``name{labels}``."""
    values: dict[str, float] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        series, _, number = line.rpartition(" ")
        try:
            value = float(number)
        except ValueError:
            continue
        name = series.partition("{")[0]
        if name != series:
            values[series] = value
        values[name] = values.get(name, 0.0) + value
    return values


def _metric_of(name: str) -> str:
    """A field's metric in Prometheus' style: counters end in _total, durations in _seconds."""
    return name.removesuffix("_s") + "_seconds_total" if name.endswith("_s") else f"{name}_total"


_SAMPLE_FIELDS = tuple(one.name for one in fields(ServerSample) if one.name != "at")


def new_session() -> aiohttp.ClientSession:
    """A session for questions; unlike calls they may not take long."""
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_PROBE_TIMEOUT_S))
