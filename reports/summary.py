"""All numbers of a run together: as ``Numbers``, and as the flat dictionary that ``summary.json`` holds.

The dictionary's keys are those of ``vllm bench serve`` where that tool has the number (milliseconds in keys
that end in ``_ms``, the rest in seconds), so that scripts written for its result files work; they hold our
definitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from reports import measure
from reports.critical_path import critical_paths, longest_chain, mean_shares
from reports.numbers import Distribution, Numbers, Objectives
from reports.per_task import task_shape
from reports.validity import invalid_reasons
from traces.record import SCHEMA_VERSION, CallRecord, Lag, RunHeader, ServerSample, TaskRecord, ToolRecord

_OBJECTIVE_FIELD_BY_NAME = {"ttft": "ttft_s", "tpot": "tpot_s", "e2el": "e2e_s"}


def parse_objectives(texts: Iterable[str]) -> Objectives:
    """Objectives as ``--goodput`` takes them: ``ttft:500 tpot:50 e2el:10000``, milliseconds."""
    limits: dict[str, float] = {}
    for text in texts:
        name, _, value = text.partition(":")
        try:
            field = _OBJECTIVE_FIELD_BY_NAME[name]
            limit_s = float(value) / 1000
        except (KeyError, ValueError):
            raise ValueError(
                f"goodput objective {text!r} is not ttft:MS, tpot:MS or e2el:MS, for example ttft:500"
            ) from None
        if not limit_s > 0:
            raise ValueError(f"goodput objective {text!r} must be over 0 ms")
        limits[field] = limit_s
    return Objectives(**limits)


def summarize(
    *,
    header: RunHeader,
    calls: Iterable[CallRecord],
    tools: Iterable[ToolRecord],
    tasks: Iterable[TaskRecord],
    samples: Iterable[ServerSample],
    objectives: Objectives | None = None,
) -> dict[str, Any]:
    """What ``summary.json`` holds, from a run's records."""
    run = measure.collect(header=header, calls=calls, tools=tools, tasks=tasks, samples=samples)
    return summary_of(numbers_of(run, objectives))


