"""Settings of the agents themselves: how a task is divided, what a history keeps, and what lies beneath the calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal

from loadgen import architectures
from loadgen.abilities import Abilities
from loadgen.architectures import Architecture
from loadgen.context_policy import ContextPolicy, ContextPolicyName
from loadgen.harness import BatchWindow, Harness
from loadgen.sandboxes import GB, SandboxPool
from loadgen.shard import Shard
from loadgen.stores import store as stores
from loadgen.tool_layer import ToolLayer, WorkerPool
from loadgen.tools import ToolTimes
from mockserver.node_settings import NodeSettings
from mockserver.settings import setting as _setting

_AT_LEAST_ONE = (
    "chain_stages",
    "hierarchy_depth",
    "hierarchy_width",
    "tool_workers",
    "gpu_tool_workers",
    "max_sandboxes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings(NodeSettings):
    """How agents work."""

    architecture: str = _setting(
        "react",
        f"how agents work: {', '.join(architectures.ARCHITECTURES)}, or your own as package.module:function",
        only="run sweep",
    )
    architectures: tuple[str, ...] = _setting(
        ("react", "orchestrator"), "the architectures to compare; all: every one", only="experiment"
    )
    chain_stages: int = _setting(4, "chain: how many stages a task has")
    hierarchy_depth: int = _setting(2, "hierarchical: levels of managers")
    hierarchy_width: int = _setting(3, "hierarchical: how many report to one manager, at most")
    # -- what a prompt holds ---------------------------------------------------------------------------------------
    tool_schemas: Literal["separate", "shared"] = _setting(
        "separate", "separate: an agent has its own tools; shared: all of the task's, in the same order"
    )
    context_policy: ContextPolicyName = _setting(  # noqa: RUF009  (a field, as all the others)
        "none", "what happens to a history over --context-tokens: truncate, window, keep-prefix or summarise"
    )
    context_tokens: int = _setting(16_384, "tokens of a prompt from which on the context policy works")
    summary_tokens: int = _setting(500, "length of a summary that stands for a history")
    history: Literal["recorded", "live"] = _setting(
        "recorded", "recorded: the next prompt holds what the recording says; live: what the server really answered"
    )
    # -- what the model can do -------------------------------------------------------------------------------------
    model_abilities: bool = _setting(
        True, "repeat tool calls that the profile's model gets wrong (where the machine is ours)"
    )
    guided_decoding: bool = _setting(
        False, "hold tool calls to their schemas, which takes the profile's overhead (where the machine is ours)"
    )
    # -- what lies beneath the calls -------------------------------------------------------------------------------
    tool_latency: Literal["exponential", "recorded", "domains"] = _setting(
        "exponential",
        "how long tools take: drawn; as recorded where the recording says; drawn for each tool domain",
    )
    tool_latency_mean: float = _setting(0.6, "mean seconds of an exponential tool latency")
    tool_overheads: bool = _setting(False, "let parsing (1-5 ms), serialising (1-3 ms) and injecting take time")
    tool_workers: int | None = _setting(None, "workers for tools that take a CPU; default: as many as needed")
    gpu_tool_workers: int | None = _setting(None, "workers for the tools of --gpu-tools; default: as many as needed")
    gpu_tools: tuple[str, ...] = _setting((), "tool domains whose tools take a GPU")
    tool_timeout: float | None = _setting(None, "seconds after which a tool is given up; default: never")
    tool_failure_rate: float = _setting(0.0, "share of tool executions that fail")
    tool_retries: int = _setting(2, "how often a tool is tried again before the model has to ask again")
    sandboxes: bool = _setting(False, "boot a sandbox for each session")
    max_sandboxes: int | None = _setting(None, "sandboxes at once, at most")
    max_sandbox_memory: float | None = _setting(None, "GB of all sandboxes together, at most")
    batch_window: float | None = _setting(None, "seconds within which calls that are due wait for each other")
    state: str | None = _setting(
        None, "store the agents' state with every step: memory:, sqlite:FILE, redis://HOST:PORT/DB, postgresql://..."
    )
    state_name: str | None = _setting(None, "the run's name in that store; default: its directory")
    state_patience: float = _setting(30.0, "real seconds to wait for a store that does not answer")
    resume: bool = _setting(False, "go on where the run stood that the store has")

    def __post_init__(self) -> None:
        NodeSettings.__post_init__(self)
        for name in _AT_LEAST_ONE:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self.harness(is_our_model=False)  # each of its parts checks what it is told
        if self.state is not None:
            stores.scheme_of(self.state)
        elif self.resume:
            raise ValueError("resume needs the state of the run that is to go on: --state URL")
        if self.state_patience < 0:
            raise ValueError(f"state_patience must be at least 0, got {self.state_patience}")

    def find_architecture(self, name: str | None = None) -> Architecture:
        """The architecture ``name``, by default the run's, as these settings have it."""
        return architectures.find_architecture(
            self.architecture if name is None else name,
            chain_stages=self.chain_stages,
            hierarchy_depth=self.hierarchy_depth,
            hierarchy_width=self.hierarchy_width,
        )

    @property
    def state_needs_sockets(self) -> bool:
        """Whether the store is behind a socket, which virtual time refuses."""
        return self.state is not None and stores.scheme_of(self.state) not in stores.IN_PROCESS

    def fingerprint(self, workload_digest: str) -> dict[str, Any]:
        """What a run and the one that resumes it must have in common."""
        own = {one.name for one in fields(AgentSettings)} - {one.name for one in fields(NodeSettings)}
        names = sorted(own - {"architectures", "state", "state_name", "state_patience", "resume"})
        values = {name: getattr(self, name) for name in ("seed", "profile", *names)}
        return {"workload": workload_digest} | {
            name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
        }

    def tool_times(self) -> ToolTimes:
        """How long tools take."""
        return ToolTimes(
            seed=self.seed,
            mean_s=self.tool_latency_mean,
            recorded=self.tool_latency == "recorded",
            by_domain=self.tool_latency == "domains",
        )

    def harness(self, *, is_our_model: bool, shard: Shard | None = None) -> Harness:
        """What agents run in, for one run or a shard of it, which has its share of workers and sandboxes.

        ``is_our_model``: the machine is the profile's, and so are its abilities.
        """
        shard = shard or Shard()
        return Harness(
            context_policy=None
            if self.context_policy == "none"
            else ContextPolicy(
                name=self.context_policy, max_tokens=self.context_tokens, summary_tokens=self.summary_tokens
            ),
            shares_tools=self.tool_schemas == "shared",
            history_is_live=self.history == "live",
            abilities=self._abilities() if is_our_model else None,
            tools=self._tool_layer(shard),
            sandboxes=SandboxPool(
                seed=self.seed,
                most_sandboxes=shard.share(self.max_sandboxes),
                most_memory_bytes=None
                if self.max_sandbox_memory is None
                else self.max_sandbox_memory * GB / shard.num_shards,
            )
            if self.sandboxes or self.max_sandboxes is not None or self.max_sandbox_memory is not None
            else None,
            batch_window=None if self.batch_window is None else BatchWindow(window_s=self.batch_window),
        )

    def _abilities(self) -> Abilities | None:
        profile, _ = self.resolve()
        accuracy, max_tools = (profile.tool_call_accuracy, profile.max_tools) if self.model_abilities else (1.0, None)
        overhead = profile.guided_decoding_overhead if self.guided_decoding else 0.0
        if accuracy >= 1.0 and max_tools is None and not overhead:
            return None
        return Abilities(
            tool_call_accuracy=accuracy, max_tools=max_tools, guided_decoding_overhead=overhead, seed=self.seed
        )

    def _tool_layer(self, shard: Shard) -> ToolLayer | None:
        num_workers, num_gpu_workers = shard.share(self.tool_workers), shard.share(self.gpu_tool_workers)
        asked_for = (
            self.tool_overheads,
            self.tool_workers is not None,
            self.gpu_tool_workers is not None,
            self.tool_timeout is not None,
            self.tool_failure_rate > 0,
        )
        layer = ToolLayer(
            times=self.tool_times(),
            has_overheads=self.tool_overheads,
            cpu_pool=None if num_workers is None else WorkerPool(num_workers),
            gpu_pool=None if num_gpu_workers is None else WorkerPool(num_gpu_workers),
            gpu_domains=frozenset(self.gpu_tools),
            timeout_s=self.tool_timeout,
            failure_rate=self.tool_failure_rate,
            num_retries=self.tool_retries,
        )
        return layer if any(asked_for) else None

    def compared_architectures(self) -> Iterator[str]:
        """The names in ``architectures``, ``all`` spelt out."""
        return architectures.expand(self.architectures)
