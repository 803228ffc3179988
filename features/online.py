"""The history of one trace as feedback moves it on: asked about one job at a time, at any moment, by several threads.

Knows what a `History` of the same jobs would; what is computed of it for a model is in `features.rows`.
Called by `modelserve.loading.models`, which feeds it, and by `features.rows`.
"""

from collections.abc import Sequence
from threading import Lock, RLock
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from features.errors import ContractError
from features.history import EVENT_KINDS, WEIGHTED_KINDS, History, cluster_of_vc
from features.keys import KEYS, KeyValue, Parts, key_of
from features.ledger import WEIGHTS, Base, Fed, Identity, Ledger
from features.runs import EndedRun as EndedRun
from features.runs import JobAsked as JobAsked
from features.runs import keys_of, parts_of
from features.timelines import Glance, Timeline, Track, empty_timeline

IntArray = npt.NDArray[np.int64]

EVIDENCE_KEYS: Final = ("group_role", "user")
"""Whose measured runs stand behind an answer about use: those of the first key that a job has."""
MAX_FED_ROWS: Final = 5_000
"""How many fed rows are kept beside the history; with more, both become one history, of which the tail is kept."""
GROWTH_ROWS: Final = 50_000
"""By how many rows of a cluster a history may grow; then those submitted first go. That is a day of the busiest
published trace: load is counted over 24 hours, and no key remembers more than a thousand jobs."""
_WEIGHTED: Final = {kind: kind in WEIGHTED_KINDS for kind in EVENT_KINDS}


