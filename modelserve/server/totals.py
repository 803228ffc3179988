"""The folder through which several workers add up their metrics (Prometheus's multiprocess mode).

No metric is named here. A worker writes under its slot, not its process id: the one that replaces a killed worker goes
on where that stopped, so totals never fall and files do not pile up. Called by `supervisor` and `worker`.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

METRICS_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"


@contextmanager
def metrics_folder(workers: int) -> Iterator[Mapping[str, str]]:
    """Yield the variables that make workers share their metrics; none where one worker keeps its own.

    A folder that the environment names is used, and emptied of what an earlier run left; else a temporary one.
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
    """Remove what a worker that ended said of the present moment; what it counted stays."""
    for left in Path(folder).glob(f"gauge_live*_{slot}.db") if folder else ():
        left.unlink(missing_ok=True)


def count_under(slot: str) -> None:
    """Let this process write its metrics under its slot; to be called before any metric is made."""
    if os.environ.get(METRICS_FOLDER):
        from prometheus_client import values

        # Made for this: uWSGI's users put their worker's number here.
        values.ValueClass = values.MultiProcessValue(lambda: slot)  # type: ignore[no-untyped-call]  # theirs has no types
