"""Finished jobs: their columns, and queries on the stored reports of them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any, Final, Literal

from sqlalchemy import ColumnElement, Connection, Float, and_, case, exists, func, or_, select, tuple_

from modelserve.amounts import SLACK
from modelserve.store.store import CHANGES, Store

__all__ = [
    "BELIEVED",
    "OOM",
    "RESOURCES",
    "TRUSTS",
    "Finished",
    "Identity",
    "Outcome",
    "ScoredBy",
    "Stored",
    "Trust",
    "named_finished",
    "newest_finished",
    "past_of",
    "reports_of",
    "scored_between",
    "totals",
]

Trust = Literal["shown", "bounded", "believed"]
"""How far a report of a finished job counts (`modelserve.learning.feedback`); stored as its `kind`."""
BELIEVED: Final = "believed"
TRUSTS: Final[tuple[Trust, ...]] = ("shown", "bounded", "believed")
"""Levels of trust, the lowest first."""
OOM: Final = "oom"
"""The outcome of a job that was killed because it ran out of memory."""
RESOURCES: Final = ("cpu_cores", "mem_gib", "gpus")
ScoredBy = Literal["run_time", "usage"]
"""Which of a job's two models: that of run time, or that of use."""
Identity = tuple[str, str, str, str]
"""Key of a finished job: trace, cluster (empty if none was named), job id and role."""

Stored = Any  # a row of a query: some columns as attributes, which are texts, numbers or None

_OF_REPORT: Final = ("trace", "cluster", "job_id", "role", "caller", "kind", "vc", "submit_us", "outcome", "digest")
_BATCH: Final = 500
"""Number of job ids in one IN list; SQLite and PostgreSQL allow many more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The columns of a finished job that show whether it was shrunk and came to harm.

    Amounts are per instance; None means unknown. The store assigns `seq`, the change number.
    """

    trace: str
    cluster: str
    job_id: str
    role: str
    task_type: str
    user: str | None
    group: str | None
    outcome: str
    req_cpu_cores: float | None
    req_mem_gib: float | None
    req_gpus: float | None
    alloc_cpu_cores: float | None
    alloc_mem_gib: float | None
    alloc_gpus: float | None
    mem_max_gib: float | None
    run_s: float
    caller: str
    at: float
    p90_s: float | None = None
    peak_mem_gib: float | None = None
    kind: Trust = BELIEVED
    seq: int = 0

    @property
    def requests(self) -> tuple[float | None, ...]:
        """The requests, in the order of `RESOURCES`."""
        return self.req_cpu_cores, self.req_mem_gib, self.req_gpus

    @property
    def allocations(self) -> tuple[float | None, ...]:
        """The allocations, in the order of `RESOURCES`."""
        return self.alloc_cpu_cores, self.alloc_mem_gib, self.alloc_gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(Outcome):
    """One finished job: its report, and the predictions for it by the models at the time of the report.

    `forecasts` holds the p50 and p90 of each member of the run-time model's combination, in log seconds, as JSON.
    `digest` is a hash of the report: a repeated report has the same, a contradictory report of the same job another.
    """

    vc: str | None
    workload: str | None
    gpu_type: str | None
    answer_id: str | None
    instances: int
    submit_us: int
    start_us: int | None
    end_us: int
    used_cpu_cores: float | None
    used_gpus: float | None
    gpu_mem_max_gib: float | None
    digest: str
    run_time_model: str | None = None
    usage_model: str | None = None
    p50_s: float | None = None
    peak_cpu_cores: float | None = None
    peak_gpus: float | None = None
    peak_gpu_mem_gib: float | None = None
    forecasts: str | None = None

    @property
    def identity(self) -> Identity:
        """The key of the job, which is the same in every report of it."""
        return self.trace, self.cluster, self.job_id, self.role


_FIELDS: Final = tuple(field.name for field in fields(Finished))
_C: Final = CHANGES.c
_OTHER: Final = CHANGES.alias()
_ALL: Final = select(*(_C[name] for name in _FIELDS))
_BELIEVED: Final = _C.kind == BELIEVED
_JOB: Final = ("trace", "cluster", "job_id", "role")
_DENIED: Final = exists().where(*(_OTHER.c[name] == _C[name] for name in _JOB), _OTHER.c.kind == BELIEVED)
_COUNTED: Final = or_(_BELIEVED, and_(_C.kind == "bounded", ~_DENIED.correlate(CHANGES)))
"""Condition on reports that count: the believed ones, and the bounded ones of jobs without a believed report."""


def _finished(rows: Iterable[Stored]) -> list[Finished]:
    # Without `mappings()`, which looks each column up by name and takes longer than the query.
    return [Finished(**dict(zip(_FIELDS, row, strict=True))) for row in rows]


def _reach(traces: Collection[str] | None, clusters: Collection[str] | None) -> list[ColumnElement[bool]]:
    bounds = ((_C.trace, traces), (_C.cluster, clusters))
    return [column.in_(sorted(names)) for column, names in bounds if names is not None]


