"""The point-in-time history of one trace: which jobs had been submitted, started or ended before a given moment.

Training uses the history of the whole trace, serving the tail of it that is stored with a model.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from features.errors import ContractError
from features.frames import has_ended
from features.keys import KEYS, Events, Keyspace
from features.vocabulary import FAILURES

__all__ = ["JOB_COLUMNS", "REQUEST_COLUMNS", "USE_COLUMNS", "History", "cluster_of_vc"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

DEPTH: Final[dict[str, int]] = {
    "user": 100,
    "group": 100,
    "gpus": 1000,
    "user_gpus": 1000,
    "vc_gpus": 1000,
    "group_role": 1000,
    "all": 1000,
}
"""Maximum number of newest ended jobs, and of newest measured jobs, that a feature may read under each key."""
SUBMITTED_DEPTH: Final = 60
"""Maximum number of newest submissions that a feature may read under each key."""
SHORT_S: Final = 60.0
"""Run time in seconds below which a run counts as short, such as a crash at the start or a smoke test."""

NEVER: Final = np.iinfo(np.int64).max
"""Time in microseconds that stands for an event that has not happened."""

_TS = pl.Datetime("us", "UTC")
REQUEST_COLUMNS: Final = ("req_cpu_cores", "req_mem_gib", "req_gpus")
"""The canonical columns of a request per instance, in the column order of a request matrix."""
JOB_COLUMNS: Final[dict[str, pl.DataType]] = {
    "trace": pl.String(),
    "cluster": pl.String(),
    "job_id": pl.String(),
    "role": pl.String(),
    "user": pl.String(),
    "vc": pl.String(),
    "group": pl.String(),
    "submit_ts": _TS,
    "start_ts": _TS,
    "end_ts": _TS,
    "run_s": pl.Float64(),
    "status": pl.String(),
    "instances": pl.Int32(),
    **{name: pl.Float64() for name in REQUEST_COLUMNS},
}
"""The columns of the canonical table `jobs` that a history keeps, with their types."""
USE_COLUMNS: Final = ("used_cpu_cores", "used_gpus", "mem_max_gib", "gpu_mem_max_gib", "net_read_bytes_per_s")
"""The columns of the canonical table `usage` that a history keeps."""
_IDENTITY: Final = ("trace", "cluster", "job_id", "role")
_ORDER: Final = ("submit_ts", "cluster", "job_id", "role")

EVENT_KINDS: Final = ("submitted", "started", "ended", "measured")
WEIGHTED_KINDS: Final = ("started", "ended")
"""Kinds of events with running sums of job weights; started jobs minus ended jobs is the sum of running jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The jobs of one trace, by key and in time order.

    `frame` holds the jobs and their measured use, sorted by submission time and then by identity. `submit_us`,
    `start_us`, `end_us` and each array in `values` have one entry per row of `frame`; `events` maps each kind of event
    to its events.
    """

    frame: pl.DataFrame
    keyspace: Keyspace
    events: Mapping[str, Events]
    submit_us: IntArray
    start_us: IntArray
    end_us: IntArray
    values: Mapping[str, FloatArray]

    @classmethod
    def of(cls, jobs: pl.DataFrame, usage: pl.DataFrame | None = None) -> "History":
        """Build the history of jobs from one trace, in any order; some may not have ended.

        `usage` adds the measured use of some of the jobs.
        """
        _require(jobs, JOB_COLUMNS, "jobs")
        frame = jobs.select(pl.col(name).cast(dtype) for name, dtype in JOB_COLUMNS.items())
        if usage is None:
            use = pl.lit(None, dtype=pl.Float64)
            frame = frame.with_columns(use.alias(c) for c in USE_COLUMNS).with_columns(measured=pl.lit(value=False))
        else:
            _require(usage, (*_IDENTITY, *USE_COLUMNS), "usage")
            used = usage.select(*_IDENTITY, *(pl.col(c).cast(pl.Float64) for c in USE_COLUMNS), measured=True)
            frame = frame.join(used, on=_IDENTITY, how="left", validate="m:1")
            frame = frame.with_columns(pl.col("measured").fill_null(value=False))
        return cls.from_tail(frame)

    @classmethod
    def from_tail(cls, frame: pl.DataFrame) -> "History":
        """Build a history from the frame that `tail` returned."""
        _require(frame, (*JOB_COLUMNS, *USE_COLUMNS, "measured"), "history")
        if frame["trace"].n_unique() > 1:
            found = ", ".join(sorted(map(str, frame["trace"].unique().to_list())))
            raise ContractError(f"history: found jobs of the traces {found}; expected one; build one history per trace")
        frame = frame.sort(_ORDER, nulls_last=True)
        keyspace = Keyspace.of(frame)
        times = times_us(frame)
        codes = keyspace.codes(frame)[:, : len(KEYS)]
        ended = times["end"] != NEVER
        kinds = {
            "submitted": (times["submit"], np.ones(frame.height, dtype=np.bool_)),
            "started": (times["start"], times["start"] != NEVER),
            "ended": (times["end"], ended),
            "measured": (times["end"], ended & frame["measured"].to_numpy()),
        }
        weights = weights_of(times["start"])
        events = {}
        for kind, (ts, held) in kinds.items():
            rows = np.flatnonzero(held)
            summed = weights if kind in WEIGHTED_KINDS else {}
            events[kind] = Events.of(codes=codes[held], ts=ts[held], rows=rows, size=keyspace.size, weights=summed)
        return cls(
            frame=frame,
            keyspace=keyspace,
            events=events,
            submit_us=times["submit"],
            start_us=times["start"],
            end_us=times["end"],
            values=values_of(frame),
        )

    @property
    def trace(self) -> str | None:
        """Return the trace of the jobs, `None` while the history is empty."""
        return str(self.frame["trace"][0]) if self.frame.height else None

    @property
    def latest_submit_us(self) -> int:
        """Return the latest submission time in microseconds of Unix time, 0 while the history is empty.

        A history rebuilt from `tail` gives exact lookups for jobs submitted after this time, but not for earlier jobs.
        """
        return int(self.submit_us[-1]) if self.frame.height else 0

    def tail(self) -> pl.DataFrame:
        """Return the jobs that can affect lookups for jobs submitted after `latest_submit_us`.

        These are the newest ended, measured and submitted jobs of each key, and the jobs that had not ended by then.
        """
        now = self.latest_submit_us
        keep = self.end_us > now
        for kind in ("ended", "measured"):
            keep |= self._newest_by_key(kind, DEPTH, now)
        keep |= self._newest_by_key("submitted", dict.fromkeys(KEYS, SUBMITTED_DEPTH), now)
        return self.frame.filter(pl.Series(keep))

    def _newest_by_key(self, kind: str, depth: Mapping[str, int], now: int) -> BoolArray:
        """Mark the rows of the `depth` newest events of a kind under each key, up to and including the time `now`."""
        keep = np.zeros(self.frame.height, dtype=np.bool_)
        events = self.events[kind]
        for name, values in self.keyspace.values.items():
            codes = self.keyspace.offsets[name] + np.arange(len(values), dtype=np.int64)
            begin, stop = events.span(codes, np.full(len(codes), now + 1, dtype=np.int64))
            kept = np.minimum(stop - begin, depth[name])
            within = np.arange(kept.sum()) - np.repeat(np.cumsum(kept) - kept, kept)
            keep[events.rows[np.repeat(stop - kept, kept) + within]] = True
        return keep


def cluster_of_vc(history: History) -> dict[str | None, str | None]:
    """Map each virtual cluster to the cluster with most of its jobs, and `None` to the cluster with most jobs."""
    counted = history.frame.group_by("cluster", "vc").len().sort("len", "cluster", "vc")
    clusters: dict[str | None, str | None] = {vc: cluster for cluster, vc, _ in counted.iter_rows()}
    totals = counted.group_by("cluster").agg(pl.col("len").sum()).sort("len", "cluster")
    clusters[None] = totals["cluster"][-1] if totals.height else None
    return clusters


def _require(frame: pl.DataFrame, columns: Iterable[str], what: str) -> None:
    missing = [c for c in columns if c not in frame.columns]
    if missing:
        raise ContractError(f"{what}: found no column {', '.join(missing)}; expected the canonical columns")


def times_us(frame: pl.DataFrame) -> dict[str, IntArray]:
    """Return the jobs' submission, start and end times in microseconds; `NEVER` if the event has not happened."""
    columns = {c: frame[f"{c}_ts"].cast(pl.Int64).fill_null(int(NEVER)) for c in ("submit", "start", "end")}
    times = {c: column.to_numpy().astype(np.int64) for c, column in columns.items()}
    over = frame.select(has_ended()).to_series().to_numpy()
    return {**times, "end": np.where(over, times["end"], NEVER)}


