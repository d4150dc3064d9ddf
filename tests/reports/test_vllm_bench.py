"""What ``vllm bench`` writes is a source for calibration like records of our own."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mockserver.engine.cost import FittedCost
from mockserver.profile_files import read_profile
from reports.__main__ import main
from reports.calibrate import calibrate
from reports.observations import SchedulerLimits
from reports.vllm_bench import read_bench
from tests.reports.mock_records import probes, records_of
from traces.record import CallRecord

LIMITS = SchedulerLimits(max_num_batched_tokens=2048)
COST = FittedCost(
    floor_s=0.004,
    per_prefill_token_s=2e-5,
    per_prefill_attention_s=1e-9,
    per_decode_seq_s=2e-4,
    per_decode_context_token_s=2e-8,
    graph_ceiling=0,
)


def serve_result(calls: Sequence[CallRecord], *, began_at: float = 5000.0) -> dict[str, Any]:
    """As ``vllm bench serve --save-result --save-detailed`` writes it: times are of its own clock."""
    return {
        "backend": "vllm",
        "num_prompts": len(calls),
        "input_lens": [call.num_prompt_tokens for call in calls],
        "output_lens": [call.num_output_tokens for call in calls],
        "ttfts": [(call.first_token_at or 0.0) - call.sent_at for call in calls],
        "itls": [[b - a for a, b in itertools.pairwise(call.chunk_at)] for call in calls],
        "start_times": [began_at + call.sent_at for call in calls],
        "generated_texts": ["" for _ in calls],
        "errors": ["" for _ in calls],
    }


def latency_record(num_prompt: int, num_output: int, num_seqs: int) -> list[dict[str, Any]]:
    """As ``vllm bench latency`` writes it in PyTorch's benchmark format, of a server with ``COST``."""
    steps = [(COST.floor_s + COST.per_decode_seq_s * num_seqs) * (num_output - 1)]
    steps.append(COST.per_decode_context_token_s * num_seqs * (num_output - 1) * (num_prompt + num_output / 2))
    steps.append(COST.floor_s * -(-num_prompt * num_seqs // 2048))
    steps.append(COST.per_prefill_token_s * num_prompt * num_seqs)
    steps.append(COST.per_prefill_attention_s * num_seqs * num_prompt**2 / 2)
    arguments = {"input_len": num_prompt, "output_len": num_output, "batch_size": num_seqs, "n": 1}
    return [
        {
            "benchmark": {"name": "vLLM benchmark", "extra_info": {"args": arguments}},
            "metric": {"name": "latency", "benchmark_values": [sum(steps)] * 3, "extra_info": {}},
        }
    ]


def test_requests_of_bench_serve_give_the_coefficients_back(tmp_path: Path) -> None:
    path = tmp_path / "serve.json"
    path.write_text(json.dumps(serve_result(records_of(probes(1, spacing_s=8.0), COST, frontend_s=0.003))))

    found = calibrate(read_bench([path], LIMITS).runs, LIMITS)

    for name in ("floor_s", "per_prefill_token_s", "per_decode_seq_s", "per_decode_context_token_s"):
        assert found.fit[name].value == pytest.approx(getattr(COST, name), rel=0.01)
        assert found.fit[name].is_determined
    assert found.fit["frontend_s"].value == pytest.approx(0.003, rel=0.1)


def test_what_vllm_0_32_wrote_is_read(tmp_path: Path) -> None:
    """Two of the twelve requests of ``vllm bench serve --save-result --save-detailed`` on a CPU."""
    path = tmp_path / "serve.json"
    path.write_text(
        json.dumps(
            {
                "endpoint_type": "openai",
                "input_lens": [91, 43],
                "output_lens": [6, 9],
                "ttfts": [0.076113, 0.076768],
                "itls": [
                    [4e-06, 3e-06, 3e-06, 3e-06, 3e-06],
                    [4e-06, 6e-06, 4e-06, 3e-06, 3e-06, 3e-06, 3e-06, 3e-06],
                ],
                "start_times": [13910.195864, 13910.195366],
                "generated_texts": [" of", " the"],
                "errors": ["", ""],
                "rtfx": 0.0,
            }
        )
    )

    ((later, earlier),) = read_bench([path], LIMITS).runs

    assert (earlier.sent_at, earlier.num_prompt_tokens, earlier.num_output_tokens) == (0.0, 43, 9)
    assert later.sent_at == pytest.approx(0.000498)
    assert later.first_token_at == pytest.approx(later.sent_at + 0.076113)
    assert len(later.chunk_at) == later.num_output_tokens


def test_appended_results_are_one_run_each_and_failed_requests_are_left_out(tmp_path: Path) -> None:
    result = serve_result(records_of(probes(1, spacing_s=8.0)[:3], COST))
    failed = result | {"errors": ["connection refused", "", ""]}
    path = tmp_path / "serve.json"
    path.write_text(json.dumps(result) + "\n" + json.dumps(failed))

    assert [len(run) for run in read_bench([path], LIMITS).runs] == [3, 2]


def test_batches_of_bench_latency_give_the_coefficients_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = []
    for number, shape in enumerate(itertools.product((64, 900, 4000), (2, 100), (1, 7, 32))):
        files.append(tmp_path / f"{number}.pytorch.json")
        files[-1].write_text(json.dumps(latency_record(*shape)))
    profile_file = tmp_path / "fitted.toml"

    status = main(
        ["calibrate", "--vllm-bench", *map(str, files), "--max-num-batched-tokens", "2048", "-o", str(profile_file)]
    )

    cost = read_profile(profile_file).step_cost
    assert status == 0
    assert isinstance(cost, FittedCost)
    for name in ("floor_s", "per_prefill_token_s", "per_decode_seq_s", "per_decode_context_token_s"):
        assert getattr(cost, name) == pytest.approx(getattr(COST, name), rel=0.01)
    assert "cannot be told" in capsys.readouterr().out  # a batch without a server has no front end


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"avg_latency": 1.0, "latencies": [1.0], "percentiles": {}}', "SAVE_TO_PYTORCH_BENCHMARK_FORMAT=1"),
        ('{"elapsed_time": 1.0, "num_requests": 3, "tokens_per_second": 5.0}', "determines no coefficient"),
        ('{"completed": 3, "mean_ttft_ms": 5.0}', "--save-result --save-detailed"),
        ('[{"metric": {"name": "requests_per_second"}}]', "not the latency of a batch"),
        ("[[]]", "not as vllm bench writes it"),
        ("3", "not as vllm bench writes it"),
        ("no JSON", "not JSON"),
        ("[" * 200_000, "not JSON"),
    ],
)
def test_files_that_determine_nothing_are_refused_with_what_would(
    content: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "result.json"
    path.write_text(content)

    status = main(["calibrate", "--vllm-bench", str(path)])

    told = capsys.readouterr().err
    assert status == 2
    assert says in told
    assert told.count("\n") == 1
