"""Runs that go on in a process of their own, looked at from outside."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path


def wait_for_calls(process: subprocess.Popen[str], directory: Path, num_calls: int = 1) -> None:
    """Wait until a run has recorded calls.

    They come after its header: a directory that holds some can be read, one that only holds the file for them cannot.
    """
    calls = directory / "calls.jsonl"
    deadline = time.monotonic() + 60
    while not calls.exists() or calls.read_bytes().count(b"\n") < num_calls:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, f"{directory} holds fewer than {num_calls} calls after a minute"
        time.sleep(0.02)
