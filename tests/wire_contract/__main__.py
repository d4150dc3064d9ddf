"""``python -m tests.wire_contract PATH``: replay the exchanges recorded there and print what differs.

PATH is a directory with one JSON file an exchange, or one file of many, such as ``tests/wire_contract/more.jsonl.xz``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mockserver.clock import run_wall
from tests.wire_contract.exchange import read_exchanges
from tests.wire_contract.replay import replay


def main() -> int:
    """Print each difference, then ``N exchanges, K differ``; 1 if any does, 2 if there is nothing to replay."""
    parser = argparse.ArgumentParser(prog="python -m tests.wire_contract", description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--only", help="replay only exchanges whose label contains this")
    given = parser.parse_args()
    exchanges = [one for one in read_exchanges(given.path) if not given.only or given.only in one.label]
    if not exchanges:
        print(f"{given.path}: no exchanges", file=sys.stderr)
        return 2
    results = run_wall(lambda: replay(exchanges))
    differing = [result for result in results if result.difference is not None]
    for result in differing:
        print(f"{result.exchange.label}: {result.difference}")
    print(f"{len(results)} exchanges, {len(differing)} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
