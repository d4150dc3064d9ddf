"""What a set of trajectories is like, in numbers: sizes, growth, reuse, fan-out, tools.

Prompts are those of a ReAct replay: one agent does the whole task in one history. Recorded prompts count as recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from traces.domains import LOCAL
from traces.prompt_size import CallSize, react_calls, react_tools, system_tokens
from traces.reuse import Reuse
from traces.trajectory import Trajectory, Turn

_SHARES = {"p5": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Quantiles of some numbers, linear between neighbours as numpy's are."""

    count: int
    total: float
    mean: float
    p5: float
    p25: float
    p50: float
    p75: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Distribution | None:
        """The distribution of ``values``; None where there are none."""
        ordered = sorted(values)
        if not ordered:
            return None
        quantiles = {name: _quantile(ordered, share) for name, share in _SHARES.items()}
        total = sum(ordered)
        return cls(count=len(ordered), total=total, mean=total / len(ordered), max=ordered[-1], **quantiles)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """The numbers of one workload."""

    num_tasks: int
    num_calls: int
    num_tool_calls: int
    num_prompt_tokens: int
    num_output_tokens: int
    distinct_tokens: int
    """Tokens of all prompts and outputs, what they share counted once."""
    best_hit_rate: float
    """Prompt tokens that an unbounded cache would hold already, doing one task after the other."""
    distributions: dict[str, Distribution]
    parallel_share: float
    """How many of the calls that use tools use several at once."""
    num_tool_calls_by_domain: dict[str, int]
    num_tasks_by_domain: dict[str, int]
    num_tasks_by_source: dict[str, int]
    prompt_growth: list[float]
    """A prompt's share of its task's longest, at 0, 10 ... 100 % of the task's calls; medians over the tasks."""


@dataclass(eq=False, slots=True)
class _Collected:
    """Numbers as they come in, one list for each distribution."""

    values_by_name: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, *values: float) -> None:
        self.values_by_name.setdefault(name, []).extend(values)


def measure(trajectories: Iterable[Trajectory]) -> Stats:
    """The numbers of ``trajectories``, which are looked at once."""
    collected = _Collected()
    reuse = Reuse()
    calls_by_domain: Counter[str] = Counter()
    tasks_by_domain: Counter[str] = Counter()
    tasks_by_source: Counter[str] = Counter()
    growth: list[list[float]] = [[] for _ in range(11)]
    all_prompts: list[list[int]] = []
    num_tasks = num_with_tools = num_parallel = 0
    for trajectory in trajectories:
        num_tasks += 1
        tasks_by_source[trajectory.source] += 1
        calls = list(react_calls(trajectory))
        steps = [call.turn for call in calls]
        reuse.add(trajectory, calls)
        all_prompts.append([call.num_prompt_tokens for call in calls])
        _add_sizes(collected, trajectory, calls)
        _add_growth(growth, [call.num_prompt_tokens for call in calls])
        domains = [call.domain for turn in steps for call in turn.tool_calls]
        calls_by_domain.update(domains)
        tasks_by_domain.update(set(domains))
        collected.add("subagents (re-cut)", len(set(domains) - {LOCAL}))
        collected.add("steps in one domain", *_runs(steps))
        num_with_tools += sum(bool(turn.tool_calls) for turn in steps)
        num_parallel += sum(len(turn.tool_calls) > 1 for turn in steps)
    collected.add("reuse distance", *_reuse_distances(all_prompts))
    distributions = {name: Distribution.of(values) for name, values in collected.values_by_name.items()}
    present = {name: one for name, one in distributions.items() if one is not None}
    num_prompt_tokens = _total(present, "prompt tokens")
    return Stats(
        num_tasks=num_tasks,
        num_calls=_total(present, "calls per task"),
        num_tool_calls=calls_by_domain.total(),
        num_prompt_tokens=num_prompt_tokens,
        num_output_tokens=_total(present, "output tokens"),
        distinct_tokens=reuse.num_distinct_tokens,
        best_hit_rate=reuse.num_hit_tokens / num_prompt_tokens if num_prompt_tokens else 0.0,
        distributions=present,
        parallel_share=num_parallel / num_with_tools if num_with_tools else 0.0,
        num_tool_calls_by_domain=dict(calls_by_domain.most_common()),
        num_tasks_by_domain=dict(sorted(tasks_by_domain.items(), key=lambda item: (-item[1], item[0]))),
        num_tasks_by_source=dict(tasks_by_source),
        prompt_growth=[round(_quantile(sorted(shares), 0.5), 4) for shares in growth if shares],
    )


def _total(distributions: dict[str, Distribution], name: str) -> int:
    return int(distributions[name].total) if name in distributions else 0


def _add_sizes(collected: _Collected, trajectory: Trajectory, calls: Sequence[CallSize]) -> None:
    prompts = [call.num_prompt_tokens for call in calls]
    collected.add("calls per task", len(calls))
    collected.add("prompt tokens", *prompts)
    collected.add("first prompt", *prompts[:1])
    collected.add("last prompt", *prompts[-1:])
    collected.add("output tokens", *(call.num_output_tokens for call in calls))
    tools = react_tools(trajectory)
    if tools or trajectory.system_prompt:
        collected.add("system and tools", system_tokens(trajectory.system_prompt, tools))
    if tools:
        collected.add("tools offered", len(tools))
    for call in calls:
        turn = call.turn
        collected.add("tool result tokens", *call.num_result_tokens)
        collected.add("tool latency (s)", *(c.latency_s for c in turn.tool_calls if c.latency_s is not None))
        if turn.delay_s is not None:
            collected.add("delay before (s)", turn.delay_s)
        if turn.duration_s is not None:
            collected.add("recorded call (s)", turn.duration_s)
        if turn.spawns:
            collected.add("recorded fan-out", len(turn.spawns))


def _reuse_distances(prompts: Sequence[Sequence[int]]) -> list[int]:
    """Tokens of prompts between a call and its task's next one, if all tasks start at once and go in step.

    That is how much a cache has to hold so that the next call still finds its history there.
    """
    sums = [0] * max(map(len, prompts), default=0)
    for task in prompts:
        for index, num_tokens in enumerate(task):
            sums[index] += num_tokens
    return [sums[index] for task in prompts for index in range(1, len(task))]


def _add_growth(growth: list[list[float]], prompts: Sequence[int]) -> None:
    longest = max(prompts, default=0)
    if longest and len(prompts) > 1:
        for decile, shares in enumerate(growth):
            shares.append(prompts[round(decile * (len(prompts) - 1) / 10)] / longest)


def _runs(steps: Sequence[Turn]) -> list[int]:
    """How many steps in a row use tools of one domain, run by run."""
    runs: list[int] = []
    previous = None
    for turn in steps:
        domain = turn.tool_calls[0].domain if turn.tool_calls else None
        if domain is not None and domain == previous:
            runs[-1] += 1
        elif domain is not None:
            runs.append(1)
        previous = domain
    return runs


def _quantile(ordered: Sequence[float], share: float) -> float:
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
