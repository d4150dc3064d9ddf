"""Whether the load generator and a live vLLM agree on what happened, and whether `vllm bench serve` agrees too.

    python -m benchmarks.live_agreement --base-url http://127.0.0.1:8000 --workload FILE --num-tasks 20 --out DIR
    python -m benchmarks.live_agreement ... --vllm /path/to/vllm

Runs the tasks as ReAct and as orchestrator and prints, beside the run's own numbers, the server's: the difference of
its counters, and the means of its histograms (sum over count, which no bucket rounds). With ``--vllm`` it also sends
one list of single-turn prompts through ``vllm bench serve`` and through ``loadgen run``, in turns, several times each.
The two do not measure the same thing to the last: the server's time starts when it has read and rendered the request.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loadgen.metrics import MetricsPage
from mockserver.filler import filler
from traces.jsonl import read_run, write_trajectories
from traces.trajectory import Trajectory, Turn

_HISTOGRAMS = {
    "mean_ttft_ms": "vllm:time_to_first_token_seconds",
    "mean_tpot_ms": "vllm:request_time_per_output_token_seconds",
    "mean_e2el_ms": "vllm:e2e_request_latency_seconds",
}
_COUNTERS = {
    "completed": "vllm:request_success_total",
    "total_input_tokens": "vllm:prompt_tokens_total",
    "total_output_tokens": "vllm:generation_tokens_total",
    "total_cached_tokens": "vllm:prefix_cache_hits_total",
}
_THEIRS = "vllm bench serve"
_SHOWN = ("mean_ttft_ms", "mean_tpot_ms", "mean_e2el_ms")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--workload", required=True)
    parser.add_argument("--num-tasks", type=int, default=20)
    parser.add_argument("--max-concurrency", type=int, default=1, help="tasks at once")
    parser.add_argument("--max-calls-in-flight", type=int, default=1)
    parser.add_argument("--tool-latency-mean", type=float, default=0.05)
    parser.add_argument(
        "--endpoint", default="chat", help="chat, or completions: token ids, which nobody has to render"
    )
    parser.add_argument("--architectures", nargs="*", default=["react", "orchestrator"])
    parser.add_argument("--vllm", help="the vllm command, to compare with its bench serve")
    parser.add_argument("--tokenizer", help="for vllm bench serve: a folder with the model's tokenizer")
    parser.add_argument("--num-prompts", type=int, default=60, help="single turns")
    parser.add_argument("--prompt-tokens", type=int, default=2_000, help="of a single turn, as our tokenizer counts")
    parser.add_argument("--output-tokens", type=int, default=64, help="of a single turn")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for architecture in options.architectures:
        before = _page(options.base_url)
        summary = _replay(
            options,
            options.workload,
            options.out / architecture,
            "--architecture",
            architecture,
            "--endpoint",
            options.endpoint,
        )
        after = _page(options.base_url)
        print(f"{architecture}: {options.num_tasks} tasks, {summary['completed']:,} calls")
        _compare(summary, _on_the_server(before, after))
    if options.vllm:
        _beside_vllm_bench(options)
    return 0


def _replay(options: argparse.Namespace, workload: str, out: Path, *flags: str) -> dict[str, Any]:
    command = [
        *(sys.executable, "-m", "loadgen", "run", "--base-url", options.base_url, "--workload", workload),
        *("--num-tasks", str(options.num_tasks), "--max-concurrency", str(options.max_concurrency)),
        *("--max-calls-in-flight", str(options.max_calls_in_flight)),
        *("--tool-latency-mean", str(options.tool_latency_mean), "--reset-prefix-cache", "--no-live"),
        *("--out", str(out), *flags),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(done.returncode)
    run = read_run(out)
    for reason in run.header.invalid_reasons:
        print(f"  not valid: {reason}")
    cached = sum(call.num_cached_tokens or 0 for call in run.calls)
    return {**run.summary, "total_cached_tokens": cached}


def _page(base_url: str) -> MetricsPage:
    with urllib.request.urlopen(f"{base_url}/metrics") as response:
        return MetricsPage(response.read().decode())


def _on_the_server(before: MetricsPage, after: MetricsPage) -> dict[str, float]:
    """What the server's counters and histograms grew by."""

    def grown(name: str) -> float:
        return (after.value(name) or 0.0) - (before.value(name) or 0.0)

    numbers = {key: grown(name) for key, name in _COUNTERS.items()}
    for key, name in _HISTOGRAMS.items():
        count = grown(f"{name}_count")
        numbers[key] = grown(f"{name}_sum") / count * 1000 if count else float("nan")
    return numbers


