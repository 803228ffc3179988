"""Log lines on stderr, as JSON or as readable text, the same in every process of the server.

The access log has its own writer in `modelserve.api.gate`. Called by the entry points.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final, Literal

__all__ = ["write_log_lines"]

QUIET: Final = ("uvicorn", "asyncio")
"""Loggers of which only warnings are written."""


class JsonLines(logging.Formatter):
    """One JSON object a line, as in the access log."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as JSON; a traceback goes into `error`."""
        line = {
            "ts": _moment(record),
            "level": record.levelname.lower(),
            "event": "log",
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


class ConsoleLines(logging.Formatter):
    """One readable line; a traceback follows it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as text."""
        line = f"{_moment(record)} {record.levelname.lower()} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


FORMS: Final = {"json": JsonLines, "console": ConsoleLines}


def write_log_lines(form: Literal["json", "console"]) -> None:
    """Write this process's log to stderr in the given form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FORMS[form]())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
