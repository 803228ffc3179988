"""What a process of the server gets: settings as variables, the folder of shared metrics, a log, the supervisor's pipe.

The pipe is a socket as standard input. The child sends signs of life (empty lines) and one line of JSON when it is
ready. When the supervisor ends, even by kill -9, the socket closes and the child ends too.
"""

import contextlib
import json
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from pydantic import SecretStr

from modelserve.settings import PREFIX, ServeSettings

__all__ = ["write_log_lines"]

STORE_INODE: Final = "TAUT_STORE_INODE"
"""Variable with the inode of the store's file that the first ready worker opened; later workers open no other."""
METRICS_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"


def child_environment(settings: ServeSettings, more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child process: that of this process, the settings, and `more`.

    `ServeSettings()` equals `settings` there; an absent value is an empty variable. OpenMP gets one thread unless the
    environment says otherwise: its idle threads would busy-wait on cores that other workers need.
    """
    plain = settings.model_dump(mode="json")
    given = {f"{PREFIX}{name.upper()}": _text(getattr(settings, name), plain[name]) for name in plain}
    return {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", **os.environ, **given, **more}


def _text(value: object, plain: object) -> str:
    if value is None:
        return ""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return plain if isinstance(plain, str) else json.dumps(plain)


@contextmanager
def metrics_folder(workers: int) -> Iterator[Mapping[str, str]]:
    """Yield the environment variables with which workers share their metrics in a folder; none for a single worker.

    A folder named in the environment is emptied of earlier metrics and used; otherwise the folder is temporary.
    """
    named = os.environ.get(METRICS_FOLDER)
    if named:
        Path(named).mkdir(parents=True, exist_ok=True)
        _remove(named, "*.db")
        yield {METRICS_FOLDER: named}
    elif workers == 1:
        yield {}
    else:
        with tempfile.TemporaryDirectory(prefix="taut-metrics-") as temporary:
            yield {METRICS_FOLDER: temporary}


def forget_live(folder: str | None, slot: str) -> None:
    """Remove the gauges of a dead worker from the shared metrics; its counters stay."""
    if folder:
        _remove(folder, f"gauge_live*_{slot}.db")


def _remove(folder: str, pattern: str) -> None:
    for left in Path(folder).glob(pattern):
        left.unlink(missing_ok=True)


def follow_supervisor(*, end_within_s: float) -> Callable[[bytes], None]:
    """Watch the pipe in a thread; return a function that sends data to the supervisor and never blocks.

    When the supervisor ends, SIGTERM is sent to this process, which exits after `end_within_s` at the latest, even if
    its event loop hangs.
    """
    pipe = socket.socket(fileno=os.dup(0))

    def watch() -> None:
        with contextlib.suppress(OSError):  # a reset connection means that the parent has ended
            while pipe.recv(64):
                pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(end_within_s)
        os._exit(1)

    def send(data: bytes) -> None:
        with contextlib.suppress(OSError):  # the parent is busy or has ended
            pipe.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    threading.Thread(target=watch, name="supervisor-pipe", daemon=True).start()
    return send


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


def mirror() -> None:
    """Copy models from the registry to disk until the parent process ends: the sync process."""
    follow_supervisor(end_within_s=5.0)
    write_log_lines(ServeSettings().log_format)
    from modelserve.loading.sync import main as mirror_forever

    mirror_forever()


if __name__ == "__main__":
    mirror()