def values_of(frame: pl.DataFrame) -> dict[str, FloatArray]:
    """Return by name the values from which features compute statistics: one per job, NaN where unknown."""
    run_s = frame["run_s"].fill_null(float("nan")).to_numpy().astype(np.float64)
    unknown = np.isnan(run_s)
    failed = frame["status"].is_in(sorted(FAILURES)).to_numpy()
    columns = {
        "run_s": run_s,
        # By Polars, which calls libm: numpy's last bit depends on the processor, and with it whole models.
        "log_run": frame["run_s"].fill_null(float("nan")).cast(pl.Float64).log1p().to_numpy(),
        "short": np.where(unknown, np.nan, run_s < SHORT_S),
        "failed": failed.astype(np.float64),
    }
    for name in (*USE_COLUMNS, *REQUEST_COLUMNS):
        columns[name] = frame[name].fill_null(float("nan")).to_numpy().astype(np.float64)
    return columns


def weights_of(start_us: IntArray) -> dict[str, IntArray]:
    """Return by name the integer weights that load features sum over running jobs; 0 for jobs that have not started.

    `jobs` is 1, and `start_s` the start time in whole seconds.
    """
    started = (start_us != NEVER).astype(np.int64)
    return {"jobs": started, "start_s": np.where(started, start_us // 1_000_000, 0)}
