"""The history of one trace in the service, which grows with reports of ended runs; safe to use from several threads.

Lookups are for one job at a time, and give the same results as in a `History` of the same jobs.
"""

from collections import Counter
from collections.abc import Sequence
from threading import Lock, RLock
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from features.errors import ContractError
from features.history import EVENT_KINDS, WEIGHTED_KINDS, History, cluster_of_vc
from features.keys import KEYS, KeyValue, Parts, key_of, keys_of, parts_of
from features.keys import EndedRun as EndedRun
from features.keys import JobAsked as JobAsked
from features.ledger import WEIGHTS, Base, Identity, Ledger, identity_of
from features.lookups import Glance, Timeline, Track, empty_timeline

__all__ = ["EVIDENCE_KEYS", "GROWTH_ROWS", "EndedRun", "JobAsked", "OnlineHistory"]

IntArray = npt.NDArray[np.int64]

EVIDENCE_KEYS: Final = ("group_role", "user")
"""Keys tried in turn to count the measured runs behind a prediction of use; the first known for a job is used."""
MAX_FED_ROWS: Final = 5_000
"""Maximum number of added rows apart from the base history; with more, both are merged into a new base."""
GROWTH_ROWS: Final = 50_000
"""Maximum number of rows that a cluster may have above its initial number; the earliest submissions are dropped.

That is one day of submissions of the busiest published trace. It is enough, because no feature reads more than a
thousand jobs of a key.
"""


