"""The rows of the comparison: which numbers are shown, in which unit, and which direction is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reports import measure
from reports.numbers import Distribution, Numbers
from traces.record import Lag

PERCENTILES = ("p50", "p90", "p99")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One number of a run, or three percentiles of one metric, as a row shows it."""

    key: str
    group: str
    label: str
    unit: str
    get: Callable[[Numbers], Distribution | float | None]
    scale: float = 1.0
    """What the value is multiplied by to be in ``unit``."""
    better: str | None = None
    """``lower``, ``higher``, or None where neither is better by itself."""
    is_spread: bool = False
    """Whether ``get`` gives a distribution, of which the percentiles are shown."""
    is_brief: bool = True
    """Whether a terminal shows it too; a page shows everything."""

    @property
    def title(self) -> str:
        """Label and unit, as the head of a row."""
        return f"{self.label} ({self.unit})" if self.unit else self.label

    def values(self, numbers: Numbers) -> tuple[float | None, ...]:
        """One value, or one for each of ``PERCENTILES``, in ``unit``."""
        value = self.get(numbers)
        if isinstance(value, Distribution):
            return tuple(getattr(value, name) * self.scale for name in PERCENTILES)
        if value is None:
            return (None,) * (len(PERCENTILES) if self.is_spread else 1)
        return (value * self.scale,)


def _spread(
    key: str, group: str, label: str, unit: str, *, better: str | None = "lower", scale: float = 1.0, brief: bool = True
) -> Metric:
    return Metric(
        key=key,
        group=group,
        label=label,
        unit=unit,
        get=lambda numbers: getattr(numbers, key),
        scale=scale,
        better=better,
        is_spread=True,
        is_brief=brief,
    )


def _single(
    key: str,
    group: str,
    label: str,
    unit: str = "",
    *,
    better: str | None = None,
    scale: float = 1.0,
    brief: bool = True,
) -> Metric:
    return Metric(
        key=key,
        group=group,
        label=label,
        unit=unit,
        get=lambda numbers: getattr(numbers, key),
        scale=scale,
        better=better,
        is_brief=brief,
    )


def _path_share(part: str, label: str) -> Metric:
    def get(numbers: Numbers) -> float | None:
        shares = numbers.path_shares
        return None if shares is None else measure.ratio(getattr(shares, part), shares.total_s)

    key = f"{part.removesuffix('_s')}_share"
    return Metric(key=key, group="Critical path", label=label, unit="%", get=get, scale=100, is_brief=False)


def _lag(key: str, label: str) -> Metric:
    def get(numbers: Numbers) -> float | None:
        lag: Lag | None = getattr(numbers, key)
        return None if lag is None else lag.p99_s

    return Metric(key=key, group="Trust", label=label, unit="s", get=get, better="lower")


def _shape(part: str, label: str, unit: str = "", *, scale: float = 1.0) -> Metric:
    return Metric(
        key=f"{part}_shape",
        group="One task",
        label=label,
        unit=unit,
        get=lambda numbers: getattr(numbers.shape, part),
        scale=scale,
        is_spread=True,
        is_brief=False,
    )


METRICS: tuple[Metric, ...] = (
    _single("makespan_s", "Tasks", "Makespan", "s", better="lower"),
    _single("tasks_per_hour", "Tasks", "Tasks per hour", better="higher"),
    _spread("task_time", "Tasks", "Task time", "s"),
    _spread("ttft", "Calls", "TTFT", "s"),
    _spread("tpot", "Calls", "TPOT", "ms", scale=1000),
    _spread("itl", "Calls", "ITL", "ms", scale=1000),
    _spread("e2e", "Calls", "E2E", "s"),
    _spread("latency_from_schedule", "Calls", "Latency from schedule", "s", brief=False),
    _spread("queue_time", "Calls", "Queue time", "s", brief=False),
    _single("num_calls", "Calls", "Calls"),
    _single("goodput", "Calls", "Goodput", "calls/s", better="higher"),
    _single("goodput_attainment", "Calls", "Goodput attainment", "%", better="higher", scale=100),
    _shape("calls", "Calls per task"),
    _shape("agents", "Agents per task"),
    _shape("tokens", "Tokens per task"),
    _shape("parallelism", "Calls at once"),
    _shape("context", "Context of an agent", "tokens"),
    _shape("kv_bytes", "KV of an agent", "GB", scale=1e-9),
    _single("num_prompt_tokens", "Tokens", "Prompt tokens", better="lower", brief=False),
    _single("num_computed_tokens", "Tokens", "Prompt tokens computed", better="lower"),
    _single("num_cached_tokens", "Tokens", "Prompt tokens from the cache"),
    _single("hit_rate", "Tokens", "Hit rate", "%", better="higher", scale=100),
    _single("reusable_hit_rate", "Tokens", "Hit rate possible, at least", "%", scale=100, brief=False),
    _single("num_output_tokens", "Tokens", "Output tokens", brief=False),
    _single("output_throughput", "Tokens", "Output throughput", "tokens/s", better="higher"),
    _single("computed_input_throughput", "Tokens", "Input throughput, computed", "tokens/s", brief=False),
    _single("cached_input_throughput", "Tokens", "Input throughput, cached", "tokens/s", brief=False),
    _single("gpu_busy_share", "Server", "GPU busy", "%", scale=100),
    _single("batch_occupancy", "Server", "Batch occupancy", "%", scale=100),
    _single("num_evicted_blocks", "Server", "Evicted blocks", better="lower"),
    _single("num_preemptions", "Server", "Preemptions", better="lower"),
    _single("tool_share", "Critical path", "Tool share", "%", scale=100),
    _path_share("queue_s", "Queue share"),
    _path_share("prefill_s", "Prefill share"),
    _path_share("decode_s", "Decode share"),
    _path_share("harness_s", "Harness share"),
    _lag("lag", "Server lag, p99"),
    _lag("send_lag", "Send lateness, p99"),
    _single("num_prompts_off", "Trust", "Prompts of another length", better="lower"),
    Metric(
        key="num_failed",
        group="Trust",
        label="Failed calls",
        unit="",
        get=lambda numbers: numbers.num_calls - numbers.num_calls_succeeded,
        better="lower",
    ),
)


def shown_metrics(runs: Sequence[Numbers]) -> list[Metric]:
    """The metrics that at least one of the runs has."""
    return [m for m in METRICS if any(value is not None for run in runs for value in m.values(run))]


def format_value(value: float | None) -> str:
    """Four significant digits at most; millions and billions by name; a dash for what is unknown."""
    if value is None or math.isnan(value):
        return "-"
    size = abs(value)
    for limit, divisor, name in ((1e9, 1e9, " G"), (1e6, 1e6, " M")):
        if size >= limit:
            return f"{value / divisor:,.{_decimals(size / divisor)}f}{name}"
    if float(value).is_integer() or size >= 1000:
        return f"{value:,.0f}"
    if size < 1e-9:
        return "0"
    return f"{value:.{_decimals(size)}f}" if size >= 0.001 else f"{value:.1e}"


def _decimals(size: float) -> int:
    """Decimals that leave three significant digits, four from 100 on."""
    return max(0, 2 - math.floor(math.log10(size))) if size < 100 else 1 if size < 1000 else 0