def newest_finished(
    store: Store,
    *,
    limit: int,
    traces: Collection[str] | None = None,
    clusters: Collection[str] | None = None,
    scored_by: tuple[ScoredBy, str] | None = None,
) -> list[Finished]:
    """Return the newest `limit` believed jobs of some traces, clusters and model (None: all), oldest first."""
    conditions = [_BELIEVED, *_reach(traces, clusters)]
    if scored_by is not None:
        conditions.append(_C[f"{scored_by[0]}_model"] == scored_by[1])
    with store.reading("reading feedback") as connection:
        newest = connection.execute(_ALL.where(*conditions).order_by(_C.seq.desc()).limit(limit))
        return _finished(newest)[::-1]


def past_of(store: Store, trace: str, *, each: int) -> list[Finished]:
    """Return up to `each` newest jobs of each cluster of a trace, the oldest first."""
    with store.reading("reading feedback") as connection:
        of_trace = select(_C.cluster).where(_C.trace == trace, _BELIEVED).distinct()
        clusters = sorted(connection.execute(of_trace).scalars())
    parts = (newest_finished(store, traces=(trace,), clusters=(cluster,), limit=each) for cluster in clusters)
    return sorted(chain.from_iterable(parts), key=lambda job: job.seq)


def named_finished(store: Store, names: Collection[tuple[str, str]]) -> list[Finished]:
    """Return the reports that count of jobs with these pairs of trace and job id, of any cluster and role."""
    # PostgreSQL refuses NUL in texts, and no stored job has it in its id.
    sound = sorted(name for name in names if "\x00" not in "".join(name))
    if not sound:
        return []
    with store.reading("reading feedback") as connection:
        named = _ALL.where(_COUNTED, tuple_(_C.trace, _C.job_id).in_(sound))
        return _finished(connection.execute(named.order_by(_C.seq)))


def scored_between(store: Store, model: str, after: int, upto: int, *, limit: int) -> Sequence[Stored]:
    """Return `cluster`, `forecasts` and `run_s` of the newest `limit` jobs that a model forecast, oldest first.

    Their change numbers are in (after, upto].
    """
    scored = select(_C.cluster, _C.forecasts, _C.run_s).where(
        _C.run_time_model == model, _BELIEVED, _C.forecasts.is_not(None), _C.seq > after, _C.seq <= upto
    )
    with store.reading("reading forecasts") as connection:
        return connection.execute(scored.order_by(_C.seq.desc()).limit(limit)).all()[::-1]


def reports_of(connection: Connection, jobs: Iterable[tuple[str, str]]) -> Iterator[Stored]:
    """Yield the columns `_OF_REPORT` of the stored reports of some pairs of trace and job id, the oldest first."""
    by_trace: dict[str, set[str]] = defaultdict(set)
    for trace, job_id in jobs:
        by_trace[trace].add(job_id)
    columns = select(*(_C[name] for name in _OF_REPORT)).where(_C.kind.in_(TRUSTS)).order_by(_C.seq)
    for trace, named in sorted(by_trace.items()):
        ids = sorted(named)
        for begin in range(0, len(ids), _BATCH):
            batch = columns.where(_C.trace == trace, _C.job_id.in_(ids[begin : begin + _BATCH]))
            yield from connection.execute(batch)


def totals(store: Store, *, traces: Collection[str] | None, clusters: Collection[str] | None) -> Sequence[Stored]:
    """Return counts and sums of the reports that count by trace and task type, in some traces and clusters (None: all).

    The columns: `trace`, `task_type`, `jobs`, `shrunk` (jobs that got less than they requested), `kills` (shrunk jobs
    that ran out of memory), and for each resource `req_...` and `alloc_...`: resource-hours over all instances of the
    jobs whose request and allocation are known.
    """
    below = [_C[f"alloc_{name}"] < _C[f"req_{name}"] * (1.0 - SLACK) for name in RESOURCES]
    shrunk = or_(*(func.coalesce(case((each, 1), else_=0), 0) == 1 for each in below))
    sums = [
        func.count().label("jobs"),
        func.sum(case((shrunk, 1), else_=0)).label("shrunk"),
        func.sum(case((and_(shrunk, _C.outcome == OOM), 1), else_=0)).label("kills"),
    ]
    for name in RESOURCES:
        known = and_(_C[f"req_{name}"].is_not(None), _C[f"alloc_{name}"].is_not(None))
        for column in (_C[f"req_{name}"], _C[f"alloc_{name}"]):
            hours = case((known, column * _C.run_s * _C.instances / 3600.0), else_=0.0)
            sums.append(func.coalesce(func.sum(hours), 0.0).cast(Float(53)).label(column.name))
    by = _C.trace, _C.task_type
    grouped = select(*by, *sums).where(_COUNTED, *_reach(traces, clusters))
    with store.reading("summing up feedback") as connection:
        return connection.execute(grouped.group_by(*by).order_by(*by)).all()
