"""``mockserver profiles``: the built-in machines, and where each number comes from."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from mockserver.engine.cost import BatchShape
from mockserver.engine.profiles import DEFAULT_PROFILE, PROFILES, Profile
from mockserver.profile_files import ProfileError, find_profile, profile_toml

_CONTEXT = 4096


def main(argv: Sequence[str]) -> int:
    """Print a table of all profiles, or one profile as TOML; the exit code."""
    parser = argparse.ArgumentParser(
        prog="mockserver profiles", description="The machines the mock server can be, with sources."
    )
    parser.add_argument("profile", nargs="?", help="print this one whole, as TOML to start your own from")
    parser.add_argument("--json", action="store_true", help="all of them as JSON")
    arguments = parser.parse_args(argv)
    if arguments.json:
        sys.stdout.write(json.dumps({name: asdict(profile) for name, profile in PROFILES.items()}, indent=2) + "\n")
    elif arguments.profile:
        try:
            sys.stdout.write(profile_toml(find_profile(arguments.profile)))
        except ProfileError as error:
            sys.stderr.write(f"mockserver profiles: {error}\n")
            return 2
    else:
        console = Console()
        console.print(_table())
        console.print(
            f"Decode at {_CONTEXT:,} tokens of context a sequence. Default: {DEFAULT_PROFILE}. "
            "mockserver profiles NAME shows one with the source of each number."
        )
    return 0


def _table() -> Table:
    table = Table(title="Profiles")
    table.add_column("profile", no_wrap=True)
    for heading in ("KV bytes/token", "KV tokens", "prefill tok/s", "decode tok/s at 1", "at 128", "block", "seqs"):
        table.add_column(heading, justify="right")
    for profile in PROFILES.values():
        table.add_row(
            profile.name,
            f"{profile.kv_bytes_per_token:,.0f}",
            f"{profile.num_kv_tokens():,}",
            f"{_prefill_rate(profile):,.0f}",
            f"{_decode_rate(profile, 1):,.0f}",
            f"{_decode_rate(profile, 128):,.0f}",
            str(profile.block_size),
            str(profile.max_num_seqs),
        )
    return table


def _prefill_rate(profile: Profile) -> float:
    num_tokens = profile.max_num_batched_tokens
    return num_tokens / profile.step_cost(BatchShape(num_prefill_tokens=num_tokens, num_prefill_seqs=1))


def _decode_rate(profile: Profile, num_seqs: int) -> float:
    shape = BatchShape(num_decode_seqs=num_seqs, num_decode_context_tokens=num_seqs * _CONTEXT)
    return num_seqs / profile.step_cost(shape)
