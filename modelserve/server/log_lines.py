"""Write log records to stderr, as JSON or as readable text.

Called by every process of the server at its start. The access log is written by `modelserve.api.gate` instead.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal

__all__ = ["write_log_lines"]


class JsonLines(logging.Formatter):
    """Write each record as one line with a JSON object, as in the access log; `error` holds the traceback, if any."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as JSON."""
        line = {"ts": _moment(record), "level": record.levelname.lower(), "event": "log"}
        line |= {"logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


class ConsoleLines(logging.Formatter):
    """Write each record as its time, level and message, followed by its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as readable text."""
        line = f"{_moment(record)} {record.levelname.lower()} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def write_log_lines(form: Literal["json", "console"]) -> None:
    """Set up logging of this process: to stderr, as JSON or readable text."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else ConsoleLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in ("uvicorn", "asyncio"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