class OnlineHistory:
    """A history that runs are added to and users are struck from; every answer is of one state of it.

    Hold `lock` to take several answers from the same state. Kept are all rows a job submitted after the latest known
    submission can see, up to `GROWTH_ROWS` of a cluster; earlier ones are answered from what is still there.
    """

    def __init__(self, base: History) -> None:
        self.lock = RLock()
        self._writing = Lock()  # held while the next state is prepared, so that readers wait only for the change
        self._trace = base.trace
        self._added = 0
        self._replaced = 0
        self._most = base.frame.group_by("cluster").agg(most=pl.len() + GROWTH_ROWS)
        self._nobody = empty_timeline(WEIGHTS, _WEIGHTED)
        self._begin(base, cluster_of_vc(base))

    def _begin(self, base: History, clusters: dict[str | None, str | None]) -> None:
        self.ledger = Ledger(Base.of(base))
        self._timelines: dict[tuple[str, KeyValue], Timeline] = {}
        self._fed_under: dict[tuple[str, KeyValue], list[int]] = {}
        self._fed_identities: set[Identity] = set()
        self._gone: set[int] = set()  # rows of the base that ran on, and have ended since
        self._clusters = clusters

    @property
    def trace(self) -> str | None:
        """The trace whose jobs these are; `None` while none is known."""
        return self._trace

    @property
    def version(self) -> int:
        """How many runs were added so far."""
        return self._added

    @property
    def replaced(self) -> int:
        """How often all that is known was put together anew; each time as much memory is free again as it takes."""
        return self._replaced

    def cluster_of(self, vc: str | None) -> str | None:
        """Return the cluster of most of a VC's jobs, else the one with the most jobs; None while none is known."""
        clusters = self._clusters
        return clusters.get(vc, clusters[None])

    def frame(self) -> pl.DataFrame:
        """Return every job known, as `History.from_tail` takes them."""
        with self.lock:
            return self.ledger.frame(self._gone)

    def measured_runs(self, job: JobAsked) -> int:
        """Return the ended and measured runs of the job's group and role, or of its user where it has no group."""
        parts = parts_of(job)
        with self.lock:
            glances = (self.glance(name, parts, job.submit_us) for name in EVIDENCE_KEYS)
            return next((glance.stop("measured") for glance in glances if glance is not None), 0)

    def glance(self, name: str, parts: Parts, now_us: int) -> Glance | None:
        """Return a job's key at a moment, None where the job has not such a key; for holders of `lock`."""
        key = key_of(name, parts)
        if key is None:
            return None
        timeline = self._timelines.get(key)
        fed = self._fed_under.get(key, ())
        if timeline is None:
            timeline = self._begun(key, fed=bool(fed))
        if len(fed) > timeline.merged:
            self._merge(timeline, np.array(fed[timeline.merged :], dtype=np.int64))
        return Glance(timeline, now_us)

    def add(self, runs: Sequence[EndedRun]) -> int:
        """Add runs and return how many are new; one that was known as ended, or comes twice, is passed over.

        Raises
        ------
        ContractError
            If a run is of another trace.
        """
        with self._writing:
            fresh, ended = self._unknown(runs)
            if not fresh:
                return 0
            fed = Fed.of(fresh)
            keys = [keys_of(run) for run in fresh]
            with self.lock:
                self._trace = fresh[0].trace
                self._strike(ended)
                first = self.ledger.size
                self.ledger.append(fed)
                for row, of_row in enumerate(keys, start=first):
                    for key in of_row:
                        self._fed_under.setdefault(key, []).append(row)
                self._fed_identities.update(fed.identities)
                self._added += len(fresh)
            if self.ledger.fed_rows > MAX_FED_ROWS:
                self._replace(self._folded())
            return len(fresh)

    def forget(self, user: str, clusters: frozenset[str] | None) -> int:
        """Strike a user's jobs on these clusters (None: on all) and return how many were there."""
        with self._writing:
            frame = self.frame()
            theirs = pl.col("user") == user
            if clusters is not None:
                theirs &= pl.col("cluster").is_in(sorted(clusters))
            kept = frame.filter(~theirs.fill_null(value=False))
            if kept.height < frame.height:
                self._replace(History.from_tail(kept))
            return frame.height - kept.height

    def _replace(self, base: History) -> None:
        clusters = cluster_of_vc(base)
        with self.lock:
            self._begin(base, clusters)
            self._replaced += 1

    def _folded(self) -> History:
        """Return all that is known and may be kept as one history."""
        whole = History.from_tail(self.frame())
        kept = self._newest(whole.tail())
        return whole if kept.height == whole.frame.height else History.from_tail(kept)

    def _newest(self, tail: pl.DataFrame) -> pl.DataFrame:
        """Return what may be kept of a tail, which is in the order of submission."""
        limited = tail.join(self._most, on="cluster", how="left", nulls_equal=True, maintain_order="left")
        newer = (pl.len() - pl.int_range(pl.len())).over("cluster")
        return limited.filter(newer <= pl.col("most").fill_null(GROWTH_ROWS)).drop("most")

    def _unknown(self, runs: Sequence[EndedRun]) -> tuple[list[EndedRun], list[int]]:
        """Return the runs that are new, and the rows of the base that they end."""
        fresh: dict[Identity, EndedRun] = {}
        ended = []
        trace = self._trace
        for run in runs:
            trace = trace or run.trace
            if run.trace != trace:
                raise ContractError(f"runs: found the trace {run.trace!r}; expected {trace!r}, the history's")
            identity = (run.cluster, run.job_id, run.role)
            if identity in fresh or identity in self._fed_identities:
                continue
            row = self.ledger.base_row(identity)
            if row is not None and self.ledger.base.has_ended(row):
                continue
            fresh[identity] = run
            ended += [] if row is None else [row]
        return list(fresh.values()), ended

    def _strike(self, rows: Sequence[int]) -> None:
        """Take rows of the base out of every key they have."""
        self._gone.update(rows)
        for row in rows:
            told = self.ledger.base.frame.row(row, named=True)
            gpus = None if told["req_gpus"] is None else told["req_gpus"] * told["instances"]
            parts = (told["cluster"], told["user"], told["vc"], told["group"], told["role"], gpus)
            for name in KEYS:
                key = key_of(name, parts)
                if key is not None:
                    self._timelines.pop(key, None)

    def _begun(self, key: tuple[str, KeyValue], *, fed: bool) -> Timeline:
        """Return what the base knows of a key, and remember it; of unknown keys nothing is remembered."""
        base = self.ledger.base
        code = base.code_of(key)
        if code < 0 and not fed:
            return self._nobody
        tracks = dict(self._nobody.tracks) if code < 0 else {kind: self._track(kind, code) for kind in EVENT_KINDS}
        timeline = self._timelines[key] = Timeline(tracks=tracks)
        return timeline

    def _track(self, kind: str, code: int) -> Track:
        rows = self.ledger.base.rows_of(kind, code)
        if self._gone:
            rows = rows[~np.isin(rows, list(self._gone))]
        sums = {
            name: np.concatenate(([0], np.cumsum(self.ledger.weights(name, rows))))
            for name in WEIGHTS
            if _WEIGHTED[kind]
        }
        return Track.of(self.ledger.times_of(kind)[rows], rows, sums)

    def _merge(self, timeline: Timeline, rows: IntArray) -> None:
        tracks = {}
        for kind, track in timeline.tracks.items():
            held, ts = self.ledger.happened(kind, rows)
            weights = {name: self.ledger.weights(name, held) for name in track.sums}
            tracks[kind] = track.with_events(ts, held, weights, self.ledger.order) if len(held) else track
        timeline.grow(tracks, timeline.merged + len(rows))
