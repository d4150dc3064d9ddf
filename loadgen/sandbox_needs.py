"""What a number of agent sessions needs: memory and cores of the sandboxes that their tools run in."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loadgen.sandboxes import BOOT_S, GB, MB, MEMORY_BYTES, SandboxSize
from loadgen.tools import ToolTimes
from traces.jsonl import read_run

NAME = "sandboxes"
HELP = "what a number of agent sessions needs: memory and cores of their sandboxes"
DEFAULT_BUSY_SHARE = 0.1


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The command's flags."""
    parser.add_argument("--sessions", type=int, default=1000, help="agent sessions at once")
    parser.add_argument("--max-sandboxes", type=int, help="sandboxes at once, at most")
    parser.add_argument("--max-sandbox-memory", type=float, metavar="GB", help="memory of all sandboxes, at most")
    parser.add_argument("--run", type=Path, metavar="DIR", help="a run to take the tools' share of CPU time from")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sandboxes' sizes")


def lines(flags: Mapping[str, Any]) -> Iterator[str]:
    """What the command prints."""
    num_sessions: int = flags["sessions"]
    if num_sessions < 1:
        raise ValueError(f"sessions must be at least 1, got {num_sessions}")
    sizes = [SandboxSize.of(f"session-{number}", seed=flags["seed"]) for number in range(num_sessions)]
    busy_share, source = _busy_share(flags["run"])
    num_up, memory_bytes = _that_fit(sizes, flags["max_sandboxes"], flags["max_sandbox_memory"])
    num_cores = max(math.ceil(num_up * busy_share), 1)
    boot_s = sum(size.boot_s for size in sizes[:num_up]) / num_up
    yield f"{num_sessions:,} sessions, one sandbox each"
    if num_up < num_sessions:
        yield f"  up at once   {num_up:,}; {num_sessions - num_up:,} sessions wait for one of them to end"
    yield f"  memory       {memory_bytes / GB:,.1f} GB ({memory_bytes / num_up / MB:.0f} MB each on average)"
    yield f"  cores        {num_cores:,} ({busy_share:.1%} of a session's time on a core)"
    yield f"  boot         {boot_s * 1000:.0f} ms each; {math.ceil(num_up / num_cores) * boot_s:.1f} s until all are up"
    yield "assumed:"
    yield f"  memory drawn evenly from {MEMORY_BYTES[0] / MB:g} to {MEMORY_BYTES[1] / MB:g} MB, none of it shared"
    yield f"  boot drawn evenly from {BOOT_S[0] * 1000:g} to {BOOT_S[1] * 1000:g} ms, on a core of its own"
    yield f"  {source}"
    yield "  a tool at work takes one core, and what sessions do is spread evenly over time"


def _that_fit(sizes: list[SandboxSize], most: int | None, most_gb: float | None) -> tuple[int, float]:
    """How many of ``sizes``, in order, are up at once within the limits, and their memory."""
    num_up, memory_bytes = 0, 0.0
    for size in sizes[: len(sizes) if most is None else most]:
        if most_gb is not None and memory_bytes + size.memory_bytes > most_gb * GB:
            break
        num_up, memory_bytes = num_up + 1, memory_bytes + size.memory_bytes
    if num_up == 0:
        raise ValueError("the limits leave no room for one sandbox")
    return num_up, memory_bytes


def _busy_share(directory: Path | None) -> tuple[float, str]:
    """The share of a session's time in which one of its tools takes a core, and where that is from."""
    if directory is None:
        return DEFAULT_BUSY_SHARE, f"a session's tools are on a core {DEFAULT_BUSY_SHARE:.0%} of its time (see --run)"
    run = read_run(directory)
    times = ToolTimes()
    tool_s = sum(tool.ended_at - tool.started_at for tool in run.tools if not times.is_remote(tool.domain))
    task_s = sum(task.ended_at - task.started_at for task in run.tasks)
    if not task_s:
        raise ValueError(f"{directory}: no task of this run has ended")
    return (
        tool_s / task_s,
        f"tools that are not remote took {tool_s:,.0f} of {task_s:,.0f} s of task time in {directory}",
    )
