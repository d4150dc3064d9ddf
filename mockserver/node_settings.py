"""What a node is told: one definition for the server that pretends to be it and for the load generator's own engine.

Names that vLLM has are vLLM's, and mean what they mean there; ``None`` leaves a setting to the profile.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from mockserver.engine.config import EngineConfig
from mockserver.engine.profiles import DEFAULT_PROFILE, PROFILES, Profile
from mockserver.engine.routing import ROUTING_POLICIES
from mockserver.profile_files import find_profile
from mockserver.settings import setting

_AT_LEAST_ONE = ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "block_size", "data_parallel_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """A profile, and what is to differ from it."""

    profile: str = setting(DEFAULT_PROFILE, f"the machine: {', '.join(PROFILES)}, or a TOML file of your own")
    max_num_seqs: int | None = setting(None, "requests in one step, at most")
    max_num_batched_tokens: int | None = setting(None, "tokens in one step, at most")
    max_model_len: int | None = setting(None, "prompt and output tokens of one request, at most")
    block_size: int | None = setting(None, "tokens in one KV block")
    num_gpu_blocks_override: int | None = setting(None, "KV blocks, the one that vLLM never uses included")
    enable_prefix_caching: bool | None = setting(
        None, "keep KV blocks for later prompts with the same start", flags=("--prefix-caching",)
    )
    enable_chunked_prefill: bool | None = setting(None, "let a prompt take several steps")
    long_prefill_token_threshold: int | None = setting(None, "tokens one prompt may take of a step; 0: no cap")
    scheduling_policy: Literal["fcfs", "priority"] | None = setting(None, "who is served next")
    async_scheduling: bool | None = setting(None, "decide a step while the one before it runs")
    kv_layout: Literal["pooled", "replicated", "split"] = setting(
        "pooled", "where the node's KV memory lies: one pool, a copy on every GPU, or a share for each rank"
    )
    data_parallel_size: int | None = setting(
        None, "schedulers, each with its own KV pool; default: 1, or one a GPU where the KV is split"
    )
    routing_policy: str = setting("vllm", f"which rank a request goes to: {', '.join(ROUTING_POLICIES)}")
    lock_step: bool | None = setting(
        None, "ranks step together, as long as the slowest of them; default: where they share a node that does"
    )
    step_jitter: float = setting(0.0, "sigma of a lognormal factor on each step's duration; 0: none")
    seed: int = setting(0, "seed of everything drawn")

    def __post_init__(self) -> None:
        for name in _AT_LEAST_ONE:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.num_gpu_blocks_override is not None and self.num_gpu_blocks_override < 2:
            raise ValueError(f"num_gpu_blocks_override must be at least 2, got {self.num_gpu_blocks_override}")
        if self.long_prefill_token_threshold is not None and self.long_prefill_token_threshold < 0:
            raise ValueError(
                f"long_prefill_token_threshold must be at least 0, got {self.long_prefill_token_threshold}"
            )
        if self.routing_policy not in ROUTING_POLICIES:
            raise ValueError(
                f"routing_policy must be one of {', '.join(ROUTING_POLICIES)}, got {self.routing_policy!r}"
            )
        if not 0.0 <= self.step_jitter <= 2.0:
            raise ValueError(f"step_jitter must be in [0, 2], got {self.step_jitter}")
        config = self.resolve()[1]
        if config.num_kv_tokens < config.max_model_len:
            # As vLLM, which will not start where its cache cannot hold one request of the model's full length.
            raise ValueError(
                f"a KV pool of {config.num_kv_tokens} tokens ({config.num_blocks} blocks of {config.block_size}) "
                f"cannot hold one request of max_model_len {config.max_model_len}: "
                "lower --max-model-len or give more blocks"
            )

    @property
    def num_ranks(self) -> int:
        """How many schedulers there are."""
        if self.data_parallel_size is not None:
            return self.data_parallel_size
        return find_profile(self.profile).num_gpus if self.kv_layout == "split" else 1

    def resolve(self) -> tuple[Profile, EngineConfig]:
        """The profile, and one rank's engine configuration with everything that these settings override."""
        profile = find_profile(self.profile)
        overrides = {one.name: getattr(self, one.name, None) for one in fields(EngineConfig)}
        if self.num_gpu_blocks_override is not None:
            overrides["num_blocks"] = self.num_gpu_blocks_override - 1
        return profile, profile.engine_config(kv_layout=self.kv_layout, num_ranks=self.num_ranks, **overrides)


NODE_SETTINGS = tuple(one.name for one in fields(NodeSettings))
"""The names, for those who hand them on."""
