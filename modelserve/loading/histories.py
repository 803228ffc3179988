"""The histories that models look back on: one for all models of a trace that were trained with the same file.

What is learnt or forgotten reaches each of them, those not yet serving included. Called by `modelserve.loading.models`.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from operator import methodcaller
from typing import Final, NamedTuple

import polars as pl

from features.history import History
from features.online import EndedRun, OnlineHistory
from modelserve.bundle.bundle import Bundle
from modelserve.loading.trimming import give_back_memory

Change = Callable[[OnlineHistory], object]

CHUNK: Final = 25_000
"""How many past runs a new history takes at a time."""


class Forgotten(NamedTuple):
    """A user whose jobs up to a moment (Unix time in microseconds) no model may look back on; None: on any cluster."""

    user: str
    clusters: frozenset[str] | None
    before_us: int


class Histories:
    """The histories in use, by trace and by the SHA-256 of the file that each began as."""

    def __init__(
        self, past: Callable[[str], Iterable[EndedRun]], forgotten: Callable[[str], Iterable[Forgotten]]
    ) -> None:
        self._past = past
        self._forgotten = forgotten
        self._held: dict[tuple[str, str], OnlineHistory] = {}
        self._begun: dict[tuple[str, str], list[Change]] = {}
        self._lock = threading.Lock()  # held while changes are made, never while a history is read or built
        self._building = threading.Lock()  # held by the one who builds: two would build the same

    def of(self, bundle: Bundle) -> OnlineHistory:
        """Return the history of a bundle, a new one without who is forgotten and with all that was fed back so far.

        It is built aside, so that nobody who learns or forgets waits for it; what they brought meanwhile is made up for
        before it is handed out.
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
        """Let go of the histories of all other bundles."""
        used = {_key(bundle) for bundle in bundles}
        with self._lock:
            self._held = {key: history for key, history in self._held.items() if key in used}

    def learn(self, runs: Sequence[EndedRun]) -> None:
        """Add finished runs to every history of their trace; runs already known change nothing."""
        by_trace: dict[str, list[EndedRun]] = {}
        for run in runs:
            by_trace.setdefault(run.trace, []).append(run)
        for trace, of_trace in by_trace.items():
            self._change(trace, methodcaller("add", of_trace))

    def forget(self, trace: str, user: str, clusters: frozenset[str] | None) -> None:
        """Remove a user's runs from every history of the trace; in `clusters` only, where some are named."""
        self._change(trace, methodcaller("forget", user, clusters))

    def _change(self, trace: str, change: Change) -> None:
        """Change every history of a trace, and have those that are being built changed afterwards."""
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


def without(history: History, forgotten: Iterable[Forgotten]) -> History:
    """Return a history without the jobs that were submitted by someone who is forgotten, up to that moment."""
    struck = pl.lit(value=False)
    for user, clusters, before_us in forgotten:
        theirs = (pl.col("user") == user) & (pl.col("submit_ts").cast(pl.Int64) <= before_us)
        if clusters is not None:
            theirs &= pl.col("cluster").is_in(sorted(clusters))
        struck |= theirs.fill_null(value=False)
    kept = history.frame.filter(~struck)
    return history if kept.height == history.frame.height else History.from_tail(kept)


def newest_alone(history: History) -> History:
    """Return a history of the newest job alone, which still tells its trace and shares no memory with the whole."""
    if history.frame.height <= 1:
        return history
    newest = history.frame.tail(1)
    return History.from_tail(pl.DataFrame(newest.to_dicts(), schema=newest.schema))


def _key(bundle: Bundle) -> tuple[str, str]:
    return bundle.card.trace, bundle.history_digest