def numbers_of(run: measure.RunColumns, objectives: Objectives | None = None) -> Numbers:
    """Every number of one run."""
    calls, tools, tasks, samples = run.calls, run.tools, run.tasks, measure.sampled_inside(run)
    due, ended, window = measure.due_inside(run), measure.ended_inside(run), run.window
    succeeded, done = calls.succeeded & due, calls.succeeded & ended
    duration_s = measure.duration_s(run)
    num_prompt = measure.total(calls.num_prompt_tokens[done])
    num_output = measure.total(calls.num_output_tokens[done])
    counted = measure.says_cached(calls) & ended
    num_cached = num_computed = None
    if counted.any():
        num_cached = measure.total(calls.num_cached_tokens[counted])
        num_computed = measure.total(calls.num_prompt_tokens[counted]) - num_cached
    num_good = num_good_due = None
    if objectives is not None and objectives.any:
        good = measure.meets_objectives(calls, objectives)
        num_good, num_good_due = int(good[ended].sum()), int(good[due].sum())
    num_tasks_ended = int(tasks.succeeded.sum())
    num_tasks_done = num_tasks_ended
    task_time_s = measure.task_time_s(tasks)
    paths = critical_paths(calls, tools, tasks)
    if window is not None:
        started_inside = window.has(tasks.started_at)
        task_time_s = task_time_s[started_inside]
        num_tasks_done = int((tasks.succeeded & window.has(tasks.ended_at)).sum())
        measured = {task_id for task_id, inside in zip(tasks.task_id, started_inside.tolist(), strict=True) if inside}
        paths = [path for path in paths if path.task_id in measured]
    shares = mean_shares(paths)
    spread = measure.distribution
    return Numbers(
        run_id=run.header.run_id,
        invalid_reasons=invalid_reasons(run),
        window=window,
        num_calls_measured=int(due.sum()),
        num_tasks=run.header.num_tasks,
        num_tasks_succeeded=num_tasks_ended,
        num_calls=int(ended.sum()),
        num_calls_succeeded=int(done.sum()),
        duration_s=duration_s,
        makespan_s=measure.makespan_s(tasks),
        ttft=spread(measure.ttft_s(calls)[due]),
        tpot=spread(measure.tpot_s(calls)[due]),
        itl=spread(measure.chunk_gaps_s(calls, due)),
        e2e=spread(measure.e2e_s(calls)[due]),
        latency_from_schedule=spread(measure.latency_from_schedule_s(calls)[due]),
        dispatch_delay=spread(measure.dispatch_delay_s(calls)[due]),
        predecessor_wait=spread(run.predecessor_wait_s[due]),
        send_lateness=spread(measure.send_lateness_s(run)[due]),
        queue_time=spread(measure.queue_time_s(calls)[due]),
        task_time=spread(task_time_s),
        prompt_length=spread(calls.num_prompt_tokens[succeeded]),
        output_length=spread(calls.num_output_tokens[succeeded]),
        num_prompts_off=measure.num_off(calls, calls.num_prompt_tokens, calls.expected_prompt_tokens),
        num_outputs_off=measure.num_off(calls, calls.num_output_tokens, calls.expected_output_tokens),
        num_prompt_tokens=num_prompt,
        num_cached_tokens=num_cached,
        num_computed_tokens=num_computed,
        num_output_tokens=num_output,
        hit_rate=measure.hit_rate(calls, due),
        reusable_hit_rate=measure.reusable_hit_rate(calls, block_size=run.header.block_size or 1, among=due),
        request_throughput=measure.ratio(int(done.sum()), duration_s),
        output_throughput=measure.ratio(num_output, duration_s),
        input_throughput=measure.ratio(num_prompt, duration_s),
        cached_input_throughput=measure.ratio(num_cached, duration_s),
        computed_input_throughput=measure.ratio(num_computed, duration_s),
        tasks_per_hour=measure.ratio(num_tasks_done * 3600, duration_s),
        goodput=measure.ratio(num_good, duration_s),
        goodput_attainment=measure.ratio(num_good_due, int(due.sum())),
        max_concurrent_calls=measure.max_concurrent(calls.sent_at, calls.last_token_at),
        path_shares=shares,
        num_calls_of_longest_chain=longest_chain(paths),
        tool_share=measure.ratio(shares.tool_s, shares.total_s) if shares else None,
        gpu_busy_share=measure.gpu_busy_share(run),
        batch_occupancy=measure.batch_occupancy(run),
        num_server_computed_tokens=_count(measure.increase(samples["num_computed_prompt_tokens"])),
        num_evicted_blocks=_count(measure.increase(samples["num_evicted_blocks"])),
        num_preemptions=_count(measure.increase(samples["num_preemptions"])),
        shape=task_shape(run),
        lag=measure.run_lag(run),
        send_lag=measure.run_send_lag(run),
    )


