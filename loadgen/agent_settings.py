"""Settings of the agents themselves: how a task is divided, what a history keeps, and what lies beneath the calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from loadgen import architectures
from loadgen.architectures import Architecture
from mockserver.node_settings import NodeSettings
from mockserver.node_settings import setting as _setting


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings(NodeSettings):
    """How agents work."""

    architecture: str = _setting(
        "react",
        f"how agents work: {', '.join(architectures.ARCHITECTURES)}, or your own as package.module:function",
        only="run",
    )
    architectures: tuple[str, ...] = _setting(
        ("react", "orchestrator"), "the architectures to compare; all: every one", only="experiment"
    )
    chain_stages: int = _setting(4, "chain: how many stages a task has")
    hierarchy_depth: int = _setting(2, "hierarchical: levels of managers")
    hierarchy_width: int = _setting(3, "hierarchical: how many report to one manager, at most")

    def __post_init__(self) -> None:
        NodeSettings.__post_init__(self)
        for name in ("chain_stages", "hierarchy_depth", "hierarchy_width"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    def find_architecture(self, name: str | None = None) -> Architecture:
        """The architecture ``name``, by default the run's, as these settings have it."""
        return architectures.find_architecture(
            self.architecture if name is None else name,
            chain_stages=self.chain_stages,
            hierarchy_depth=self.hierarchy_depth,
            hierarchy_width=self.hierarchy_width,
        )

    def compared_architectures(self) -> Iterator[str]:
        """The names in ``architectures``, ``all`` spelt out."""
        return architectures.expand(self.architectures)
