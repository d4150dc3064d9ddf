"""The settings that change when a token appears, each defined once with its check."""

from __future__ import annotations

from dataclasses import dataclass

SCHEDULING_POLICIES = ("fcfs", "priority")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """One scheduler with its block pool. Names and meanings are vLLM's."""

    num_blocks: int
    """Usable KV blocks: vLLM's ``num_gpu_blocks`` less its null block."""
    block_size: int = 16
    max_num_seqs: int = 128
    max_num_batched_tokens: int = 8192
    max_model_len: int = 262_144
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    """Cap on one request's tokens in one step while others are there; 0: none."""
    scheduling_policy: str = "fcfs"
    async_scheduling: bool = True
    """Batch k+1 is decided while batch k runs, as ``vllm serve`` does by default."""

    def __post_init__(self) -> None:
        for name in ("num_blocks", "block_size", "max_num_seqs", "max_num_batched_tokens", "max_model_len"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.long_prefill_token_threshold < 0:
            raise ValueError(
                f"long_prefill_token_threshold must be at least 0, got {self.long_prefill_token_threshold}"
            )
        if self.scheduling_policy not in SCHEDULING_POLICIES:
            raise ValueError(
                f"scheduling_policy must be one of {', '.join(SCHEDULING_POLICIES)}, got {self.scheduling_policy!r}"
            )

    @property
    def num_kv_tokens(self) -> int:
        """Tokens the pool holds."""
        return self.num_blocks * self.block_size
