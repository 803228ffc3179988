"""Write log records to stderr, as JSON or as readable text.

Called by every process of the server at its start. The access log is written by `modelserve.api.gate` instead.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal

__all__ = ["write_log_lines"]


class LogLines(logging.Formatter):
    """Write each record as a line of JSON, as in the access log, or as readable text; a traceback is the error."""

    def __init__(self, form: Literal["json", "console"]) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as one text."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        level, message = record.levelname.lower(), record.getMessage()
        error = self.formatException(record.exc_info) if record.exc_info else ""
        if self._form == "console":
            return f"{at} {level} {message}" + (f"\n{error}" if error else "")
        line = {"ts": at, "level": level, "event": "log", "logger": record.name, "message": message}
        return json.dumps(line | ({"error": error} if error else {}))


def write_log_lines(form: Literal["json", "console"]) -> None:
    """Set up logging of this process: to stderr, as JSON or readable text."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogLines(form))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in ("uvicorn", "asyncio", "httpx2"):
        logging.getLogger(name).setLevel(logging.WARNING)
