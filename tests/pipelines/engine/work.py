"""Units of work for the tests of engines: they record each run in a folder, and can die, fail or take long."""

import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pipelines.engine.engine import Engine
from pipelines.errors import TrainingError

LATE = "late"
KEPT: list[bytes] = []


@dataclass(frozen=True, kw_only=True)
class Job:
    """A number to square; the first `deaths` runs kill their process after `wait_s`.

    A run allocates `mib`, and keeps them as long as the process lives.
    """

    number: int
    deaths: int = 0
    fails: bool = False
    wait_s: float = 0.0
    mib: int = 0

    def __str__(self) -> str:
        return f"job {self.number}"


def square(folder: Path, job: Job) -> int:
    ran = len(list(folder.glob(f"{job.number}-*")))
    (folder / f"{job.number}-{ran}-{os.getpid()}").touch()
    if job.mib and not KEPT:
        KEPT.append(b"\1" * (job.mib << 20))
    time.sleep(job.wait_s)
    if ran < job.deaths:
        os.kill(os.getpid(), signal.SIGKILL)
    if job.fails:
        raise TrainingError(f"{job} failed")
    return job.number**2


def runs(folder: Path) -> list[int]:
    """Return the numbers of the jobs that were run, one for each run."""
    return sorted(int(each.name.split("-")[0]) for each in folder.iterdir())


def alive(folder: Path) -> list[int]:
    """Return the processes that ran a job and still exist."""
    pids = {int(each.name.split("-")[2]) for each in folder.iterdir()} - {os.getpid()}
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@dataclass(frozen=True, kw_only=True)
class Mortal:
    """An engine whose process dies in the first `deaths` runs of the unit `doomed`, `after_s` seconds into each.

    `folder` gets a file for each run of a unit, and one named `late` if a unit was done before its process died.
    """

    engine: Engine
    folder: Path
    doomed: str
    after_s: float
    deaths: int = 1

    def run(self, work: Callable[[Any, Any], Any], shared: Any, units: Sequence[Any]) -> Iterator[Any]:
        return self.engine.run(partial(_mortal, self, work), shared, units)

    @property
    def ran(self) -> list[str]:
        """Return unit and number of each run, sorted."""
        return sorted(each.name for each in self.folder.iterdir() if each.name != LATE)

    @property
    def late(self) -> bool:
        return (self.folder / LATE).exists()


def _mortal(fate: Mortal, work: Callable[[Any, Any], Any], shared: Any, unit: Any) -> Any:
    ran = len(list(fate.folder.glob(f"{unit}-*")))
    (fate.folder / f"{unit}-{ran}").touch()
    if ran < fate.deaths and str(unit) == fate.doomed:
        threading.Timer(fate.after_s, os.kill, (os.getpid(), signal.SIGKILL)).start()
        work(shared, unit)
        (fate.folder / LATE).touch()
        time.sleep(60)  # so that it dies even if the work was done before
    return work(shared, unit)


def held(lake: Path) -> dict[str, str]:
    """Return the digest of every file of a lake but its views and the marks of its inputs, which hold paths."""
    files = (path for path in lake.rglob("*") if path.is_file() and path.suffix not in (".duckdb", ".seen"))
    return {str(each.relative_to(lake)): hashlib.sha256(each.read_bytes()).hexdigest() for each in files}
