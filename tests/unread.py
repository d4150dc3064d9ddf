"""Commands whose output nobody reads, as when it goes to ``head``."""

from __future__ import annotations

import os
import subprocess
import sys


def run_unread(module: str, *arguments: str) -> tuple[int, str]:
    """``python -m module`` with these arguments: its exit code, and what it says on stderr."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [sys.executable, "-m", module, *arguments]
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writer)
    return done.returncode, done.stderr
