from __future__ import annotations

from pathlib import Path

import pytest

from loadgen.metrics import MetricsPage
from traces.record import Lag

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 7.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 7.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:cache_config_info{block_size="32",enable_prefix_caching="True",engine="0",num_gpu_blocks="400"} 1.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 1000.0
vllm:prompt_tokens_by_source_total{engine="0",model_name="m",source="local_compute"} 600.0
vllm:prompt_tokens_by_source_total{engine="0",model_name="m",source="local_cache_hit"} 400.0
vllm:prompt_tokens_cached_total{engine="0",model_name="m"} 400.0
vllm:generation_tokens_total{engine="0",model_name="m"} 50.0
vllm:num_preemptions_total{engine="0",model_name="m"} 1.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 4.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 5.0
vllm:iteration_tokens_total_count{engine="0",model_name="m"} 77.0
"""


def test_a_vllm_says_what_it_says_and_the_rest_is_unknown() -> None:
    """Several engines add up; what vLLM has no metric for is None, never zero."""
    sample = MetricsPage(VLLM).sample(2.5)

    assert sample is not None
    assert (sample.at, sample.num_running, sample.num_waiting) == (2.5, 5, 7)
    assert (sample.num_blocks, sample.num_used_blocks) == (400, 100)
    assert (sample.num_computed_prompt_tokens, sample.num_cached_prompt_tokens) == (600, 400)
    assert (sample.num_generated_tokens, sample.num_finished_requests, sample.num_preemptions) == (50, 9, 1)
    assert sample.num_steps == 77
    assert (sample.busy_s, sample.num_cached_blocks, sample.num_evicted_blocks) == (None, None, None)


def test_how_a_vllm_is_set_up_is_read_from_its_labels() -> None:
    page = MetricsPage(VLLM)

    assert (page.block_size, page.num_blocks, page.prefix_caching) == (32, 400, True)
    assert page.simulated_s is None
    assert page.lag() is None


def test_older_and_other_names_are_known_too() -> None:
    sample = MetricsPage(
        "sglang:num_running_reqs 2\nsglang:num_queue_reqs 1 1700000000\nsglang:prompt_tokens_total 90\n"
        "sglang:cached_tokens_total 30\n"
    ).sample(0.0)

    assert sample is not None
    assert (sample.num_running, sample.num_waiting) == (2, 1)
    assert (sample.num_computed_prompt_tokens, sample.num_cached_prompt_tokens) == (60, 30)


def test_a_server_of_ours_says_everything() -> None:
    page = MetricsPage(
        "replayrig:num_running 1\nreplayrig:num_waiting 0\nreplayrig:num_steps_total 5\n"
        "replayrig:busy_seconds_total 1.5\n"
        'replayrig:lag_seconds{quantile="0.5"} 0.001\nreplayrig:lag_seconds{quantile="0.99"} 0.01\n'
        'replayrig:lag_seconds{quantile="1"} 0.02\nreplayrig:lag_seconds_count 42\nreplayrig:simulated_seconds 12.5\n'
    )

    sample = page.sample(0.0)
    assert sample is not None
    assert (sample.num_steps, sample.busy_s) == (5, 1.5)
    assert page.lag() == Lag(p50_s=0.001, p99_s=0.01, max_s=0.02, num_samples=42)
    assert page.simulated_s == 12.5


def test_a_page_that_is_not_metrics_gives_no_sample() -> None:
    assert MetricsPage("<html>hello there</html>\n\nfoo bar\n").sample(0.0) is None


def test_recorded_pages_of_a_real_vllm_give_samples(shared_dir: Path) -> None:
    pages = sorted((shared_dir / "vllm" / "contract").glob("metrics_*.txt"))

    assert pages
    for path in pages:
        sample = MetricsPage(path.read_text()).sample(0.0)
        assert sample is not None, path.name
        assert sample.num_generated_tokens is not None
        assert sample.num_cached_prompt_tokens is not None
        assert sample.num_blocks == pytest.approx(sample.num_blocks)
