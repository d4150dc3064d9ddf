"""The load generator's settings from flags, environment and TOML file."""

from __future__ import annotations

from loadgen.config import SECRETS, Settings
from mockserver.settings import SettingsReader

READER = SettingsReader(Settings, env_prefix="LOADGEN_", secrets=SECRETS)
