"""What a person sees while a run goes on: how far it is, and how the server and the clock are doing."""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.table import Table

from loadgen.recorder import Recorder
from mockserver.clock import Clock, real_seconds

_REFRESH_S = 0.25
_LINE_S = 10.0
"""Without a terminal: one line so often."""


@dataclass(eq=False, slots=True)
class LiveView:
    """Progress of one run. ``tick`` is called for every record and costs next to nothing between refreshes."""

    title: str
    num_tasks: int
    console: Console
    recorder: Recorder | None = None
    clock: Clock | None = None
    _started_at: float = field(default_factory=real_seconds)
    _next_at: float = 0.0
    _live: Live | None = None
    _num_counted: int = 0
    _num_prompt_tokens: int = 0
    _num_cached_tokens: int = 0
    _num_failed: int = 0

    def start(self, recorder: Recorder, clock: Clock) -> None:
        """The run begins."""
        self.recorder, self.clock = recorder, clock
        self._started_at = real_seconds()
        if self.console.is_terminal:
            # Refreshed by hand: a thread of its own has no place in virtual time.
            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.start()
        else:
            self._next_at = self._started_at + _LINE_S

    def tick(self) -> None:
        """Something was recorded."""
        now = real_seconds()
        if now < self._next_at:
            return
        self._next_at = now + (_LINE_S if self._live is None else _REFRESH_S)
        facts = self._facts(now)
        if self._live is None:
            self.console.print(f"{self.title}: " + ", ".join(f"{name} {value}" for name, value in facts.items()))
        else:
            self._live.update(_as_table(self.title, facts), refresh=True)

    def stop(self) -> None:
        """The run has ended, one way or another."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _facts(self, now: float) -> dict[str, str]:
        assert self.recorder is not None, "start() comes first"
        assert self.clock is not None, "start() comes first"
        recorder = self.recorder
        for call in recorder.calls[self._num_counted :]:
            self._num_prompt_tokens += call.num_prompt_tokens or 0
            self._num_cached_tokens += call.num_cached_tokens or 0
            self._num_failed += call.error is not None
        self._num_counted = len(recorder.calls)
        facts = {
            "tasks done": f"{len(recorder.tasks)}/{self.num_tasks}",
            "calls done": str(len(recorder.calls)),
            "in flight": str(recorder.num_in_flight),
        }
        if recorder.samples:
            last = recorder.samples[-1]
            facts["running"] = str(last.num_running)
            facts["queue"] = str(last.num_waiting)
        if self._num_prompt_tokens:
            facts["hit rate"] = f"{self._num_cached_tokens / self._num_prompt_tokens:.1%}"
        if self._num_failed:
            facts["failed"] = str(self._num_failed)
        facts["simulated"] = f"{self.clock.now():.1f} s"
        facts["real"] = f"{now - self._started_at:.1f} s"
        lags = [call.lag_s for call in recorder.calls[-50:] if call.lag_s is not None]
        if lags:
            facts["lag"] = f"{max(lags):.3f} s"
        return facts


def _as_table(title: str, facts: dict[str, str]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in facts:
        table.add_column(name, justify="right")
    table.add_row(*facts.values())
    return table
