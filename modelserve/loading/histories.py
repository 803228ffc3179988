"""The job histories of the loaded models; models of a trace that have the same history file share one history.

New runs are added to every history, including those still being built.
"""

import ctypes
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from features.history import History
from features.online import EndedRun, OnlineHistory
from modelserve.bundle.bundle import Bundle

_C_LIBRARY: Final = ctypes.CDLL(None)


def give_back_memory() -> None:
    """Return freed memory to the operating system, if the C library supports it (`malloc_trim` of glibc).

    Rebuilding a history frees tens of MiB in blocks that glibc keeps and does not reuse; a worker grew by 16 MiB with
    each rebuild. Trimming takes about a millisecond. Setting `MALLOC_MMAP_THRESHOLD_` has the same effect, but makes a
    call with a thousand jobs a tenth slower.
    """
    trim = getattr(_C_LIBRARY, "malloc_trim", None)
    if trim is not None:
        trim(0)


CHUNK: Final = 25_000
"""Number of past runs added to a new history at a time."""


class Histories:
    """The histories of the loaded models, by trace and SHA-256 of the history file."""

    def __init__(self, past: Callable[[str], Iterable[EndedRun]]) -> None:
        self._past = past
        self._held: dict[tuple[str, str], OnlineHistory] = {}
        self._begun: dict[tuple[str, str], list[EndedRun]] = {}
        self._lock = threading.Lock()  # held while histories change, but not while one is built
        self._building = threading.Lock()  # prevents two threads from building the same history

    def of(self, bundle: Bundle) -> OnlineHistory:
        """Return the history of a bundle, and build it first if it is not in use yet.

        A new history is the one in the bundle with all feedback so far. Runs that arrive while it is built do not
        wait; they are added to it before it is returned.
        """
        key = _key(bundle)
        with self._building:
            with self._lock:
                if key in self._held:
                    return self._held[key]
                missed = self._begun[key] = []
            try:
                history = self._built(bundle)
                while True:
                    with self._lock:
                        if not missed:
                            self._held[key] = history
                            return history
                        runs, missed[:] = list(missed), []
                    history.add(runs)
            finally:
                with self._lock:
                    del self._begun[key]

    def keep(self, bundles: Iterable[Bundle]) -> None:
        """Drop all histories that none of these bundles use."""
        used = {_key(bundle) for bundle in bundles}
        with self._lock:
            self._held = {key: history for key, history in self._held.items() if key in used}

    def learn(self, runs: Sequence[EndedRun]) -> None:
        """Add finished runs to every history of their trace; runs already in a history are skipped."""
        by_trace: dict[str, list[EndedRun]] = {}
        for run in runs:
            by_trace.setdefault(run.trace, []).append(run)
        with self._lock:
            for (trace, _), missed in self._begun.items():
                missed += by_trace.get(trace, ())
            for (trace, _), history in self._held.items():
                before = history.replaced
                if trace in by_trace:
                    history.add(by_trace[trace])
                if history.replaced > before:
                    give_back_memory()

    def _built(self, bundle: Bundle) -> OnlineHistory:
        history = OnlineHistory(bundle.history)
        past = iter(self._past(bundle.card.trace))
        while chunk := list(islice(past, CHUNK)):
            history.add(chunk)
        return history


def without_history(bundle: Bundle) -> Bundle:
    """Return a bundle whose history is empty, so that its memory can be freed; an `OnlineHistory` takes a quarter."""
    return replace(bundle, history=History.from_tail(bundle.history.frame.clear()))


def _key(bundle: Bundle) -> tuple[str, str]:
    return bundle.card.trace, bundle.history_digest
