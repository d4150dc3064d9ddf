"""Profiles of the user's own: what is written is read back, and what is wrong is said in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from mockserver.engine.cost import FittedCost
from mockserver.engine.profiles import PROFILES, Profile
from mockserver.profile_files import ProfileError, find_profile, read_profile, write_profile

OWN = """
model = "my-org/my-model"
num_gpus = 1
kv_bytes_per_token = 131072
kv_pool_bytes = 40e9
max_num_seqs = 256
max_num_batched_tokens = 8192
max_model_len = 32768

[step_cost]
kind = "fitted"
floor_s = 0.006
per_prefill_token_s = 2.1e-5
"""


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_a_profile_written_is_read_back(profile: Profile, tmp_path: Path) -> None:
    path = tmp_path / "copy.toml"
    write_profile(path, profile)

    assert read_profile(path) == profile


def test_a_profile_of_ones_own_is_found_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(OWN)

    profile = find_profile(str(path))

    assert (profile.name, profile.num_kv_tokens()) == ("mine", 305_175)
    assert profile.step_cost == FittedCost(floor_s=0.006, per_prefill_token_s=2.1e-5)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("num_gpus = 1", "num_gpu = 1", "unknown key 'num_gpu': known are arrival_s, block_size"),
        ("num_gpus = 1", "", "num_gpus is missing"),
        ("num_gpus = 1", "num_gpus = 'one'", "num_gpus: Input should be a valid integer.*got 'one'"),
        ("num_gpus = 1", "num_gpus = 0", "num_gpus must be positive, got 0"),
        ('kind = "fitted"', 'kind = "guess"', "step_cost.kind must be one of constant, table, roofline, fitted"),
        ("floor_s = 0.006", "floor_s = -1", "step_cost: floor_s must not be negative, got -1"),
        ("[step_cost]", "[cost]", r"a profile needs a \[step_cost\] table"),
        ("num_gpus = 1", "num_gpus = = 1", "not TOML"),
    ],
)
def test_a_file_that_is_wrong_is_told_where(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(OWN.replace(old, new))

    with pytest.raises(ProfileError, match=complaint) as error:
        find_profile(str(path))
    assert "\n" not in str(error.value)


def test_a_name_that_is_neither_known_nor_a_file_is_refused() -> None:
    with pytest.raises(ProfileError, match="unknown profile 'k2': known are"):
        find_profile("k2")
    with pytest.raises(ProfileError, match=r"nowhere\.toml: cannot be read: No such file"):
        find_profile("nowhere.toml")
