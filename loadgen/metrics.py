"""A server's /metrics as samples: ours say everything, vLLM's and SGLang's what they have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from traces.record import SERVER_COUNTS, Lag, ServerSample

OWN_PREFIX = "replayrig:"
_LAG_QUANTILES = {"p50_s": "0.5", "p99_s": "0.99", "max_s": "1"}
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

# Where each field of a sample stands on other servers, first found first taken.
_NAMES_ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "num_running": ("vllm:num_requests_running", "sglang:num_running_reqs"),
    "num_waiting": ("vllm:num_requests_waiting", "sglang:num_queue_reqs"),
    "num_steps": ("vllm:iteration_tokens_total_count",),
    "num_computed_prompt_tokens": ('vllm:prompt_tokens_by_source_total{source="local_compute"}',),
    "num_cached_prompt_tokens": (
        "vllm:prompt_tokens_cached_total",
        "vllm:prefix_cache_hits_total",
        "sglang:cached_tokens_total",
    ),
    "num_generated_tokens": ("vllm:generation_tokens_total", "sglang:generation_tokens_total"),
    "num_preemptions": ("vllm:num_preemptions_total", "sglang:num_retracted_reqs"),
    "num_finished_requests": ("vllm:request_success_total", "sglang:num_requests_total"),
}
_PROMPT_TOKENS = ("vllm:prompt_tokens_total", "sglang:prompt_tokens_total")
_KV_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage")


class MetricsPage:
    """One answer of /metrics."""

    def __init__(self, text: str) -> None:
        self._values: dict[str, float] = {}
        self._labels: dict[str, dict[str, str]] = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                self._take(line)

    def _take(self, line: str) -> None:
        series, _, number = line.rpartition(" ")
        name, brace, labels = series.partition("{")
        if not brace:
            name, _, number = line.partition(" ")  # a timestamp may follow
            number = number.split(" ")[0]
        try:
            value = float(number)
        except ValueError:
            return
        self._values[name] = self._values.get(name, 0.0) + value
        if brace:
            found = dict(_LABEL.findall(labels))
            self._labels.setdefault(name, found)
            # Which engine and which model is not asked: their series add up.
            rest = {key: text for key, text in found.items() if key not in ("engine", "model_name")}
            key = name + "{" + ",".join(f'{key}="{text}"' for key, text in rest.items()) + "}"
            if rest:
                self._values[key] = self._values.get(key, 0.0) + value

    def value(self, *names: str) -> float | None:
        """The first of ``names`` that the page has; a name without labels is the sum of its series."""
        return next((self._values[name] for name in names if name in self._values), None)

    def labels(self, name: str) -> Mapping[str, str]:
        """The labels of a metric's first series."""
        return self._labels.get(name, {})

    @property
    def simulated_s(self) -> float | None:
        """The clock of a server of ours."""
        return self.value(f"{OWN_PREFIX}simulated_seconds")

    @property
    def block_size(self) -> int | None:
        """Tokens of a KV block, where vLLM says so."""
        return _whole(self.labels("vllm:cache_config_info").get("block_size"))

    @property
    def num_blocks(self) -> int | None:
        """KV blocks, where vLLM says so."""
        return _whole(self.labels("vllm:cache_config_info").get("num_gpu_blocks"))

    @property
    def prefix_caching(self) -> bool | None:
        """Whether the prefix cache is on, where vLLM says so."""
        said = self.labels("vllm:cache_config_info").get("enable_prefix_caching")
        return None if said is None else said == "True"

    def lag(self) -> Lag | None:
        """How late a server of ours was."""
        values = {
            name: self.value(f'{OWN_PREFIX}lag_seconds{{quantile="{quantile}"}}')
            for name, quantile in _LAG_QUANTILES.items()
        }
        if any(value is None for value in values.values()):
            return None
        num_samples = int(self.value(f"{OWN_PREFIX}lag_seconds_count") or 0)
        return Lag(num_samples=num_samples, **values)  # type: ignore[arg-type]  # none is None here

    def sample(self, at: float) -> ServerSample | None:
        """The server at ``at``; None where it does not even say how many requests run."""
        values: dict[str, Any] = {name: self._field(name) for name in SERVER_COUNTS}
        if values["num_running"] is None or values["num_waiting"] is None:
            return None
        if values["num_blocks"] is None:
            values["num_blocks"] = self.num_blocks
            usage = self.value(*_KV_USAGE)
            if usage is not None and self.num_blocks is not None:
                values["num_used_blocks"] = round(usage * self.num_blocks)
        if values["num_computed_prompt_tokens"] is None:
            total, cached = self.value(*_PROMPT_TOKENS), values["num_cached_prompt_tokens"]
            if total is not None and cached is not None:
                values["num_computed_prompt_tokens"] = round(total) - cached
        return ServerSample(at=at, **values)

    def _field(self, name: str) -> float | int | None:
        own = (f"{name.removesuffix('_s')}_seconds_total",) if name.endswith("_s") else (name, f"{name}_total")
        value = self.value(*(OWN_PREFIX + one for one in own), *_NAMES_ELSEWHERE.get(name, ()))
        return value if value is None or name.endswith("_s") else round(value)


def _whole(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
