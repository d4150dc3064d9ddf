"""``GET /metrics``: vLLM's names, labels and buckets, and a few of our own under ``replayrig:``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from mockserver.api.books import Histogram, HttpBooks, RequestBooks
from mockserver.clock import unix_seconds
from mockserver.engine.config import EngineConfig
from mockserver.engine.engine import Snapshot, StepResult, add_snapshots
from mockserver.lag import LagSummary

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"
_FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")
_GAUGES = frozenset(
    ("num_running", "num_waiting", "num_waiting_tokens", "num_blocks", "num_used_blocks", "num_cached_blocks")
)
_CACHE_CONFIG: dict[str, object] = {
    "_block_size_resolved": True,
    "cache_dtype": "auto",
    "cache_hit_alignment_tokens": None,
    "enable_mamba_shared_prefix_checkpoint": False,
    "gpu_memory_utilization": 0.92,
    "hash_block_size": None,
    "is_attention_free": False,
    "kv_cache_dtype_skip_layers": [],
    "kv_cache_layout": None,
    "kv_cache_memory_bytes": None,
    "kv_offloading_backend": "native",
    "kv_offloading_size": None,
    "kv_sharing_fast_prefill": False,
    "mamba_block_size": None,
    "mamba_cache_dtype": "auto",
    "mamba_cache_mode": "none",
    "mamba_page_size_padded": None,
    "mamba_ssm_cache_dtype": "auto",
    "num_cpu_blocks": None,
    "num_gpu_blocks_override": None,
    "prefix_cache_retention_interval": 0,
    "prefix_caching_hash_algo": "sha256",
    "prefix_match_unit": None,
    "replayssm_buffer_len": 16,
    "skip_page_size_padded": None,
    "sliding_window": None,
    "swa_bounded_replay": True,
    "use_kda_recoverssm": False,
    "use_replayssm": False,
    "user_specified_block_size": True,
}
"""Labels of ``cache_config_info`` that this machine has no opinion on: vLLM's defaults."""
_REQUEST_HISTOGRAMS = (
    ("request_prompt_tokens", "Number of prefill tokens processed.", "prompt_tokens"),
    ("request_generation_tokens", "Number of generation tokens processed.", "generation_tokens"),
    ("iteration_tokens_total", "Histogram of number of tokens per engine_step.", "iteration_tokens"),
    (
        "request_max_num_generation_tokens",
        "Histogram of maximum number of requested generation tokens.",
        "max_generation_tokens",
    ),
    ("request_params_n", "Histogram of the n request parameter.", "params_n"),
    ("request_params_max_tokens", "Histogram of the max_tokens request parameter.", "params_max_tokens"),
    ("time_to_first_token_seconds", "Histogram of time to first token in seconds.", "ttft"),
    ("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", "itl"),
    (
        "request_time_per_output_token_seconds",
        "Histogram of time_per_output_token_seconds per request.",
        "tpot",
    ),
    ("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", "e2e"),
    ("request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", "queue"),
    ("request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.", "inference"),
    ("request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.", "prefill"),
    ("request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.", "decode"),
    (
        "request_num_preemptions",
        "Histogram of the number of times a request was preempted.",
        "preemptions",
    ),
    (
        "request_prefill_kv_computed_tokens",
        "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
        "computed_tokens",
    ),
)

_Rows = Iterable[tuple[Mapping[str, str], float]]


