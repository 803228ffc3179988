"""Limits of one query: memory, time and spill; and its folder for spilled data, which is removed even after kill -9.

Called by `pipelines.lake.sql`.
"""

import _thread
import contextlib
import re
import resource
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipelines.lake.locks import scratch

__all__ = ["CURE", "MB", "QueryLimits", "spill_folder"]

PREFIX: Final = "taut-sql-"
LEAST_MB: Final = 200
"""Memory in MB that a query gets in any case, in addition to what the process uses already."""
LOOK_EVERY_S: Final = 0.05
MB: Final = 1_000_000
BLOCK_BYTES: Final = 512
CURE: Final = "aggregate, add LIMIT, or set"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLimits:
    """The most that one query may take: memory of the whole process and spilled data in MB, and time in seconds.

    The limits cover the rendering of the result too, of which only CPU time counts: output into a pipe waits for its
    reader. With `tabular`, the result is rendered as a table, which takes about 40 times its memory.
    """

    memory_mb: int
    time_s: float
    spill_mb: int
    tabular: bool

    @property
    def buffer_mb(self) -> int:
        """Memory for DuckDB's own buffers, above which it spills; the rest is for values and the result."""
        return max(64, self.memory_mb // 2)

    @property
    def result_mb(self) -> int:
        """Maximum size of a result."""
        return max(1, self.memory_mb // (60 if self.tabular else 6))

    @contextmanager
    def applied(self, spill: Path, stop: Callable[[str], None]) -> Iterator["Phase"]:
        """Limit this process during the block; a thread calls `stop` with the reason if time or spill is used up.

        Above the limit of private memory an allocation fails (on Linux; elsewhere memory is not limited).

        Raises
        ------
        KeyboardInterrupt
            After `stop`, while the result is rendered in the main thread.
        """
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        used_mb, data_mb = _status_mb("VmRSS"), _status_mb("VmData")
        most = (data_mb + max(LEAST_MB, self.memory_mb - used_mb)) * MB
        phase = Phase()
        # A shell's background jobs ignore SIGINT, so the main thread is interrupted as if by another signal.
        before = signal.signal(signal.SIGALRM, signal.default_int_handler) if phase.in_main else None
        threading.Thread(target=self._watch, args=(spill, stop, phase), daemon=True).start()
        try:
            if data_mb and (soft == resource.RLIM_INFINITY or most < soft):
                resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
            yield phase
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
            phase.end()
            if before is not None:
                signal.signal(signal.SIGALRM, before)

    def _watch(self, spill: Path, stop: Callable[[str], None], phase: "Phase") -> None:
        # DuckDB 2.0 does not keep to its own setting of the size of spilled data.
        while not phase.over.wait(min(LOOK_EVERY_S, max(0.0, self.time_s - phase.spent_s()))):
            reason = None
            if phase.spent_s() >= self.time_s:
                reason = f"took longer than {self.time_s:g} s; {CURE} --time-s"
            elif _size_mb(spill) > self.spill_mb:
                reason = f"spilled more than {self.spill_mb} MB; {CURE} --spill-mb"
            if reason is not None:
                stop(reason)
                phase.interrupt()
                return


class Phase:
    """The progress of a query, which first runs and is then rendered, and the time that it has taken."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.in_main = threading.current_thread() is threading.main_thread()
        self._change = threading.Lock()
        self._started_at = time.monotonic()
        self._ran_s: float | None = None
        self._cpu_s = 0.0

    def spent_s(self) -> float:
        """Return the seconds spent: of the clock until the query has run, then of CPU time."""
        if self._ran_s is None:
            return time.monotonic() - self._started_at
        return self._ran_s + time.process_time() - self._cpu_s

    def begin_rendering(self) -> None:
        """Note that the query has run."""
        with self._change:
            self._cpu_s = time.process_time()
            self._ran_s = time.monotonic() - self._started_at

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in the main thread if it is rendering."""
        with self._change:
            if self._ran_s is not None and self.in_main and not self.over.is_set():
                _thread.interrupt_main(signal.SIGALRM)

    def end(self) -> None:
        """Note that the query is over; nothing is interrupted from now on."""
        with self._change:
            self.over.set()


def _size_mb(folder: Path) -> float:
    """Return the disk space of the files in a folder; files that vanish meanwhile do not count."""
    size = 0
    for file in folder.rglob("*"):
        with contextlib.suppress(OSError):
            size += file.stat().st_blocks * BLOCK_BYTES
    return size / MB


def _status_mb(name: str) -> int:
    """Return a number of /proc/self/status in MB; 0 if the system has none."""
    with contextlib.suppress(OSError):
        found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
        return int(found[1]) * 1024 // MB if found else 0
    return 0


def spill_folder() -> AbstractContextManager[Path]:
    """Yield an empty folder and remove it at the end; first remove the folders of processes that were killed."""
    return scratch(Path(tempfile.gettempdir()), PREFIX)
