"""One worker process of a run that has several; ``loadgen.workers`` starts it and tells it what to do.

It reads its job from standard input, says "ready" when its door to the server is open, reads the instant at which all
workers start, and writes a run directory of its own. ``CLOCK_MONOTONIC`` is one clock for all processes of a machine.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import json
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from loadgen.config import Settings
from loadgen.perform import RunError, perform
from loadgen.resume import has_run, take_up
from loadgen.shard import Shard
from loadgen.target import TargetError
from mockserver.clock import WallClock, real_seconds
from traces.jsonl import TraceError
from traces.workload import load_workload

READY = b"ready\n"
FINE, FAILED, INTERRUPTED = 0, 2, 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What one worker is told."""

    settings: Settings
    number: int
    num_workers: int
    directory: str
    run_id: str
    time_scale: float
    server_url: str
    resumes_at: float | None = None
    """When all workers go on, in a run that is resumed; None: it starts."""
    retry_failed: bool = False
    workload_path: str | None = None
    """Where the workload lies on this machine, if not where the settings say."""


def main() -> int:
    """Do the job on standard input."""
    job = TypeAdapter(Job).validate_python(json.loads(sys.stdin.buffer.readline()))
    settings = job.settings
    directory = Path(job.directory)
    shard = Shard(
        number=job.number,
        num_shards=job.num_workers,
        server_url=job.server_url,
        wait_for_start=functools.partial(_wait_for_start, starts_at=job.resumes_at or 0.0),
        starts_at=job.resumes_at or 0.0,
    )
    try:
        resumes = job.resumes_at is not None and has_run(directory)
        workload = load_workload(
            job.workload_path or settings.workload, seed=settings.seed, num_tasks=settings.num_tasks
        )
        gc.freeze()  # it stays as long as the process
        outcome = perform(
            settings,
            workload,
            directory,
            summarize=_no_summary,
            run_id=job.run_id,
            time_scale=job.time_scale,
            shard=shard,
            unfinished=take_up(directory, retry_failed=job.retry_failed) if resumes else None,
        )
    except KeyboardInterrupt:
        return INTERRUPTED
    except (RunError, TargetError, TraceError, ValueError, OSError) as error:
        sys.stderr.write(" ".join(str(error).split()) + "\n")
        return FAILED
    return INTERRUPTED if outcome.interrupted else FINE


async def _wait_for_start(clock: WallClock, *, starts_at: float) -> None:
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    really_at = float(sys.stdin.buffer.readline())
    run = asyncio.current_task()
    assert run is not None, "called by the run"
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _stop_without_employer, run)
    clock.start(at=starts_at + (real_seconds() - really_at) * clock.rate)
    await clock.sleep_until(starts_at)


def _stop_without_employer(run: asyncio.Task[None]) -> None:
    """Nothing more is said on standard input: its end means that the process at the other end is gone.

    Or that it wants ``run`` to end, which may have heard so from the terminal already; a second signal would break off
    its ending too.
    """
    asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
    if not run.cancelling():
        signal.raise_signal(signal.SIGINT)


def _no_summary(**_: Any) -> dict[str, Any]:
    """A part of a run has no numbers of its own: percentiles of parts say nothing of the whole."""
    return {"invalid_reasons": [], **{f"{kind}_{name}_s": None for kind in _KINDS for name in ("lag", "send_lag")}}


_KINDS = ("p50", "p99", "max")

if __name__ == "__main__":
    sys.exit(main())
