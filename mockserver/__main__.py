"""The ``mockserver`` command: the server, on huge pages where they are to be had."""

from __future__ import annotations

import sys

from mockserver import huge_pages


def command_line() -> int:
    """The command as a whole process; its exit code."""
    if sys.argv[1:2] != ["profiles"]:
        huge_pages.restart()
    from mockserver import serve  # noqa: PLC0415  (what a restart would import twice)

    return serve.main()


if __name__ == "__main__":
    sys.exit(command_line())