class OnlineHistory:
    """A history to which runs can be added. Hold `lock` while several lookups must see the same state.

    `trace` is the trace of the jobs, None while there are none; `version` counts the runs added so far, `replaced` the
    rebuilds of the base, each of which frees the memory of the former. `templates` holds what `features.rows` computed
    for the parts of keys. For jobs submitted after the latest known submission, lookups are exact up to `GROWTH_ROWS`
    added rows per cluster; for earlier ones, rows may be dropped.
    """

    def __init__(self, base: History) -> None:
        self.lock = RLock()
        self._writing = Lock()  # held by one writer while it prepares the next state; readers do not wait for it
        self.trace = base.trace
        self.version = 0
        self.replaced = 0
        self._most = base.frame.group_by("cluster").agg(most=pl.len() + GROWTH_ROWS)
        self._empty = empty_timeline()
        self._begin(base, cluster_of_vc(base))

    def _begin(self, base: History, clusters: dict[str | None, str | None]) -> None:
        self.ledger = Ledger(Base.of(base))
        self._timelines: dict[tuple[str, KeyValue], Timeline] = {}
        self._fed_under: dict[tuple[str, KeyValue], list[int]] = {}
        self._fed_identities: set[Identity] = set()
        self.templates: dict[tuple[object, Parts], object] = {}
        self._gone: set[int] = set()  # rows of the base whose jobs were running and have since been reported as ended
        self._clusters = clusters

    def cluster_of(self, vc: str | None) -> str | None:
        """Return the cluster with most jobs of a virtual cluster, or in total if it is unknown; None without jobs."""
        clusters = self._clusters
        return clusters.get(vc, clusters[None])

    def frame(self) -> pl.DataFrame:
        """Return all jobs as a frame for `History.from_tail`."""
        with self.lock:
            return self.ledger.frame(self._gone)

    def measured_runs(self, job: JobAsked) -> int:
        """Return the number of earlier measured runs of the job's group and role, or of its user without a group."""
        parts = parts_of(job)
        with self.lock:
            glances = (self.glance(name, parts, job.submit_us) for name in EVIDENCE_KEYS)
            return next((glance.stop("measured") for glance in glances if glance is not None), 0)

    def measured_by_role(self, job: JobAsked) -> dict[str, int]:
        """Return the number of earlier measured runs of the job's group by role, the most first; empty if unknown."""
        with self.lock:
            glance = self.glance("group", parts_of(job), job.submit_us)
            if glance is None:
                return {}
            rows = glance.timeline.tracks["measured"].rows[: glance.stop("measured")]
            return dict(Counter(sorted(self.ledger.roles(rows))).most_common())

    def glance(self, name: str, parts: Parts, now_us: int) -> Glance | None:
        """Return the timeline of a job's key at a moment, None if a part of the key is unknown.

        The caller must hold `lock`.
        """
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
        """Add runs and return how many were new; skip duplicates and runs that are known to have ended."""
        with self._writing:
            fresh, ended = self._unknown(runs)
            if not fresh:
                return 0
            keys = [keys_of(run) for run in fresh]
            with self.lock:
                self.trace = fresh[0].trace
                self._strike(ended)
                self.templates.clear()
                first = self.ledger.size
                self.ledger.append(fresh)
                for row, of_row in enumerate(keys, start=first):
                    for key in of_row:
                        self._fed_under.setdefault(key, []).append(row)
                self._fed_identities.update(map(identity_of, fresh))
                self.version += len(fresh)
            if self.ledger.fed_rows > MAX_FED_ROWS:
                self._replace(self._folded())
            return len(fresh)

    def _replace(self, base: History) -> None:
        clusters = cluster_of_vc(base)
        with self.lock:
            self._begin(base, clusters)
            self.replaced += 1

    def _folded(self) -> History:
        """Return the base and the added rows as one history, cut to the growth limit of each cluster."""
        whole = History.from_tail(self.frame())
        kept = self._newest(whole.tail())
        return whole if kept.height == whole.frame.height else History.from_tail(kept)

    def _newest(self, tail: pl.DataFrame) -> pl.DataFrame:
        """Return the newest rows of each cluster up to its growth limit; `tail` is in submission order."""
        limited = tail.join(self._most, on="cluster", how="left", nulls_equal=True, maintain_order="left")
        newer = (pl.len() - pl.int_range(pl.len())).over("cluster")
        return limited.filter(newer <= pl.col("most").fill_null(GROWTH_ROWS)).drop("most")

    def _unknown(self, runs: Sequence[EndedRun]) -> tuple[list[EndedRun], list[int]]:
        """Return the new runs, and the rows of the base whose jobs they end."""
        fresh: dict[Identity, EndedRun] = {}
        ended = []
        trace = self.trace
        for run in runs:
            trace = trace or run.trace
            if run.trace != trace:
                raise ContractError(f"runs: found the trace {run.trace!r}; expected {trace!r}, the history's")
            identity = identity_of(run)
            if identity in fresh or identity in self._fed_identities:
                continue
            row = self.ledger.base_row(identity)
            if row is not None and self.ledger.base.has_ended(row):
                continue
            fresh[identity] = run
            ended += [] if row is None else [row]
        return list(fresh.values()), ended

    def _strike(self, rows: Sequence[int]) -> None:
        """Remove rows of the base from the cached timelines of all their keys."""
        self._gone.update(rows)
        for row in rows:
            job = self.ledger.base.frame.row(row, named=True)
            gpus = None if job["req_gpus"] is None else job["req_gpus"] * job["instances"]
            parts = (job["cluster"], job["user"], job["vc"], job["group"], job["role"], gpus)
            for name in KEYS:
                key = key_of(name, parts)
                if key is not None:
                    self._timelines.pop(key, None)

    def _begun(self, key: tuple[str, KeyValue], *, fed: bool) -> Timeline:
        """Build and cache the timeline of a key from the base; for a key without rows, return the empty timeline."""
        base = self.ledger.base
        code = base.code_of(key)
        if code < 0 and not fed:
            return self._empty
        tracks = dict(self._empty.tracks) if code < 0 else {kind: self._track(kind, code) for kind in EVENT_KINDS}
        timeline = self._timelines[key] = Timeline(tracks=tracks)
        return timeline

    def _track(self, kind: str, code: int) -> Track:
        rows = self.ledger.base.rows_of(kind, code)
        if self._gone:
            rows = rows[~np.isin(rows, list(self._gone))]
        weights = WEIGHTS if kind in WEIGHTED_KINDS else ()
        sums = {name: np.concatenate(([0], np.cumsum(self.ledger.weights(name, rows)))) for name in weights}
        return Track.of(self.ledger.times_of(kind)[rows], rows, sums)

    def _merge(self, timeline: Timeline, rows: IntArray) -> None:
        tracks = {}
        for kind, track in timeline.tracks.items():
            held, ts = self.ledger.happened(kind, rows)
            weights = {name: self.ledger.weights(name, held) for name in track.sums}
            tracks[kind] = track.with_events(ts, held, weights, self.ledger.order) if len(held) else track
        timeline.grow(tracks, timeline.merged + len(rows))
