"""``mockserver profiles``: what people see of the built-in machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mockserver.engine.profiles import PROFILES, get_profile
from mockserver.profile_files import read_profile
from mockserver.serve import main


def test_the_table_names_every_profile(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")

    assert main(["profiles"]) == 0

    out = capsys.readouterr().out
    assert all(name in out for name in PROFILES)
    assert "6,773,679" in out
    assert "32,000" in out


def test_one_profile_comes_as_toml_that_can_be_used(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["profiles", "kimi-k2-8xb200"]) == 0

    path = tmp_path / "mine.toml"
    path.write_text(capsys.readouterr().out)
    assert read_profile(path) == get_profile("kimi-k2-8xb200")


def test_all_profiles_come_as_json_with_their_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profiles", "--json"]) == 0

    profiles = json.loads(capsys.readouterr().out)
    assert set(profiles) == set(PROFILES)
    assert all(profile["sources"] for profile in profiles.values())


def test_an_unknown_profile_is_one_line_and_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profiles", "gpt-9"]) == 2
    assert capsys.readouterr().err.startswith("mockserver profiles: unknown profile 'gpt-9': known are ")


@pytest.mark.parametrize(
    "flags", [["--block-size", "0"], ["--profile", "nope"], ["--max-num-seqs", "-1"], ["--time-scale", "-1"]]
)
def test_bad_settings_are_one_line_and_exit_2(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(flags) == 2
    assert capsys.readouterr().err.count("\n") == 1
