"""Many tasks at once over HTTP, at real time: what memory and CPU both sides take, and how late they say they were.

    python -m benchmarks.many_tasks [--tasks 1000] [--turns 3] [--tool-latency 10] [--time-scale 1] [--warmup 0]

All tasks start at once, each the first turns of one of fifty tasks of the embedded workload: with a thousand different
ones the simulated node would be at their first prompts for minutes. The shorter the tools take, the more calls a
second: with 10 s some 80, which two cores carry, and with 1 s several hundred, which they do not.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from traces.jsonl import read_run, write_trajectories
from traces.workload import iter_workload

_NUM_DIFFERENT = 50


def _megabytes(pid: int) -> float:
    """Resident memory now; 0 where the process has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith("VmRSS")), 0.0)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def measure(
    num_tasks: int, num_turns: int, *, tool_latency_s: float, time_scale: float, warmup_s: float, folder: Path
) -> None:
    """Do one run and print what it took."""
    workload = folder / "tasks.jsonl"
    different = tuple(iter_workload("toolathlon-like", num_tasks=_NUM_DIFFERENT))
    chosen = ((number, different[number % _NUM_DIFFERENT]) for number in range(num_tasks))
    write_trajectories(workload, (replace(one, task_id=f"t{k}", turns=one.turns[:num_turns]) for k, one in chosen))
    port = _free_port()
    address = ("--host", "127.0.0.1", "--port", str(port), "--time-scale", str(time_scale))
    run = folder / "run"
    command = ["run", "--workload", str(workload), "--base-url", f"http://127.0.0.1:{port}", "--out", str(run)]
    command += ["--tool-latency-mean", str(tool_latency_s), "--warmup", str(warmup_s)]
    command += ["--no-live", "--ready-check-timeout-sec", "30"]
    server = subprocess.Popen([sys.executable, "-m", "mockserver", *address], stdout=subprocess.DEVNULL)
    client = subprocess.Popen([sys.executable, "-m", "loadgen", *command], stdout=subprocess.DEVNULL)
    samples: list[tuple[float, float, float]] = []
    server_cpu_s = 0.0
    started_at: float | None = None
    try:
        while client.poll() is None:
            time.sleep(0.5)
            if started_at is None and (run / "run.json").exists():
                started_at = time.monotonic()
            if started_at is not None:
                samples.append((time.monotonic() - started_at, _megabytes(client.pid), _megabytes(server.pid)))
                server_cpu_s = _cpu_s(server.pid)
    finally:
        client.wait()  # it hears Ctrl-C too, and writes down what it has
        server.terminate()
        server.wait()
    _print(run, samples, server_cpu_s)


def _print(run: Path, samples: list[tuple[float, float, float]], server_cpu_s: float) -> None:
    summary = json.loads((run / "summary.json").read_text())
    header = read_run(run).header
    elapsed_s = samples[-1][0]
    print(f"{header.num_tasks:,} tasks at once, {len(read_run(run).calls):,} calls in {elapsed_s:.0f} real seconds")
    print(f"calls measured: {summary['measured_calls']:,}")
    print(f"most calls in flight: {summary['max_concurrent_requests']:,}")
    for name, column, cpu_s in (("load generator", 1, header.cpu_s or 0.0), ("server", 2, server_cpu_s)):
        thirds = [max(one[column] for one in samples if one[0] <= elapsed_s * part / 3) for part in (1, 2, 3)]
        shown = ", ".join(f"{value:,.0f}" for value in thirds)
        print(f"{name}: peak memory by a third, two thirds and the end of the run {shown} MB; {cpu_s:.0f} s of CPU")
    for name in ("lag", "send_lag"):
        p50, p99, most = (summary[f"{kind}_{name}_s"] for kind in ("p50", "p99", "max"))
        print(f"{name}: p50 {p50:.3f} s, p99 {p99:.3f} s, max {most:.3f} s" if p50 is not None else f"{name}: unknown")
    print(f"TTFT p50 {summary['p50_ttft_ms']:.0f} ms, TPOT p50 {summary['p50_tpot_ms']:.2f} ms")
    print(header.notes.get("load generator", ""))
    print("valid" if not header.invalid_reasons else f"INVALID: {'; '.join(header.invalid_reasons)}")


def main() -> None:
    """Parse what is asked for and measure it."""
    parser = argparse.ArgumentParser(description="Memory, CPU and lateness with many tasks at once over HTTP.")
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--tool-latency", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument("--time-scale", type=float, default=1.0)
    parser.add_argument("--warmup", type=float, default=0.0, metavar="SECONDS", help="leave the opening burst out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="replayrig-") as folder:
        measure(
            options.tasks,
            options.turns,
            tool_latency_s=options.tool_latency,
            time_scale=options.time_scale,
            warmup_s=options.warmup,
            folder=Path(folder),
        )


if __name__ == "__main__":
    main()