def summary_of(numbers: Numbers) -> dict[str, Any]:
    """The numbers under the keys of ``vllm bench serve``, and our own keys for what it does not know."""
    shares = numbers.path_shares
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": numbers.run_id,
        "valid": not numbers.invalid_reasons,
        "invalid_reasons": list(numbers.invalid_reasons),
        "measured_from_s": numbers.window and numbers.window.from_at,
        "measured_until_s": numbers.window and numbers.window.until_at,
        "measured_calls": numbers.num_calls_measured,
        "duration": numbers.duration_s,
        "completed": numbers.num_calls_succeeded,
        "failed": numbers.num_calls - numbers.num_calls_succeeded,
        "total_input_tokens": numbers.num_prompt_tokens,
        "total_output_tokens": numbers.num_output_tokens,
        "total_cached_tokens": numbers.num_cached_tokens,
        "total_computed_tokens": numbers.num_computed_tokens,
        "request_throughput": numbers.request_throughput,
        "request_goodput": numbers.goodput,
        "goodput_attainment": numbers.goodput_attainment,
        "output_throughput": numbers.output_throughput,
        "total_token_throughput": _sum(numbers.input_throughput, numbers.output_throughput),
        "input_throughput": numbers.input_throughput,
        "cached_input_throughput": numbers.cached_input_throughput,
        "computed_input_throughput": numbers.computed_input_throughput,
        "max_concurrent_requests": numbers.max_concurrent_calls,
        **_keys("ttft_ms", numbers.ttft, 1000),
        **_keys("tpot_ms", numbers.tpot, 1000),
        **_keys("itl_ms", numbers.itl, 1000),
        **_keys("e2el_ms", numbers.e2e, 1000),
        **_keys("latency_from_schedule_ms", numbers.latency_from_schedule, 1000),
        **_keys("dispatch_delay_ms", numbers.dispatch_delay, 1000),
        **_keys("queue_time_ms", numbers.queue_time, 1000),
        "num_tasks": numbers.num_tasks,
        "num_tasks_succeeded": numbers.num_tasks_succeeded,
        "makespan_s": numbers.makespan_s,
        "tasks_per_hour": numbers.tasks_per_hour,
        **_keys("task_time_s", numbers.task_time, 1),
        "prompts_off": numbers.num_prompts_off,
        "outputs_off": numbers.num_outputs_off,
        **_keys("prompt_tokens", numbers.prompt_length, 1),
        **_keys("output_tokens", numbers.output_length, 1),
        **_keys("calls_per_task", numbers.shape.calls, 1),
        **_keys("agents_per_task", numbers.shape.agents, 1),
        **_keys("tokens_per_task", numbers.shape.tokens, 1),
        **_keys("calls_at_once", numbers.shape.parallelism, 1),
        **_keys("context_tokens", numbers.shape.context, 1),
        **_keys("kv_bytes_per_agent", numbers.shape.kv_bytes, 1),
        "hit_rate": numbers.hit_rate,
        "reusable_hit_rate": numbers.reusable_hit_rate,
        "longest_chain_calls": numbers.num_calls_of_longest_chain,
        "tool_share": numbers.tool_share,
        "path_queue_s": shares and shares.queue_s,
        "path_prefill_s": shares and shares.prefill_s,
        "path_decode_s": shares and shares.decode_s,
        "path_tool_s": shares and shares.tool_s,
        "path_harness_s": shares and shares.harness_s,
        "gpu_busy_share": numbers.gpu_busy_share,
        "batch_occupancy": numbers.batch_occupancy,
        "server_computed_tokens": numbers.num_server_computed_tokens,
        "evicted_blocks": numbers.num_evicted_blocks,
        "preemptions": numbers.num_preemptions,
        **_lag_keys("lag", numbers.lag),
        **_lag_keys("send_lag", numbers.send_lag),
    }


def _keys(name: str, spread: Distribution | None, scale: float) -> dict[str, float | None]:
    kinds = {
        "mean": "mean",
        "median": "p50",
        "std": "std",
        "p50": "p50",
        "p90": "p90",
        "p99": "p99",
        "max": "max",
    }
    if spread is None:
        return {f"{kind}_{name}": None for kind in kinds}
    return {f"{kind}_{name}": getattr(spread, field) * scale for kind, field in kinds.items()}


def _lag_keys(name: str, lag: Lag | None) -> dict[str, float | None]:
    if lag is None:
        return {f"{kind}_{name}_s": None for kind in ("p50", "p99", "max")}
    return {f"p50_{name}_s": lag.p50_s, f"p99_{name}_s": lag.p99_s, f"max_{name}_s": lag.max_s}


def _count(value: float | None) -> int | None:
    return None if value is None else round(value)


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other
