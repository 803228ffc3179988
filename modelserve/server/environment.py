"""The environment of child processes: the settings as variables, and the folder in which workers share metrics.

No process is started and no metric is named here. Called by `modelserve.server.supervisor` and the worker; the settings
are read back by `ServeSettings()` in the child.
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


def environment_of(settings: ServeSettings) -> dict[str, str]:
    """Return the variables that make `ServeSettings()` equal to `settings`; an absent value is an empty variable."""
    plain = settings.model_dump(mode="json")
    return {f"{PREFIX}{name.upper()}": _text(getattr(settings, name), plain[name]) for name in plain}


def child_environment(settings: ServeSettings, more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child process: ours, the settings, and `more`.

    OpenMP is limited to one thread, since its idle threads would spin on cores that other workers need.
    """
    return {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", **os.environ, **environment_of(settings), **more}


def _text(value: object, plain: object) -> str:
    if value is None:
        return ""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return plain if isinstance(plain, str) else json.dumps(plain)


METRICS_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"


@contextmanager
def metrics_folder(workers: int) -> Iterator[Mapping[str, str]]:
    """Yield the variables that make workers share their metrics; none for a single worker.

    A folder named in the environment is used after removing files of earlier runs; otherwise a temporary one.
    """
    named = os.environ.get(METRICS_FOLDER)
    if named:
        folder = Path(named)
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob("*.db"):
            left.unlink(missing_ok=True)
        yield {METRICS_FOLDER: str(folder)}
    elif workers == 1:
        yield {}
    else:
        with tempfile.TemporaryDirectory(prefix="taut-metrics-") as temporary:
            yield {METRICS_FOLDER: temporary}


def forget_live(folder: str | None, slot: str) -> None:
    """Remove the gauges of a dead worker; its counters stay."""
    for left in Path(folder).glob(f"gauge_live*_{slot}.db") if folder else ():
        left.unlink(missing_ok=True)


def count_under(slot: str) -> None:
    """Write this process's metrics under its slot, which a restarted worker continues; call before making metrics."""
    if os.environ.get(METRICS_FOLDER):
        from prometheus_client import values

        # The documented hook for worker numbers (made for uWSGI).
        values.ValueClass = values.MultiProcessValue(lambda: slot)  # type: ignore[no-untyped-call]  # theirs has no types