class Metrics(Collector):
    """The books of one server, shown as Prometheus wants them."""

    def __init__(
        self,
        model_name: str,
        max_model_len: int,
        config: EngineConfig,
        *,
        num_ranks: int,
        snapshots: Callable[[], Sequence[Snapshot]],
        lag: Callable[[], LagSummary],
        now: Callable[[], float],
        faults: Callable[[], Mapping[str, int]],
    ) -> None:
        self.requests = [RequestBooks(max_model_len) for _ in range(num_ranks)]
        """By rank."""
        self.http = HttpBooks()
        self._config = config
        self._snapshots = snapshots
        self._lag = lag
        self._now = now
        self._faults = faults
        self._model_name = model_name
        self._labels = [{"engine": str(rank), "model_name": model_name} for rank in range(num_ranks)]
        self._created_at = unix_seconds()
        self._registry = CollectorRegistry(auto_describe=False)
        GCCollector(self._registry)
        PlatformCollector(self._registry)
        ProcessCollector(registry=self._registry)
        self._registry.register(self)

    def count_step(self, rank: int, result: StepResult) -> None:
        """A step of a rank has ended."""
        self.requests[rank].count_step(result)

    def text(self) -> bytes:
        """The page."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """All families; prometheus_client calls this for every scrape."""
        snapshots = self._snapshots()
        yield from self._machine_families(snapshots)
        yield from self._request_families(snapshots)
        yield from self._http_families()
        yield from self._own_families(add_snapshots(snapshots))

    # -- vLLM's ----------------------------------------------------------------------------------------------------

    def _machine_families(self, snapshots: Sequence[Snapshot]) -> Iterator[Metric]:
        for name, text in (
            ("flops_per_gpu", "floating point operations per GPU (for Model Flops Utilization calculations)"),
            ("read_bytes_per_gpu", "bytes read from memory per GPU (for Model Flops Utilization calculations)"),
            ("write_bytes_per_gpu", "bytes written to memory per GPU (for Model Flops Utilization calculations)"),
        ):
            yield self._counter(f"estimated_{name}", f"Estimated number of {text}.", [[({}, 0.0)] for _ in snapshots])
        yield self._gauge(
            "num_requests_running",
            "Number of requests in model execution batches.",
            [[({}, snapshot.num_running)] for snapshot in snapshots],
        )
        yield self._gauge(
            "num_requests_waiting",
            "Number of requests waiting to be processed.",
            [[({}, snapshot.num_waiting)] for snapshot in snapshots],
        )
        yield self._gauge(
            "num_requests_waiting_by_reason",
            "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; "
            "'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all "
            "reasons equals vllm:num_requests_waiting.",
            [[({"reason": "capacity"}, snapshot.num_waiting), ({"reason": "deferred"}, 0)] for snapshot in snapshots],
        )
        yield self._gauge(
            "engine_sleep_state",
            "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; "
            "weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
            [
                [
                    ({"sleep_state": "awake"}, 1),
                    ({"sleep_state": "weights_offloaded"}, 0),
                    ({"sleep_state": "discard_all"}, 0),
                ]
                for _ in snapshots
            ],
        )
        yield self._gauge(
            "kv_cache_usage_perc",
            "KV-cache usage. 1 means 100 percent usage.",
            [[({}, snapshot.num_used_blocks / snapshot.num_blocks)] for snapshot in snapshots],
        )
        yield self._cache_config()

    def _cache_config(self) -> Metric:
        config = self._config
        labels = {
            **_CACHE_CONFIG,
            "block_size": config.block_size,
            "effective_attention_block_size": config.block_size,
            "enable_prefix_caching": config.enable_prefix_caching,
            "kv_cache_max_concurrency": config.num_kv_tokens / config.max_model_len,
            "kv_cache_size_tokens": config.num_kv_tokens,
            "num_gpu_blocks": config.num_blocks + 1,
        }
        family = GaugeMetricFamily(
            "vllm:cache_config_info", "Information of the LLMEngine CacheConfig", labels=["engine", *labels]
        )
        for rank in range(len(self.requests)):
            family.add_metric([str(rank), *map(str, labels.values())], 1.0)
        return family

    def _request_families(self, snapshots: Sequence[Snapshot]) -> Iterator[Metric]:
        with_cache = self._config.enable_prefix_caching
        cached = [snapshot.num_cached_prompt_tokens for snapshot in snapshots]
        computed = [snapshot.num_admitted_prompt_tokens - num for snapshot, num in zip(snapshots, cached, strict=True)]
        queried = [snapshot.num_admitted_prompt_tokens if with_cache else 0 for snapshot in snapshots]
        nothing = [0] * len(snapshots)
        plain: tuple[tuple[str, str, Iterable[float]], ...] = (
            ("prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.", queried),
            ("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", cached),
            (
                "external_prefix_cache_queries",
                "External prefix cache queries from KV connector cross-instance cache sharing, in terms of number of "
                "queried tokens.",
                nothing,
            ),
            (
                "external_prefix_cache_hits",
                "External prefix cache hits from KV connector cross-instance cache sharing, in terms of number of "
                "cached tokens.",
                nothing,
            ),
            ("mm_cache_queries", "Multi-modal cache queries, in terms of number of queried items.", nothing),
            ("mm_cache_hits", "Multi-modal cache hits, in terms of number of cached items.", nothing),
            (
                "num_preemptions",
                "Cumulative number of preemption from the engine.",
                [snapshot.num_preemptions for snapshot in snapshots],
            ),
            (
                "prompt_tokens",
                "Number of prefill tokens processed.",
                [books.num_prompt_tokens for books in self.requests],
            ),
            ("prompt_tokens_cached", "Number of cached prompt tokens (local + external).", cached),
            (
                "generation_tokens",
                "Number of generation tokens processed.",
                [snapshot.num_generated_tokens for snapshot in snapshots],
            ),
        )
        for name, text, values in plain:
            yield self._counter(name, text, [[({}, value)] for value in values])
        yield self._counter(
            "prompt_tokens_by_source",
            "Number of prompt tokens by source.",
            [
                [
                    ({"source": "local_compute"}, num_computed),
                    ({"source": "local_cache_hit"}, num_cached),
                    ({"source": "external_kv_transfer"}, 0),
                ]
                for num_computed, num_cached in zip(computed, cached, strict=True)
            ],
        )
        yield self._counter(
            "prompt_tokens_cached_by_source",
            "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to "
            "DRAM), disk, p2p (transferred from another vLLM instance) or external_unspecified. Counted at admission; "
            "sums to vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.",
            [
                [
                    ({"source": source}, num_cached if source == "device" else 0)
                    for source in ("device", "host", "p2p", "disk", "external_unspecified")
                ]
                for num_cached in cached
            ],
        )
        yield self._counter(
            "request_success",
            "Count of successfully processed requests.",
            [
                [({"finished_reason": reason}, books.num_by_reason[reason]) for reason in _FINISH_REASONS]
                for books in self.requests
            ],
        )
        yield self._model_counter(
            "admission_rejections",
            "Number of admission attempts rejected by a queue limit, by reason.",
            [({"reason": "max_num_queued_reqs"}, self.http.num_rejected), ({"reason": "max_num_queued_tokens"}, 0)],
        )
        for name, text, attribute in _REQUEST_HISTOGRAMS:
            histograms = [getattr(books, attribute) for books in self.requests]
            yield self._histogram(f"vllm:{name}", text, zip(self._labels, histograms, strict=True))
        yield self._model_counter(
            "tool_call_parser_invocations",
            "Total number of ToolParser invocations. Non-streaming increments once per choice; streaming increments "
            "once per delta.",
            [
                (
                    {"mode": mode, "outcome": outcome, "request_type": kind},
                    self.http.num_tool_parses[mode, outcome] if kind == "chat_completions" else 0,
                )
                for mode in ("streaming", "non_streaming")
                for outcome in ("tool_call", "no_tool_call")
                for kind in ("chat_completions", "responses", "other")
            ],
        )

    def _http_families(self) -> Iterator[Metric]:
        http = self.http
        requests = CounterMetricFamily(
            "http_requests",
            "Total number of requests by method, status and handler.",
            labels=["handler", "method", "status"],
        )
        for key, count in http.num_requests.items():
            requests.add_metric(key, count, created=self._created_at)
        yield requests
        for name, direction, table in (
            ("request", "incoming requests", http.request_bytes),
            ("response", "outgoing responses", http.response_bytes),
        ):
            sizes = SummaryMetricFamily(
                f"http_{name}_size_bytes",
                f"Content length of {direction} by handler. Only value of header is respected. Otherwise ignored. "
                "No percentile calculated. ",
                labels=["handler"],
            )
            for handler, (num_values, total) in table.items():
                sizes.add_metric([handler], int(num_values), total)
                sizes.add_sample(f"{sizes.name}_created", {"handler": handler}, self._created_at)
            yield sizes
        yield self._histogram(
            "http_request_duration_highr_seconds",
            "Latency with many buckets but no API specific labels. Made for more accurate percentile calculations. ",
            [({}, http.durations)],
        )
        yield self._histogram(
            "http_request_duration_seconds",
            "Latency with only few buckets by handler. Made to be only used if aggregation by handler is important. ",
            [
                ({"handler": handler, "method": method}, histogram)
                for (handler, method), histogram in http.durations_by_handler.items()
            ],
        )

    # -- our own ---------------------------------------------------------------------------------------------------

    def _own_families(self, snapshot: Snapshot) -> Iterator[Metric]:
        for field in fields(snapshot):
            value = getattr(snapshot, field.name)
            text = f"The engine's {field.name}."
            if field.name in _GAUGES:
                yield GaugeMetricFamily(f"replayrig:{field.name}", text, value=value)
            elif field.name.endswith("_s"):
                yield CounterMetricFamily(f"replayrig:{field.name.removesuffix('_s')}_seconds", text, value=value)
            else:
                yield CounterMetricFamily(f"replayrig:{field.name}", text, value=value)
        lag = self._lag()
        family = Metric("replayrig:lag_seconds", "How late tokens left, against the model's own time.", "summary")
        for quantile, lag_s in (("0.5", lag.p50_s), ("0.99", lag.p99_s), ("1", lag.max_s)):
            family.add_sample("replayrig:lag_seconds", {"quantile": quantile}, lag_s)
        family.add_sample("replayrig:lag_seconds_count", {}, lag.num_samples)
        yield family
        happened = CounterMetricFamily("replayrig:faults", "Faults that befell requests, by kind.", labels=["kind"])
        for kind, count in self._faults().items():
            happened.add_metric([kind], count)
        yield happened
        yield GaugeMetricFamily(
            "replayrig:simulated_seconds", "Simulated seconds since the server started.", value=self._now()
        )

    # -- families --------------------------------------------------------------------------------------------------

    def _gauge(self, name: str, text: str, rows_by_rank: Iterable[_Rows]) -> Metric:
        family = Metric(f"vllm:{name}", text, "gauge")
        for common, rows in zip(self._labels, rows_by_rank, strict=True):
            for labels, value in rows:
                family.add_sample(f"vllm:{name}", {**common, **labels}, value)
        return family

    def _counter(self, name: str, text: str, rows_by_rank: Iterable[_Rows]) -> Metric:
        family = Metric(f"vllm:{name}", text, "counter")
        for common, rows in zip(self._labels, rows_by_rank, strict=True):
            self._add_counts(family, common, rows)
        return family

    def _model_counter(self, name: str, text: str, rows: _Rows) -> Metric:
        """A counter that knows no ranks."""
        family = Metric(f"vllm:{name}", text, "counter")
        self._add_counts(family, {"model_name": self._model_name}, rows)
        return family

    def _add_counts(self, family: Metric, common: Mapping[str, str], rows: _Rows) -> None:
        for labels, value in rows:
            family.add_sample(f"{family.name}_total", {**common, **labels}, value)
            family.add_sample(f"{family.name}_created", {**common, **labels}, self._created_at)

    def _histogram(self, name: str, text: str, rows: Iterable[tuple[dict[str, str], Histogram]]) -> Metric:
        family = HistogramMetricFamily(name, text)
        for labels, histogram in rows:
            cumulated = 0
            for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
                cumulated += count
                family.add_sample(f"{name}_bucket", {**labels, "le": _shown(bound)}, cumulated)
            family.add_sample(f"{name}_count", labels, cumulated)
            family.add_sample(f"{name}_sum", labels, histogram.total)
            family.add_sample(f"{name}_created", labels, self._created_at)
        return family


def _shown(bound: float) -> str:
    return "+Inf" if bound == float("inf") else str(float(bound))
