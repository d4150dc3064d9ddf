"""Settings of the load: which tasks, how many at once, when they start, and what counts as good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from loadgen import arrivals
from loadgen.target_settings import TargetSettings
from mockserver.settings import setting as _setting
from traces.trajectory import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings(TargetSettings):
    """What is asked of the server, and how fast."""

    workload: str = _setting("toolathlon-like", "an embedded workload's name, or a file of trajectories")
    num_tasks: int | None = _setting(None, "the workload's first so many tasks; default: all", flags=("--num-prompts",))
    # -- a closed loop: the next task starts when one has ended ----------------------------------------------------
    max_concurrency: int | None = _setting(None, "tasks at work at once, at most; default: all of them")
    max_calls_in_flight: int | None = _setting(None, "model calls at once, at most; default: as many as come")
    # -- an open loop: tasks start when their time has come --------------------------------------------------------
    request_rate: float = _setting(float("inf"), "tasks that start per second; inf: all at once")
    burstiness: float = _setting(1.0, "1: Poisson arrivals; less: burstier; more: more even; inf: a constant gap")
    ramp_up_strategy: Literal["linear", "exponential"] | None = _setting(
        None, "let the rate change over the tasks from ramp_up_start_rps to ramp_up_end_rps"
    )
    ramp_up_start_rps: float | None = _setting(None, "rate of the first tasks of a ramp")
    ramp_up_end_rps: float | None = _setting(None, "rate of the last tasks of a ramp")
    recorded_arrivals: bool = _setting(False, "start tasks when the recording says they started")
    call_schedule: str | None = _setting(
        None, "directory of a run of the same: send each call as long after its task's start as there, come what may"
    )
    duration: float | None = _setting(None, "seconds after which no further task starts; those at work are finished")
    repeat: int = _setting(1, "how often the run is done, each time with other arrivals and tool latencies", only="run")
    workers: int = _setting(1, "processes that share the tasks, for loads that one does not carry")
    ray: str | None = _setting(
        None, "have the workers on the Ray cluster at this address: auto, local, HOST:PORT or ray://HOST:PORT"
    )
    # -- what is measured of it ------------------------------------------------------------------------------------
    num_warmups: int = _setting(
        0, "short calls before the run that nobody measures", flags=("--warmup-request-count", "--warmup-requests")
    )
    warmup: float = _setting(
        0.0,
        "seconds at the start that no number is about (below 1: that share of the run)",
        flags=("--warmup-duration",),
    )
    cooldown: float = _setting(0.0, "seconds at the end that no number is about (below 1: that share of the run)")
    steady_window: bool = _setting(
        False, "measure only while the load is full: not while tasks are still too few, or few are left"
    )
    # -- what counts as good ---------------------------------------------------------------------------------------
    goodput: tuple[str, ...] = _setting((), "what a call must meet, in ms: ttft:500 tpot:50 e2el:10000")

    def __post_init__(self) -> None:
        TargetSettings.__post_init__(self)
        for name in ("num_tasks", "max_concurrency", "max_calls_in_flight", "workers", "repeat"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        for name in ("duration", "request_rate", "burstiness", "ramp_up_start_rps", "ramp_up_end_rps"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be more than 0, got {value}")
        for name in ("num_warmups", "warmup", "cooldown"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        if self.has_workers and self.is_in_process:
            raise ValueError("workers share a server, not an engine in one process: --target http or a URL")
        if self.has_workers and self.state is not None:
            raise ValueError("workers do not share a state: leave out --state or --workers")
        if self.call_schedule is not None and (self.state is not None or self.batch_window is not None):
            raise ValueError("calls that are sent on schedule wait for nothing: leave out --state and --batch-window")
        if self.call_schedule is not None and self.history == "live":
            raise ValueError("calls that are sent on schedule wait for no answer, which a live history is made of")
        ramp = (self.ramp_up_strategy, self.ramp_up_start_rps, self.ramp_up_end_rps)
        if any(one is not None for one in ramp) and any(one is None for one in ramp):
            raise ValueError("a ramp needs all of ramp_up_strategy, ramp_up_start_rps and ramp_up_end_rps")
        ways = (self.request_rate != float("inf"), self.ramp_up_strategy is not None, self.recorded_arrivals)
        if sum(ways) > 1:
            raise ValueError("tasks arrive in one way: give one of request_rate, ramp_up_strategy, recorded_arrivals")

    @property
    def has_workers(self) -> bool:
        """Whether the tasks are done by other processes than this one."""
        return self.workers > 1 or self.ray is not None

    @property
    def is_open_loop(self) -> bool:
        """Whether tasks start by a schedule, whatever the server does."""
        return self.request_rate != float("inf") or self.ramp_up_strategy is not None or self.recorded_arrivals

    def arrivals(self, tasks: Sequence[Trajectory]) -> tuple[float, ...]:
        """When each task starts."""
        num_tasks = len(tasks)
        if self.recorded_arrivals:
            return arrivals.recorded([task.started_at for task in tasks])
        if self.ramp_up_strategy is not None:
            assert self.ramp_up_start_rps is not None, "checked when made"
            assert self.ramp_up_end_rps is not None, "checked when made"
            return arrivals.ramp(
                num_tasks,
                first_rate=self.ramp_up_start_rps,
                last_rate=self.ramp_up_end_rps,
                shape=self.ramp_up_strategy,
            )
        if self.request_rate == float("inf"):
            return arrivals.at_once(num_tasks)
        if self.burstiness == float("inf"):
            return arrivals.constant(num_tasks, rate=self.request_rate)
        return arrivals.gamma(num_tasks, rate=self.request_rate, burstiness=self.burstiness, seed=self.seed)