def _compare(ours: Mapping[str, Any], theirs: Mapping[str, float], name: str = "the server") -> None:
    for key, other in theirs.items():
        print(f"  {key:22s} {ours[key]:14,.3f}   {name} {other:14,.3f}   {ours[key] / other - 1:+.2%}", flush=True)


def _beside_vllm_bench(options: argparse.Namespace) -> None:
    """The same single-turn prompts through both, in turns, each beside what the server says of that run.

    A busy machine makes the server slower from one run to the next; what a tool adds to it does not depend on that.
    """
    texts = [filler(f"bench {number}", options.prompt_tokens) for number in range(options.num_prompts)]
    workload, dataset = options.out / "single.jsonl", options.out / "custom.jsonl"
    write_trajectories(
        workload,
        [
            Trajectory(
                task_id=f"single {number}",
                turns=(Turn(user_message=str(text), num_output_tokens=options.output_tokens),),
            )
            for number, text in enumerate(texts)
        ],
    )
    dataset.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    options.num_tasks = len(texts)
    found: dict[str, list[dict[str, float]]] = {"loadgen": [], _THEIRS: []}
    for repeat in range(options.repeats):
        for name, said in (
            # The other tool sends the words as they are.
            (
                "loadgen",
                lambda: _replay(options, str(workload), options.out / f"single-{repeat}", "--no-fit-prompts"),  # noqa: B023
            ),
            (_THEIRS, lambda: _vllm_bench(options, dataset, f"bench-{repeat}.json")),  # noqa: B023
        ):
            _reset(options.base_url)
            before = _page(options.base_url)
            numbers = said()
            server = _on_the_server(before, _page(options.base_url))
            found[name].append({key: numbers[key] / server[key] for key in _SHOWN})
            pairs = ", ".join(f"{key} {numbers[key]:,.2f} (the server {server[key]:,.2f})" for key in _SHOWN)
            print(f"  run {repeat + 1}, {name}: {pairs}", flush=True)
    print(
        f"single turns: {len(texts)} prompts, against the server's histograms, medians of {options.repeats} runs each"
    )
    medians = {
        name: {key: statistics.median(one[key] for one in runs) for key in _SHOWN} for name, runs in found.items()
    }
    for key in _SHOWN:
        ours, theirs = medians["loadgen"][key], medians[_THEIRS][key]
        print(f"  {key:14s} loadgen {ours - 1:+.2%}   {_THEIRS} {theirs - 1:+.2%}   apart by {ours / theirs - 1:+.2%}")


def _vllm_bench(options: argparse.Namespace, dataset: Path, name: str) -> dict[str, float]:
    subprocess.run(
        [
            *(options.vllm, "bench", "serve", "--backend", "openai-chat", "--base-url", options.base_url),
            *("--endpoint", "/v1/chat/completions", "--dataset-name", "custom", "--dataset-path", str(dataset)),
            *("--skip-chat-template", "--custom-output-len", str(options.output_tokens), "--ignore-eos"),
            *("--num-prompts", str(options.num_prompts), "--max-concurrency", str(options.max_concurrency)),
            *("--disable-shuffle", "--disable-tqdm", "--percentile-metrics", "ttft,tpot,itl,e2el", "--save-result"),
            *(("--tokenizer", options.tokenizer) if options.tokenizer else ()),
            *("--result-filename", name, "--result-dir", str(options.out)),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    said: dict[str, float] = json.loads((options.out / name).read_text())
    return said


def _reset(base_url: str) -> None:
    request = urllib.request.Request(f"{base_url}/reset_prefix_cache", method="POST")
    urllib.request.urlopen(request).close()


if __name__ == "__main__":
    sys.exit(main())
