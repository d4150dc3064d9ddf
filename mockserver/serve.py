"""The ``mockserver`` command: settings, then serve until a signal."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Sequence

from mockserver.api.app import start
from mockserver.api.logs import set_up_logs
from mockserver.api.settings import ServerSettings
from mockserver.api.sources import load_settings
from mockserver.clock import run_wall
from mockserver.settings import SettingsError
from mockserver.tokens import encoding

_GC_THRESHOLDS = (50_000, 50, 1000)
"""Collections of the oldest objects: a thousandth as often as by default. The block pool and the texts are a million
objects that live long and form no cycles; walking them took 150 ms every few seconds, in which every token was late."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the server; 0 when it was stopped, 2 when it was told something wrong."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments and arguments[0] == "profiles":
        from mockserver import list_profiles  # noqa: PLC0415  # its table needs rich, which a server does not

        return list_profiles.main(arguments[1:])
    try:
        settings = load_settings(arguments, os.environ)
        set_up_logs(settings)
        encoding()  # a quarter of a second that the first request need not pay
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)
        run_wall(lambda: _serve(settings))
    except (SettingsError, ValueError) as error:
        print(f"mockserver: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"mockserver: cannot listen: {error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


async def _serve(settings: ServerSettings) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    if settings.stop_with_stdin:
        loop.add_reader(sys.stdin.fileno(), _stop_at_end_of_stdin, stopped)
    server = await start(settings)
    print(
        f"mockserver listening on {server.base_url} profile={settings.profile} time-scale={settings.time_scale:g}",
        flush=True,
    )
    waits = [asyncio.create_task(stopped.wait()), asyncio.create_task(server.until_failure())]
    try:
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await server.stop()
    for wait in done:
        wait.result()


def _stop_at_end_of_stdin(stopped: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        stopped.set()
