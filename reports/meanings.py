"""What each number of the table means, in one sentence for a reader of the page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from reports.table import Metric

MEANINGS = {
    "makespan_s": "From the first task's start to the last task's end.",
    "tasks_per_hour": "Tasks that ended well, by the time of the run.",
    "task_time": "From a task's first call due to its last answer, tools included.",
    "ttft": "Time to first token: from sending a call to the first token of its answer.",
    "tpot": "Time per output token after the first: how fast an answer is written.",
    "itl": "Inter-token latency: the gaps between the tokens of all calls.",
    "e2e": "End to end: from sending a call to the last token of its answer.",
    "latency_from_schedule": "From when a call was due to its last token: a client that is late hides nothing here.",
    "queue_time": "From sending a call to the step in which the server first works on it.",
    "num_calls": "Model calls, of all agents of all tasks.",
    "goodput": "Calls per second that meet every stated objective.",
    "goodput_attainment": "The part of the calls that meets every stated objective.",
    "calls_shape": "Model calls of one task.",
    "agents_shape": "Agents that work on one task: 1 without subagents.",
    "tokens_shape": "Prompt and output tokens of one task's calls.",
    "parallelism_shape": "Calls of one task that are open at once, on average while any is.",
    "context_shape": "The longest prompt of each agent, with the answer to it.",
    "kv_bytes_shape": "The KV memory that such a context takes.",
    "num_prompt_tokens": "Prompt tokens of all calls.",
    "num_computed_tokens": "Prompt tokens that the server had to compute: its prefill work.",
    "num_cached_tokens": "Prompt tokens whose KV was in the prefix cache.",
    "hit_rate": "Prompt tokens from the cache / prompt tokens.",
    "reusable_hit_rate": "What a cache that forgets nothing would hit of each agent's own history.",
    "num_output_tokens": "Tokens that the server generated.",
    "output_throughput": "Output tokens by the time of the run.",
    "computed_input_throughput": "Computed prompt tokens by the time of the run.",
    "cached_input_throughput": "Cached prompt tokens by the time of the run.",
    "gpu_busy_share": "Time in steps (forward passes) / time.",
    "batch_occupancy": "Sequences in a step / the most it may hold, averaged over the time in steps.",
    "num_evicted_blocks": "Cached KV blocks whose content was given up for new content.",
    "num_preemptions": "Running requests that had to give their blocks back and compute again.",
    "tool_share": "The part of a task's critical path that its tools take.",
    "queue_share": "The part of the critical path in which a call waits for the server.",
    "prefill_share": "The part of the critical path in which a prompt is computed.",
    "decode_share": "The part of the critical path in which an answer is written.",
    "harness_share": "The part of the critical path that is neither server nor tool: the agent's own delays.",
    "num_prompts_off": "Calls whose prompt the server counts as longer or shorter than it was made to be.",
    "lag": "How late answers were handed over against the model's own time: the mock's own error.",
    "send_lag": "How late the load generator sent calls that could have been sent.",
    "num_failed": "Calls that ended in an error; their times are in no number.",
}
"""By a metric's key."""


def meanings_markup(metrics: Sequence[Metric]) -> str:
    """The shown metrics and what they mean, folded away until somebody asks."""
    rows = "".join(f"<div><dt>{escape(one.label)}</dt><dd>{escape(MEANINGS[one.key])}</dd></div>" for one in metrics)
    text = "p50, p90, p99: half, nine tenths, all but one in a hundred of the values are at most this. Bold: the best."
    return f'<details class="meanings"><summary>What these numbers mean</summary><p>{text}</p><dl>{rows}</dl></details>'
