"""Profiles: the pools they hold, the settings they give, and that every number says where it comes from."""

from __future__ import annotations

import pytest

from mockserver.engine.profiles import PROFILES, Profile, get_profile


@pytest.mark.parametrize(("layout", "num_tokens"), [("pooled", 6.77e6), ("replicated", 0.85e6), ("split", 0.85e6)])
def test_where_the_kv_lives_decides_what_476_gb_hold(layout: str, num_tokens: float) -> None:
    assert get_profile("kimi-k2-8xb200").num_kv_tokens(layout) == pytest.approx(num_tokens, rel=0.005)


def test_kv_heads_beyond_the_gpus_are_not_replicated() -> None:
    """Llama has 8 KV heads: tensor parallelism over 4 GPUs splits them, and nothing is kept twice."""
    profile = get_profile("llama-3.1-70b-4xh100")

    assert profile.num_kv_tokens("replicated") == profile.num_kv_tokens("pooled")


def test_ten_agents_at_8k_of_a_70b_model_take_27_gb() -> None:
    assert 10 * 8192 * get_profile("llama-3.1-70b-4xh100").kv_bytes_per_token == pytest.approx(26.8e9, rel=0.005)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_a_profile_names_its_sources_and_holds_at_least_one_full_context(profile: Profile) -> None:
    assert profile.sources
    assert all(text.strip() for text in profile.sources.values())
    assert profile.num_kv_tokens() > profile.max_model_len


def test_a_split_nodes_ranks_divide_its_sequences_and_tokens() -> None:
    config = get_profile("kimi-k2-8xb200").engine_config(kv_layout="split")

    assert (config.max_num_seqs, config.max_num_batched_tokens) == (16, 1024)


def test_settings_given_replace_the_profiles_and_none_leaves_them() -> None:
    config = get_profile("kimi-k2-8xb200").engine_config(block_size=64, max_num_seqs=None, enable_prefix_caching=False)

    assert (config.block_size, config.max_num_seqs, config.enable_prefix_caching) == (64, 128, False)
    assert config.num_blocks == 6_773_679 // 64


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: get_profile("kimi"), "unknown profile 'kimi': known are kimi-k2-8xb200"),
        (lambda: get_profile("kimi-k2-8xb200").num_kv_tokens("striped"), "KV layout must be one of pooled"),
        (lambda: get_profile("kimi-k2-8xb200").engine_config(block_size=0), "block_size must be at least 1, got 0"),
        (lambda: get_profile("kimi-k2-8xb200").engine_config(scheduling_policy="lifo"), "scheduling_policy must be"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(call: object, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        call()  # type: ignore[operator]  # parametrize hides the type
