"""The environment of child processes: the settings as variables, and the folder in which workers share metrics.

`ServeSettings()` reads the settings back in the child.
"""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from modelserve.settings import PREFIX, ServeSettings

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
