"""One worker process of a run that has several; ``loadgen.workers`` starts it and tells it what to do.

It reads its job from standard input, says "ready" when its door to the server is open, reads the instant at which all
workers start, and writes a run directory of its own. ``CLOCK_MONOTONIC`` is one clock for all processes of a machine.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from loadgen.config import Settings
from loadgen.perform import RunError, perform
from loadgen.server_view import TargetError
from loadgen.shard import Shard
from mockserver.clock import WallClock, real_seconds
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


def main() -> int:
    """Do the job on standard input."""
    job = TypeAdapter(Job).validate_python(json.loads(sys.stdin.buffer.readline()))
    settings = job.settings
    shard = Shard(
        number=job.number,
        num_shards=job.num_workers,
        server_url=job.server_url,
        wait_for_start=_wait_for_start,
    )
    try:
        workload = load_workload(settings.workload, seed=settings.seed, num_tasks=settings.num_tasks)
        outcome = perform(
            settings,
            workload,
            Path(job.directory),
            summarize=_no_summary,
            run_id=job.run_id,
            time_scale=job.time_scale,
            shard=shard,
        )
    except KeyboardInterrupt:
        return INTERRUPTED
    except (RunError, TargetError, ValueError, OSError) as error:
        sys.stderr.write(" ".join(str(error).split()) + "\n")
        return FAILED
    return INTERRUPTED if outcome.interrupted else FINE


async def _wait_for_start(clock: WallClock) -> None:
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    starts_at = float(sys.stdin.buffer.readline())
    clock.start(at=(real_seconds() - starts_at) * clock.rate)
    await clock.sleep_until(0.0)


def _no_summary(**_: Any) -> dict[str, Any]:
    """A part of a run has no numbers of its own: percentiles of parts say nothing of the whole."""
    return {"invalid_reasons": [], **{f"{kind}_{name}_s": None for kind in _KINDS for name in ("lag", "send_lag")}}


_KINDS = ("p50", "p99", "max")

if __name__ == "__main__":
    sys.exit(main())
