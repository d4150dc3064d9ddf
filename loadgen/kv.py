"""How many agents a node holds: the arithmetic of KV memory, with what it assumes printed beside it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mockserver.engine.cost import Roofline
from mockserver.engine.profiles import GB, Profile
from mockserver.profile_files import find_profile

NAME = "kv"
HELP = "how much KV memory agents take, and how many a node holds at once"
DEFAULT_PROFILES = ("llama-3.1-70b-4xh100", "llama-3.1-70b-4xb200")
USED_SHARE = 0.92
"""vLLM's gpu_memory_utilization."""
ACTIVATION_BYTES = 4 * GB
"""A GPU: activations and CUDA graphs (assumption)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one node holds."""

    profile: Profile
    pool_bytes: float
    num_agents: int


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The command's flags."""
    parser.add_argument("--profiles", nargs="+", default=list(DEFAULT_PROFILES), help="nodes to compare")
    parser.add_argument("--agents", nargs="+", type=int, default=[10, 50], help="numbers of agents to count KV for")
    parser.add_argument("--context-tokens", type=int, default=8192, help="tokens in each agent's context")
    parser.add_argument(
        "--gpu-memory",
        nargs="+",
        type=float,
        metavar="GB",
        help="memory of one GPU of each node, in place of what the profile says",
    )


def lines(flags: Mapping[str, Any]) -> Iterator[str]:
    """What the command prints."""
    profiles = [find_profile(name) for name in flags["profiles"]]
    memories: Sequence[float | None] = flags["gpu_memory"] or [None] * len(profiles)
    num_tokens, numbers = flags["context_tokens"], flags["agents"]
    if num_tokens < 1 or min(numbers) < 1:
        raise ValueError("agents and context tokens must be at least 1")
    if len(memories) != len(profiles):
        raise ValueError(f"give the GPU memory of each of the {len(profiles)} nodes, got {len(memories)}")
    for model, profile in {profile.model: profile for profile in reversed(profiles)}.items():
        bytes_per_token = profile.kv_bytes_per_token
        yield f"{model}: {bytes_per_token:,.0f} bytes of KV a token"
        for number in numbers:
            total = agents_bytes(profile, number, num_tokens)
            yield f"  {number} agents x {num_tokens:,} tokens x {bytes_per_token:,.0f} bytes = {total / GB:.1f} GB"
    yield ""
    width = max(len(profile.name) for profile in profiles)
    yield f"{'node':{width}}  KV memory  agents at {num_tokens:,} tokens  against the first"
    held = [holding(profile, num_tokens, memory) for profile, memory in zip(profiles, memories, strict=True)]
    for one in held:
        ratio = f"{one.num_agents / held[0].num_agents:.2f} x" if held[0].num_agents else "-"
        yield (
            f"{one.profile.name:{width}}  {one.pool_bytes / GB:6.1f} GB"
            f"  {one.num_agents:{len(f'agents at {num_tokens:,} tokens')}}  {ratio:>17}"
        )
    yield ""
    yield "assumed:"
    yield "  no two agents share a block: what a prefix cache shares comes on top"
    yield "  all contexts are full at once, and the node's KV is one pool over its GPUs"
    for profile, memory in zip(profiles, memories, strict=True):
        yield f"  {profile.name}: a token: {profile.sources.get('kv_bytes_per_token', 'as the profile says')}"
        if memory is None:
            yield f"  {profile.name}: the pool: {profile.sources.get('kv_pool_bytes', 'as the profile says')}"
        else:
            yield (
                f"  {profile.name}: the pool: {profile.num_gpus} GPUs x ({memory:g} GB x {USED_SHARE:g} -"
                f" {ACTIVATION_BYTES / GB:g} GB) - {weight_bytes(profile) / GB:.1f} GB of weights"
            )


def agents_bytes(profile: Profile, num_agents: int, num_tokens: int) -> float:
    """KV of ``num_agents`` that share nothing."""
    return num_agents * num_tokens * profile.kv_bytes_per_token


def holding(profile: Profile, num_tokens: int, gpu_memory_gb: float | None = None) -> Holding:
    """How many agents of ``num_tokens`` fit into a node's KV memory."""
    pool_bytes = profile.kv_pool_bytes
    if gpu_memory_gb is not None:
        pool_bytes = profile.num_gpus * (gpu_memory_gb * GB * USED_SHARE - ACTIVATION_BYTES) - weight_bytes(profile)
    num_agents = int(max(pool_bytes, 0.0) // (num_tokens * profile.kv_bytes_per_token))
    return Holding(profile=profile, pool_bytes=pool_bytes, num_agents=num_agents)


def weight_bytes(profile: Profile) -> float:
    """The weights of a profile that says so."""
    if not isinstance(profile.step_cost, Roofline):
        raise ValueError(f"{profile.name} does not say how large its weights are: leave out --gpu-memory")  # noqa: TRY004
    return profile.step_cost.weight_bytes
