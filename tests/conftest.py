"""What tests share: where the recorded facts and real trajectories lie, if this machine has them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts something in the background makes it deaf to Ctrl-C, and all that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _find_shared() -> Path | None:
    for folder in Path(__file__).resolve().parents:
        candidate = folder / "shared"
        if (candidate / "vllm" / "semantics.md").is_file():
            return candidate
    return None


SHARED = _find_shared()
needs_shared = pytest.mark.skipif(SHARED is None, reason="../shared (recorded facts, real data) is not on this machine")


@pytest.fixture
def shared_dir() -> Path:
    """The folder of recorded facts and real trajectories; the test skips where it is absent."""
    if SHARED is None:
        pytest.skip("../shared (recorded facts, real data) is not on this machine")
    return SHARED
