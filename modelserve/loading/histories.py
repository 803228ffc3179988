"""The job histories of the loaded models; models of a trace that have the same history file share one history.

New runs and erasures are applied to every history, including those still being built.
"""

import ctypes
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from operator import methodcaller
from typing import Final

import polars as pl

from features.history import History
from features.online import EndedRun, OnlineHistory
from modelserve.bundle.bundle import Bundle
from modelserve.store.changes import Erasure

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


Change = Callable[[OnlineHistory], object]

CHUNK: Final = 25_000
"""Number of past runs added to a new history at a time."""


class Histories:
    """The histories of the loaded models, by trace and SHA-256 of the history file."""

    def __init__(
        self, past: Callable[[str], Iterable[EndedRun]], forgotten: Callable[[str], Iterable[Erasure]]
    ) -> None:
        self._past = past
        self._forgotten = forgotten
        self._held: dict[tuple[str, str], OnlineHistory] = {}
        self._begun: dict[tuple[str, str], list[Change]] = {}
        self._lock = threading.Lock()  # held while histories change, but not while one is built
        self._building = threading.Lock()  # prevents two threads from building the same history

    def of(self, bundle: Bundle) -> OnlineHistory:
        """Return the history of a bundle, and build it first if it is not in use yet.

        A new history is the one in the bundle, without erased users and with all feedback so far. Changes that
        arrive while it is built do not wait; they are applied to it before it is returned.
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
                        changes, missed[:] = list(missed), []
                    for change in changes:
                        change(history)
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
        for trace, of_trace in by_trace.items():
            self._change(trace, methodcaller("add", of_trace))

    def forget(self, trace: str, user: str, clusters: frozenset[str] | None) -> None:
        """Remove a user's runs in `clusters` (None: in all) from every history of the trace."""
        self._change(trace, methodcaller("forget", user, clusters))

    def _change(self, trace: str, change: Change) -> None:
        """Apply a change to every history of a trace; a history being built is changed when it is complete."""
        with self._lock:
            for (of_trace, _), missed in self._begun.items():
                if of_trace == trace:
                    missed.append(change)
            for (of_trace, _), history in self._held.items():
                if of_trace == trace:
                    before = history.replaced
                    change(history)
                    if history.replaced > before:
                        give_back_memory()

    def _built(self, bundle: Bundle) -> OnlineHistory:
        history = OnlineHistory(without(bundle.history, self._forgotten(bundle.card.trace)))
        past = iter(self._past(bundle.card.trace))
        while chunk := list(islice(past, CHUNK)):
            history.add(chunk)
        return history


def without(history: History, erasures: Iterable[Erasure]) -> History:
    """Return a history without the jobs of erased users."""
    struck = pl.lit(value=False)
    for each in erasures:
        theirs = (pl.col("user") == each.user) & (pl.col("submit_ts").cast(pl.Int64) <= each.before_us)
        if each.cluster:
            theirs &= pl.col("cluster") == each.cluster
        struck |= theirs.fill_null(value=False)
    kept = history.frame.filter(~struck)
    return history if kept.height == history.frame.height else History.from_tail(kept)


def without_history(bundle: Bundle) -> Bundle:
    """Return a bundle whose history is empty, so that its memory can be freed; an `OnlineHistory` takes a quarter."""
    return replace(bundle, history=History.from_tail(bundle.history.frame.clear()))


def _key(bundle: Bundle) -> tuple[str, str]:
    return bundle.card.trace, bundle.history_digest
