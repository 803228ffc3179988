"""The histories that models look back on: one for all models of a trace that were trained with the same file.

What is learnt or forgotten reaches each of them, those not yet serving included. Called by `modelserve.loading.models`.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

import polars as pl

from features.history import History
from features.online import EndedRun, OnlineHistory
from modelserve.bundle import Bundle

CHUNK: Final = 5_000
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
        self._lock = threading.Lock()

    def of(self, bundle: Bundle) -> OnlineHistory:
        """Return the history of a bundle, a new one without who is forgotten and with all that was fed back so far."""
        key = _key(bundle)
        with self._lock:  # what is learnt or forgotten meanwhile comes after what is read here
            if key not in self._held:
                history = OnlineHistory(without(bundle.history, self._forgotten(bundle.card.trace)))
                past = iter(self._past(bundle.card.trace))
                while chunk := list(islice(past, CHUNK)):
                    history.add(chunk)
                self._held[key] = history
            return self._held[key]

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
        with self._lock:
            for (trace, _), history in self._held.items():
                if trace in by_trace:
                    history.add(by_trace[trace])

    def forget(self, trace: str, user: str, clusters: frozenset[str] | None) -> None:
        """Remove a user's runs from every history of the trace; in `clusters` only, where some are named."""
        with self._lock:
            for (held, _), history in self._held.items():
                if held == trace:
                    history.forget(user, clusters)


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


def _key(bundle: Bundle) -> tuple[str, str]:
    return bundle.card.trace, bundle.history_digest
