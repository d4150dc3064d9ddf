"""The server's command line: its flags, environment and TOML file."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from mockserver.api.settings import ServerSettings
from mockserver.settings import OneLineParser, SettingsReader, dashed

_READER = SettingsReader(ServerSettings, env_prefix="MOCKSERVER_", secrets=("api_key",))


def load_settings(argv: Sequence[str], environ: Mapping[str, str]) -> ServerSettings:
    """Settings from a command line, the environment and the TOML file that one of them names."""
    parser = OneLineParser(
        prog="mockserver",
        description="An OpenAI-compatible server whose tokens appear when a vLLM node's would. "
        "'mockserver profiles' lists the machines it can be.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    _READER.add_flags(parser)
    return _READER.load(vars(parser.parse_args([dashed(argument) for argument in argv])), environ)
