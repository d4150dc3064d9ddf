"""What ``vllm bench`` writes, as a source for calibration: requests (``bench serve``) and whole batches (``latency``).

vLLM 0.32 has no benchmark of single forward passes. ``bench serve --save-result --save-detailed`` keeps when each
token of each request came, which is what a run of our own keeps. ``bench latency`` times a batch of equal requests
from beginning to end; only its file in PyTorch's benchmark format says how long those were. ``bench throughput`` keeps
one number for a whole mixture, which determines nothing.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mockserver.engine.cost import padded_batch_size
from reports.observations import GRAPH_CEILING, Observation, SchedulerLimits, context_before_chunks, first_tokens
from traces.record import CallRecord

CACHE_NOTE = "vllm bench serve does not say what was cached: every prompt is taken as computed"
_DETAILS = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "errors")


@dataclass(eq=False, slots=True)
class BenchResults:
    """What the files hold: requests of each ``bench serve``, and batches of all ``bench latency``."""

    runs: list[list[CallRecord]] = field(default_factory=list)
    batches: list[Observation] = field(default_factory=list)


def read_bench(paths: Sequence[Path], limits: SchedulerLimits) -> BenchResults:
    """Read the results; ``ValueError`` says in one line why a file does not help."""
    found = BenchResults()
    for path in paths:
        for value in _values(path):
            try:
                if isinstance(value, list):
                    found.batches += _batches(path, value, limits)
                else:
                    found.runs.append(_requests(path, value))
            except (KeyError, TypeError, IndexError, AttributeError, ArithmeticError) as error:
                raise ValueError(f"{path}: not as vllm bench writes it: {type(error).__name__} {error}") from None
    return found


def _values(path: Path) -> list[Any]:
    """The file's value, or one a line: ``--append-result`` writes below each other."""
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        return [json.loads(text)]
    except (ValueError, RecursionError):
        pass
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        raise ValueError(f"{path}: not JSON") from None


def _requests(path: Path, result: dict[str, Any]) -> list[CallRecord]:
    if not set(_DETAILS) <= result.keys():
        raise ValueError(f"{path}: {_why_not(result)}")
    start = min(result["start_times"], default=0.0)
    columns = (result[name] for name in _DETAILS)
    records = []
    for number, (prompt, output, ttft, gaps, sent, error) in enumerate(zip(*columns, strict=True)):
        times = tuple(itertools.accumulate([sent - start + ttft, *gaps]))
        if error or not output or not all(map(math.isfinite, times)):
            continue
        name = f"{path.stem}#{number}"
        records.append(
            CallRecord(
                call_id=name,
                task_id=name,
                agent_id=name,
                index=0,
                due_at=sent - start,
                sent_at=sent - start,
                first_token_at=times[0],
                last_token_at=times[-1],
                num_prompt_tokens=int(prompt),
                num_cached_tokens=None,
                num_output_tokens=int(output),
                expected_output_tokens=None,
                finish_reason=None,
                chunk_at=times,
            )
        )
    return records


def _why_not(result: dict[str, Any]) -> str:
    if "elapsed_time" in result:
        return "vllm bench throughput keeps one number of a whole mixture, which determines no coefficient"
    if "avg_latency" in result:
        return (
            "vllm bench latency does not write here how long its requests were: run it with"
            " SAVE_TO_PYTORCH_BENCHMARK_FORMAT=1 and give the .pytorch.json that it writes beside this"
        )
    return "no details of single requests: run vllm bench serve with --save-result --save-detailed"


def _batches(path: Path, records: list[Any], limits: SchedulerLimits) -> list[Observation]:
    found = []
    for record in records:
        if record["metric"]["name"] != "latency":
            raise ValueError(f"{path}: holds {record['metric']['name']!s:.60}, not the latency of a batch")
        given = record["benchmark"]["extra_info"]["args"]
        sizes = given["input_len"], given["output_len"], given["batch_size"] * (given.get("n") or 1)
        budget = given.get("max_num_batched_tokens") or limits.max_num_batched_tokens
        found += [_batch(latency_s, *sizes, budget) for latency_s in record["metric"]["benchmark_values"]]
    return found


def _batch(latency_s: float, num_prompt: int, num_output: int, num_seqs: int, budget: int) -> Observation:
    """Equal requests from beginning to end: their prompts in steps of whole budgets, then a token each a step."""
    num_steps = num_output - 1
    return Observation(
        duration_s=float(latency_s),
        num_steps=-(-num_seqs * num_prompt // budget) + num_steps,
        num_prefill_tokens=num_seqs * num_prompt,
        num_first_prefill_tokens=first_tokens(num_seqs * num_prompt, budget),
        prefill_attention=num_seqs * num_prompt**2 / 2,
        num_prefill_context_tokens=num_seqs * context_before_chunks(0, num_prompt, budget),
        num_decode_seqs=num_seqs * num_steps,
        num_padded_seqs=padded_batch_size(num_seqs, GRAPH_CEILING) * num_steps,
        num_decode_context_tokens=num_seqs * num_steps * (num_prompt + num_output / 2),
    )
