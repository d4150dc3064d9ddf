"""Log lines, as text or JSON. They carry methods, paths, states and durations: never a prompt, never a key."""

from __future__ import annotations

import logging
import sys

import orjson

from mockserver.api.settings import ServerSettings


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line).decode()


def set_up_logs(settings: ServerSettings) -> None:
    """Send log lines to standard error in the form that was asked for."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _JsonFormatter()
        if settings.log_format == "json"
        else logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    level = "info" if settings.access_log and settings.log_level in ("warning", "error") else settings.log_level
    logger = logging.getLogger("mockserver")
    logger.handlers = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False
