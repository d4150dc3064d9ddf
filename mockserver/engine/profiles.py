"""Named machines: a model on a node, every number with its source or its derivation.

A profile says how long a step takes and how much KV the node holds. Settings (sequences, tokens a step, block size)
are vLLM's for that node unless the profile says otherwise, and every one of them can be overridden.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mockserver.engine.config import EngineConfig
from mockserver.engine.cost import ConstantRates, Roofline, StepCost, TableCost, require_positive
from mockserver.engine.front_end import FrontEnd

GB = 1e9
KV_LAYOUTS = ("pooled", "replicated", "split")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A model served by a node."""

    name: str
    description: str
    model: str
    """The name a server answers to."""
    step_cost: StepCost
    kv_bytes_per_token: float
    kv_pool_bytes: float
    """KV memory of all GPUs together, after weights."""
    num_gpus: int
    num_kv_heads: int = 1
    """How many ways tensor parallelism can split the KV of one token; MLA's latent is one."""
    steps_in_lock: bool = False
    """Data-parallel ranks of one node wait for each other in every step: expert layers are shared by all."""
    block_size: int = 16
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    frontend_latency_s: float = 0.0
    """This and the next four: see ``FrontEnd``, whose work is ``frontend_s`` here."""
    wakeup_s: float = 0.0
    arrival_s: float = 0.0
    frontend_s: float = 0.0
    frontend_per_prompt_token_s: float = 0.0
    guided_decoding_overhead: float = 0.0
    """Share by which structured output lengthens a sequence's decode."""
    tool_call_accuracy: float = 1.0
    """Share of tool calls that are right at the first try."""
    max_tools: int | None = None
    """Tools beyond which accuracy suffers."""
    median_output_tokens: float = 53.0
    sigma_output_tokens: float = 1.2
    """Natural length of a reply that nothing else limits: lognormal."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Where each number comes from."""

    def __post_init__(self) -> None:
        require_positive(self, "kv_bytes_per_token", "kv_pool_bytes", "num_gpus", "median_output_tokens")
        for name in ("frontend_latency_s", "wakeup_s", "arrival_s", "frontend_s", "frontend_per_prompt_token_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")

    @property
    def front_end(self) -> FrontEnd:
        """What a request takes beside its steps."""
        return FrontEnd(
            latency_s=self.frontend_latency_s,
            work_s=self.frontend_s,
            work_per_prompt_token_s=self.frontend_per_prompt_token_s,
            wakeup_s=self.wakeup_s,
            arrival_s=self.arrival_s,
        )

    def num_kv_tokens(self, layout: str = "pooled", num_ranks: int | None = None) -> int:
        """Distinct tokens that one scheduler's pool holds under a KV layout.

        ``pooled``: one pool over all GPUs (decode-context parallel). ``replicated``: tensor parallelism over more GPUs
        than the model has KV heads keeps the same KV on several of them. ``split``: data-parallel attention, one pool
        for each of ``num_ranks`` (default: one a GPU).
        """
        if layout not in KV_LAYOUTS:
            raise ValueError(f"KV layout must be one of {', '.join(KV_LAYOUTS)}, got {layout!r}")
        num_shares = {
            "pooled": 1,
            "replicated": max(1, self.num_gpus // self.num_kv_heads),
            "split": num_ranks or self.num_gpus,
        }[layout]
        return int(self.kv_pool_bytes / num_shares // self.kv_bytes_per_token)

    def engine_config(
        self, *, kv_layout: str = "pooled", num_ranks: int | None = None, **overrides: int | bool | str | None
    ) -> EngineConfig:
        """One scheduler's settings, with those given (and not None) in their place.

        A ``split`` node's ranks divide its sequences and its tokens a step among them.
        """
        given = {name: value for name, value in overrides.items() if value is not None}
        block_size = int(given.get("block_size", self.block_size))
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1, got {block_size}")
        num_sharing = (num_ranks or self.num_gpus) if kv_layout == "split" else 1
        settings: dict[str, int | bool | str] = {
            "block_size": block_size,
            "num_blocks": self.num_kv_tokens(kv_layout, num_ranks) // block_size,
            "max_num_seqs": max(1, self.max_num_seqs // num_sharing),
            "max_num_batched_tokens": max(1, self.max_num_batched_tokens // num_sharing),
            "max_model_len": self.max_model_len,
        }
        return EngineConfig(**(settings | given))  # type: ignore[arg-type]  # EngineConfig checks each value


def get_profile(name: str) -> Profile:
    """A built-in profile by name; ValueError names the known ones."""
    try:
        return PROFILES[name]
    except KeyError:
        raise ValueError(f"unknown profile {name!r}: known are {', '.join(PROFILES)}") from None


_K2_KV_BYTES = 61 * (512 + 64) * 2
_K2_KV_SOURCE = "MLA keeps one latent of 512 + 64 values a layer: 61 layers x 576 x 2 bytes (BF16) = 70,272 bytes"

_KIMI_K2 = Profile(
    name="kimi-k2-8xb200",
    description="The reference node: Kimi K2 (1T mixture of experts, 32B active) on 8 x B200",
    model="moonshotai/Kimi-K2-Instruct-0905",
    step_cost=ConstantRates(
        prefill_tokens_per_s=60_000,
        decode_floor_s=0.004,
        kv_bytes_per_token=_K2_KV_BYTES,
        memory_bytes_per_s=8 * 8e12,
    ),
    kv_bytes_per_token=_K2_KV_BYTES,
    kv_pool_bytes=476 * GB,
    num_gpus=8,
    steps_in_lock=True,
    max_num_seqs=128,
    max_num_batched_tokens=8192,
    max_model_len=262_144,
    sources={
        "prefill_tokens_per_s": "reference node: queued chunked prefill at about 60k tokens/s",
        "decode_floor_s": "reference node: 32k tokens/s at 128 sequences, so 128 tokens per step of 4 ms",
        "kv_bytes_per_token": _K2_KV_SOURCE,
        "kv_pool_bytes": "reference node: 476 GB of KV, 6.77 M tokens",
        "memory_bytes_per_s": "B200 datasheet: 8 TB/s each",
        "max_model_len": "Kimi K2 0905 model card: 256k context",
        "block_size, max_num_seqs, max_num_batched_tokens": "reference node; vLLM would choose 32, 1,024, 16,384",
    },
)

_KIMI_K25 = Profile(
    name="kimi-k2.5-nvfp4-8xb200",
    description="Kimi K2.5 in NVFP4 on 8 x B200 as public silicon tables and vLLM's own defaults have it",
    model="moonshotai/Kimi-K2.5",
    step_cost=TableCost(
        prefill_s=((2048, 0.074), (8192, 0.186), (16384, 0.336)),
        decode_s=((1, 0.0092), (32, 0.0214), (64, 0.0227), (128, 0.0257), (256, 0.0322)),
        decode_context_tokens=4096,
        kv_bytes_per_token=_K2_KV_BYTES,
        memory_bytes_per_s=8 * 8e12,
    ),
    kv_bytes_per_token=_K2_KV_BYTES,
    kv_pool_bytes=8 * 192 * GB * 0.92 - 1.04e12 * 4.5 / 8 - 8 * 4 * GB,
    num_gpus=8,
    steps_in_lock=True,
    block_size=32,
    max_num_seqs=1024,
    max_num_batched_tokens=16_384,
    max_model_len=262_144,
    sources={
        "prefill_s": "public silicon table: 2,048 / 8,192 / 16,384 tokens take 74 / 186 / 336 ms",
        "decode_s": "public silicon table at 4k context: 1/32/64/128/256 sequences take 9.2/21.4/22.7/25.7/32.2 ms",
        "kv_bytes_per_token": _K2_KV_SOURCE,
        "kv_pool_bytes": "8 x 192 GB x 0.92, less 1.04 T weights at 4.5 bits and 4 GB a GPU for activations and graphs",
        "block_size, max_num_seqs, max_num_batched_tokens": "what vLLM 0.33 chooses on B200 for this model",
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gpu:
    """One GPU's datasheet."""

    name: str
    memory_bytes: float
    bf16_flops_per_s: float
    memory_bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _DenseModel:
    """A dense transformer with grouped-query attention, from its config.json, and what is known of its abilities."""

    name: str
    served_name: str
    num_params: float
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    max_model_len: int
    guided_decoding_overhead: float
    tool_call_accuracy: float
    max_tools: int

    @property
    def kv_bytes_per_token(self) -> int:
        """Key and value, BF16."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_size * 2


_H100 = _Gpu(name="h100", memory_bytes=85.5 * GB, bf16_flops_per_s=989e12, memory_bytes_per_s=3.35e12)
_B200 = _Gpu(name="b200", memory_bytes=192.0 * GB, bf16_flops_per_s=2250e12, memory_bytes_per_s=8.0e12)

_DENSE_MODELS = (
    (
        _DenseModel(
            name="llama-3.1-8b",
            served_name="meta-llama/Llama-3.1-8B-Instruct",
            num_params=8.03e9,
            num_layers=32,
            num_heads=32,
            num_kv_heads=8,
            head_size=128,
            max_model_len=131_072,
            guided_decoding_overhead=0.08,
            tool_call_accuracy=0.72,
            max_tools=20,
        ),
        1,
    ),
    (
        _DenseModel(
            name="llama-3.1-70b",
            served_name="meta-llama/Llama-3.1-70B-Instruct",
            num_params=70.6e9,
            num_layers=80,
            num_heads=64,
            num_kv_heads=8,
            head_size=128,
            max_model_len=131_072,
            guided_decoding_overhead=0.12,
            tool_call_accuracy=0.84,
            max_tools=50,
        ),
        4,
    ),
    (
        _DenseModel(
            name="qwen-2.5-72b",
            served_name="Qwen/Qwen2.5-72B-Instruct",
            num_params=72.7e9,
            num_layers=80,
            num_heads=64,
            num_kv_heads=8,
            head_size=128,
            max_model_len=32_768,
            guided_decoding_overhead=0.10,
            tool_call_accuracy=0.86,
            max_tools=80,
        ),
        4,
    ),
    (
        _DenseModel(
            name="mistral-large-2",
            served_name="mistralai/Mistral-Large-Instruct-2407",
            num_params=122.6e9,
            num_layers=88,
            num_heads=96,
            num_kv_heads=8,
            head_size=128,
            max_model_len=131_072,
            guided_decoding_overhead=0.15,
            tool_call_accuracy=0.83,
            max_tools=60,
        ),
        4,
    ),
)
_COMPUTE_EFFICIENCY = 0.6  # assumption: share of the datasheet's dense BF16 rate that large prefills reach
_MEMORY_EFFICIENCY = 0.8  # assumption: share of the datasheet's bandwidth that decode reaches
_STEP_OVERHEAD_S = 0.001  # assumption: launches and sampling; doubled where GPUs must synchronise
_ACTIVATION_BYTES = 4 * GB  # assumption, a GPU: activations and CUDA graphs
_MEMORY_SHARE = 0.92  # vLLM's gpu_memory_utilization


def _dense_profile(model: _DenseModel, gpu: _Gpu, num_gpus: int) -> Profile:
    weight_bytes = model.num_params * 2
    return Profile(
        name=f"{model.name}-{num_gpus}x{gpu.name}",
        description=f"{model.served_name} in BF16 on {num_gpus} x {gpu.name.upper()}: a roofline, not a measurement",
        model=model.served_name,
        step_cost=Roofline(
            num_active_params=model.num_params,
            weight_bytes=weight_bytes,
            kv_bytes_per_token=model.kv_bytes_per_token,
            attention_flops_per_pair=4 * model.num_heads * model.head_size * model.num_layers,
            flops_per_s=num_gpus * gpu.bf16_flops_per_s * _COMPUTE_EFFICIENCY,
            memory_bytes_per_s=num_gpus * gpu.memory_bytes_per_s * _MEMORY_EFFICIENCY,
            overhead_s=_STEP_OVERHEAD_S * (1 if num_gpus == 1 else 2),
        ),
        kv_bytes_per_token=model.kv_bytes_per_token,
        kv_pool_bytes=num_gpus * (gpu.memory_bytes * _MEMORY_SHARE - _ACTIVATION_BYTES) - weight_bytes,
        num_gpus=num_gpus,
        num_kv_heads=model.num_kv_heads,
        max_num_seqs=1024,
        max_num_batched_tokens=16_384 if gpu is _B200 else 8192,
        max_model_len=model.max_model_len,
        guided_decoding_overhead=model.guided_decoding_overhead,
        tool_call_accuracy=model.tool_call_accuracy,
        max_tools=model.max_tools,
        sources={
            "weights, layers, heads": f"config.json of {model.served_name}",
            "kv_bytes_per_token": f"2 x {model.num_layers} layers x {model.num_kv_heads} KV heads x "
            f"{model.head_size} x 2 bytes (BF16)",
            "flops_per_s": f"{gpu.name.upper()} datasheet, dense BF16, times {_COMPUTE_EFFICIENCY} (assumption)",
            "memory_bytes_per_s": f"{gpu.name.upper()} datasheet times {_MEMORY_EFFICIENCY} (assumption)",
            "overhead_s": "assumption: 1 ms a step, 2 ms where GPUs synchronise",
            "kv_pool_bytes": f"memory x {_MEMORY_SHARE}, less BF16 weights and 4 GB a GPU (assumption)",
            "max_num_seqs, max_num_batched_tokens": "vLLM 0.33 defaults for this GPU",
            "guided_decoding_overhead, tool_call_accuracy, max_tools": "published comparisons of tool calling",
        },
    )


PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        _KIMI_K2,
        _KIMI_K25,
        *(_dense_profile(model, gpu, num_gpus) for gpu in (_H100, _B200) for model, num_gpus in _DENSE_MODELS),
    )
}
"""Built-in profiles by name."""
DEFAULT_PROFILE = _KIMI_K2.name
