"""Settings from flags, environment and file: precedence, and complaints of one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from mockserver.api.settings import ServerSettings
from mockserver.api.sources import load_settings
from mockserver.settings import SettingsError


def test_defaults_are_those_of_the_class() -> None:
    assert load_settings([], {}) == ServerSettings()


def test_flags_win_over_environment_and_environment_over_file(tmp_path: Path) -> None:
    file = tmp_path / "mock.toml"
    file.write_text('port = 1\nmax-num-seqs = 2\nprofile = "kimi-k2-8xb200"\nserved_model_name = ["a", "b"]\n')
    environ = {"MOCKSERVER_PORT": "3", "MOCKSERVER_MAX_NUM_SEQS": "4", "PATH": "/bin"}

    settings = load_settings(["--config", str(file), "--port", "5"], environ)

    assert (settings.port, settings.max_num_seqs, settings.served_model_name) == (5, 4, ("a", "b"))


def test_flags_may_be_spelt_with_underscores_and_repeated() -> None:
    settings = load_settings(["--max_num_seqs=7", "--api-key", "one", "two", "--api-key", "three"], {})

    assert (settings.max_num_seqs, settings.api_key) == (7, ("one", "two", "three"))


@pytest.mark.parametrize("flag", ["--no-enable-prefix-caching", "--no-prefix-caching"])
def test_prefix_caching_can_be_switched_off(flag: str) -> None:
    _, config = load_settings([flag], {}).resolve()

    assert not config.enable_prefix_caching


def test_blocks_given_include_the_one_that_is_never_used() -> None:
    _, config = load_settings(
        ["--num-gpu-blocks-override", "100", "--block-size", "32", "--max-model-len", "2048"], {}
    ).resolve()

    assert (config.num_blocks, config.block_size) == (99, 32)


@pytest.mark.parametrize(
    ("argv", "environ", "complaint"),
    [
        (
            ["--port", "many"],
            {},
            "--port: Input should be a valid integer, unable to parse string as an integer, got 'many'",
        ),
        (["--frobnicate"], {}, "unrecognized arguments: --frobnicate"),
        ([], {"MOCKSERVER_FROB": "1"}, "unknown environment variable MOCKSERVER_FROB"),
        (["--profile", "cray-1"], {}, "unknown profile 'cray-1'"),
        (["--time-scale", "-1"], {}, "time_scale must be a positive number, got -1.0"),
        ([], {"MOCKSERVER_MAX_NUM_SEQS": "0"}, "max_num_seqs must be at least 1, got 0"),
        (["--config", "nowhere.toml"], {}, "nowhere.toml: cannot be read: No such file or directory"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(argv: list[str], environ: dict[str, str], complaint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(argv, environ)

    assert str(caught.value).startswith(complaint)
    assert "\n" not in str(caught.value)


def test_unknown_key_in_a_file_is_refused_with_the_files_name(tmp_path: Path) -> None:
    file = tmp_path / "mock.toml"
    file.write_text("prot = 1\n")

    with pytest.raises(SettingsError, match=r"mock\.toml: unknown setting 'prot'"):
        load_settings(["--config", str(file)], {})
