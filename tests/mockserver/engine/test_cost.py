"""Step costs: what a batch takes, and that each cost is what its figures say."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockserver.engine.cost import (
    BatchShape,
    ConstantRates,
    FittedCost,
    GuidedDecoding,
    Jittered,
    RankShare,
    Roofline,
    StepCost,
    TableCost,
    interpolate,
    padded_batch_size,
)
from mockserver.engine.profiles import PROFILES, get_profile


def decode(num_seqs: int, context: int = 4096) -> BatchShape:
    return BatchShape(num_decode_seqs=num_seqs, num_decode_context_tokens=num_seqs * context)


def test_a_steps_first_prompt_tokens_may_cost_more() -> None:
    cost = FittedCost(floor_s=0.001, per_prefill_token_s=1e-5, per_first_prefill_token_s=2e-5)

    assert cost(BatchShape(num_prefill_tokens=100)) == pytest.approx(0.001 + 100 * 3e-5)
    assert cost(BatchShape(num_prefill_tokens=2048)) == pytest.approx(0.001 + 2048 * 1e-5 + 512 * 2e-5)


def test_a_mixed_step_at_constant_rates_is_prefill_plus_decode() -> None:
    cost = get_profile("kimi-k2-8xb200").step_cost
    shape = BatchShape(num_prefill_tokens=6000, num_prefill_seqs=1, num_decode_seqs=128)
    shape.num_decode_context_tokens = 128 * 15_500

    assert cost(shape) == pytest.approx(0.1 + 0.004)


def test_reading_the_kv_bounds_decode_where_it_outgrows_reading_the_weights() -> None:
    """70,272 bytes a token over 64 TB/s: 4 ms are reached at 3.64 M tokens of context."""
    cost = get_profile("kimi-k2-8xb200").step_cost

    assert cost(decode(128, 20_000)) == pytest.approx(0.004)
    assert cost(decode(128, 40_000)) == pytest.approx(128 * 40_000 * 70_272 / 64e12)


@pytest.mark.parametrize(
    ("shape", "seconds"),
    [
        (BatchShape(num_prefill_tokens=2048), 0.074),
        (BatchShape(num_prefill_tokens=8192), 0.186),
        (BatchShape(num_prefill_tokens=16_384), 0.336),
        (decode(1), 0.0092),
        (decode(32), 0.0214),
        (decode(64), 0.0227),
        (decode(128), 0.0257),
        (decode(256), 0.0322),
        (decode(96), (0.0227 + 0.0257) / 2),
    ],
)
def test_the_silicon_table_gives_its_own_points_back(shape: BatchShape, seconds: float) -> None:
    assert get_profile("kimi-k2.5-nvfp4-8xb200").step_cost(shape) == pytest.approx(seconds)


def test_a_roofline_decode_reads_weights_and_kv_and_its_prefill_computes() -> None:
    """Llama 3.1 70B on 4 x H100: 141.2 GB of weights at 10.72 TB/s, 2 FLOP a parameter at 2.37 PFLOP/s."""
    cost = get_profile("llama-3.1-70b-4xh100").step_cost

    assert cost(decode(1, 0)) == pytest.approx(141.2e9 / (4 * 3.35e12 * 0.8) + 0.002)
    assert cost(BatchShape(num_prefill_tokens=8192)) == pytest.approx(2 * 70.6e9 * 8192 / (4 * 989e12 * 0.6) + 0.002)


def test_a_decode_batch_is_padded_to_a_captured_size_and_a_mixed_one_is_not() -> None:
    cost = FittedCost(floor_s=0.001, per_prefill_token_s=1e-5, per_decode_seq_s=1e-4)

    assert cost(decode(9, 0)) == pytest.approx(0.001 + 16e-4)
    assert cost(BatchShape(num_decode_seqs=9, num_prefill_tokens=100)) == pytest.approx(0.001 + 9e-4 + 1e-3)


def test_a_step_that_decodes_and_computes_prompts_has_a_price_of_its_own() -> None:
    cost = FittedCost(floor_s=0.001, per_prefill_token_s=1e-5, mixed_step_s=0.003)

    assert cost(BatchShape(num_decode_seqs=9)) == pytest.approx(0.001)
    assert cost(BatchShape(num_prefill_tokens=100)) == pytest.approx(0.002)
    assert cost(BatchShape(num_decode_seqs=9, num_prefill_tokens=100)) == pytest.approx(0.005)


def test_what_was_there_before_a_chunk_is_read_however_short_the_chunk_is() -> None:
    cost = FittedCost(floor_s=0.001, per_prefill_token_s=1e-5, per_prefill_context_token_s=1e-6)
    shape = BatchShape()
    shape.add(5000, 2, is_decode=False)
    shape.add(0, 300, is_decode=False)
    shape.add(700, 1, is_decode=True)

    assert cost(shape) == pytest.approx(0.001 + 302e-5 + 5000e-6)
    shape.add(5000, -2, is_decode=False)
    assert cost(shape) == pytest.approx(0.001 + 300e-5)


@pytest.mark.parametrize(
    ("num_seqs", "padded"),
    [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (8, 8), (241, 248), (249, 256), (257, 272), (512, 512), (513, 513)],
)
def test_capture_sizes_are_vllms(num_seqs: int, padded: int) -> None:
    assert padded_batch_size(num_seqs, 512) == padded


@given(st.integers(1, 2000), st.integers(1, 1024))
def test_padding_never_shrinks_a_batch(num_seqs: int, ceiling: int) -> None:
    assert padded_batch_size(num_seqs, ceiling) >= num_seqs


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
@given(
    prefill=st.integers(0, 16_384), seqs=st.integers(0, 256), context=st.integers(1, 30_000), more=st.integers(1, 2000)
)
def test_more_work_never_takes_less_time(profile: object, prefill: int, seqs: int, context: int, more: int) -> None:
    cost: StepCost = profile.step_cost  # type: ignore[attr-defined]  # parametrize hides the type
    shape = BatchShape(num_prefill_tokens=prefill, num_decode_seqs=seqs, num_decode_context_tokens=seqs * context)
    longer = BatchShape(
        num_prefill_tokens=prefill + more, num_decode_seqs=seqs, num_decode_context_tokens=seqs * context
    )
    wider = BatchShape(
        num_prefill_tokens=prefill, num_decode_seqs=seqs + 1, num_decode_context_tokens=(seqs + 1) * context
    )

    assert cost(longer) >= cost(shape) >= 0
    assert cost(wider) >= cost(shape)


def test_a_rank_with_its_share_of_a_batch_takes_what_the_node_takes_for_the_whole() -> None:
    node = get_profile("kimi-k2-8xb200").step_cost
    whole = BatchShape(num_prefill_tokens=8192, num_decode_seqs=128, num_decode_context_tokens=128 * 15_500)
    part = BatchShape(num_prefill_tokens=1024, num_decode_seqs=16, num_decode_context_tokens=16 * 15_500)

    assert RankShare(node, 8)(part) == pytest.approx(node(whole))


def test_a_grammar_lengthens_the_decoding_part_of_a_mixed_step_only() -> None:
    plain = get_profile("kimi-k2-8xb200").step_cost
    shape = BatchShape(num_prefill_tokens=6000, num_prefill_seqs=1, num_decode_seqs=4, num_guided_seqs=1)

    assert GuidedDecoding(plain, 0.2)(shape) == pytest.approx(plain(shape) + 0.2 * 0.25 * plain(decode(4, 0)))


def test_jitter_keeps_the_mean_and_its_seed_decides_it() -> None:
    rng = random.Random(7)
    constant = ConstantRates(
        prefill_tokens_per_s=1.0, decode_floor_s=1.0, kv_bytes_per_token=1.0, memory_bytes_per_s=1e12
    )
    cost = Jittered(constant, lambda: rng.lognormvariate(-0.02, 0.2))
    drawn = [cost(decode(1, 0)) for _ in range(20_000)]

    assert sum(drawn) / len(drawn) == pytest.approx(1.0, abs=0.01)
    assert len(set(drawn)) > 19_000


def test_interpolation_goes_on_beyond_the_last_point_and_stops_at_the_first() -> None:
    points = ((10.0, 1.0), (20.0, 2.0), (40.0, 3.0))

    assert interpolate(points, 0.0) == 1.0
    assert interpolate(points, 15.0) == 1.5
    assert interpolate(points, 60.0) == 4.0


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: FittedCost(floor_s=-1.0, per_prefill_token_s=0.0), "floor_s must not be negative, got -1.0"),
        (lambda: FittedCost(floor_s=0.0, per_prefill_token_s=0.0), "a step must take time"),
        (
            lambda: ConstantRates(
                prefill_tokens_per_s=0.0, decode_floor_s=1.0, kv_bytes_per_token=1.0, memory_bytes_per_s=1.0
            ),
            "prefill_tokens_per_s must be positive, got 0.0",
        ),
        (
            lambda: TableCost(
                prefill_s=((2.0, 1.0), (1.0, 1.0)),
                decode_s=((1.0, 1.0),),
                decode_context_tokens=1,
                kv_bytes_per_token=1.0,
                memory_bytes_per_s=1.0,
            ),
            "prefill_s must hold ascending",
        ),
        (
            lambda: Roofline(
                num_active_params=1.0,
                weight_bytes=0.0,
                kv_bytes_per_token=1.0,
                attention_flops_per_pair=1.0,
                flops_per_s=1.0,
                memory_bytes_per_s=1.0,
                overhead_s=0.0,
            ),
            "weight_bytes must be positive, got 0.0",
        ),
    ],
)
def test_figures_that_make_no_sense_are_refused(make: object, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        make()  # type: ignore[operator]  # parametrize hides the type
