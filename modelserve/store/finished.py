"""Stored reports of finished jobs: write each once, and read them by change number or from the newest.

Called by `modelserve.learning`, which learns from the reports.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any, Final, Literal

from sqlalchemy import ColumnElement, Row, insert, select

from modelserve.store.identities import OOM, Identity, digests_on, replace_by_kills
from modelserve.store.store import Store, take_numbers
from modelserve.store.tables import FEEDBACK

__all__ = [
    "OOM",
    "SLACK",
    "Finished",
    "Outcome",
    "Scored",
    "ScoredBy",
    "Trust",
    "finished_between",
    "insert_finished",
    "newest_finished",
    "outcomes_between",
    "past_of",
    "scored_between",
]

SLACK: Final = 1e-6
"""Maximum relative difference at which an allocation counts as equal to the request."""
Trust = Literal["confirmed", "unconfirmed", "untied", "quarantined"]
"""How far the measurements of a report may be learnt from; see `modelserve.learning.trust`."""
ScoredBy = Literal["run_time", "usage", "challenger"]
"""Which of the models that predicted a job: the run-time champion, the usage champion or the challenger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """One finished job: its report, and the predictions for it by the models at the time of the report.

    Requests, allocations and use are per instance; None means unknown. The store assigns `seq`, the change number.
    `forecasts` holds the p50 and p90 of each member of the run-time model's combination, in log seconds, as JSON.
    `digest` is a hash of the report: a repeated report has the same, a contradictory report of the same job another.
    """

    trace: str
    cluster: str
    job_id: str
    role: str
    task_type: str
    user: str | None
    group: str | None
    vc: str | None
    workload: str | None
    gpu_type: str | None
    answer_id: str | None
    instances: int
    submit_us: int
    start_us: int | None
    end_us: int
    run_s: float
    outcome: str
    req_cpu_cores: float | None
    req_mem_gib: float | None
    req_gpus: float | None
    alloc_cpu_cores: float | None
    alloc_mem_gib: float | None
    alloc_gpus: float | None
    used_cpu_cores: float | None
    used_gpus: float | None
    mem_max_gib: float | None
    gpu_mem_max_gib: float | None
    digest: str
    caller: str
    at: float
    run_time_model: str | None = None
    usage_model: str | None = None
    challenger_model: str | None = None
    p50_s: float | None = None
    p90_s: float | None = None
    challenger_p50_s: float | None = None
    challenger_p90_s: float | None = None
    peak_cpu_cores: float | None = None
    peak_mem_gib: float | None = None
    peak_gpus: float | None = None
    peak_gpu_mem_gib: float | None = None
    forecasts: str | None = None
    trust: Trust = "confirmed"
    seq: int = 0

    @property
    def identity(self) -> Identity:
        """The key of the job, which is the same in every report of it."""
        return self.trace, self.cluster, self.job_id, self.role


_FIELDS: Final = tuple(field.name for field in fields(Finished))
_COLUMNS: Final = tuple(FEEDBACK.c[name] for name in _FIELDS)


def insert_finished(store: Store, rows: Sequence[Finished]) -> dict[Identity, str]:
    """Write the jobs that are not stored yet, in one transaction; return the digests of those already stored.

    No two of `rows` may have the same identity. A kill for memory replaces an earlier report that says otherwise.

    Raises
    ------
    StoreError
        No job was written.
    """
    if not rows:
        return {}
    with store.writing("storing finished jobs") as connection:
        # Taking change numbers makes other writers wait, so no other worker stores one of these jobs meanwhile.
        first = take_numbers(connection, len(rows))
        replace_by_kills(connection, [row.identity for row in rows if row.outcome == OOM])
        earlier = digests_on(connection, {row.identity for row in rows})
        new = [row for row in rows if row.identity not in earlier]
        if new:
            numbered = [
                {**{name: getattr(row, name) for name in _FIELDS}, "seq": first + i} for i, row in enumerate(new)
            ]
            connection.execute(insert(FEEDBACK), numbered)
    return earlier


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The columns of a finished job that show whether it was shrunk and then killed for memory."""

    seq: int
    trace: str
    cluster: str
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
    trust: Trust
    at: float


_OUTCOME_FIELDS: Final = tuple(field.name for field in fields(Outcome))
_OUTCOME: Final = tuple(FEEDBACK.c[name] for name in _OUTCOME_FIELDS)
_PAGE: Final = 10_000


def outcomes_between(store: Store, after: int, upto: int) -> Iterator[Outcome]:
    """Yield outcomes of the jobs with change numbers above `after` and at most `upto`, in the order of storing.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    while True:
        asked = select(*_OUTCOME).where(FEEDBACK.c.seq > after, FEEDBACK.c.seq <= upto)
        with store.reading("reading outcomes") as connection:
            rows = connection.execute(asked.order_by(FEEDBACK.c.seq).limit(_PAGE)).all()
        yield from (Outcome(**dict(zip(_OUTCOME_FIELDS, row, strict=True))) for row in rows)
        if len(rows) < _PAGE:
            return
        after = rows[-1].seq


def finished_between(store: Store, after: int, upto: int) -> list[Finished]:
    """Return the jobs with change numbers above `after` and at most `upto`, in the order of storing.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    asked = select(*_COLUMNS).where(FEEDBACK.c.seq > after, FEEDBACK.c.seq <= upto).order_by(FEEDBACK.c.seq)
    with store.reading("reading feedback") as connection:
        return _finished(connection.execute(asked))


def newest_finished(
    store: Store,
    *,
    limit: int,
    traces: Collection[str] | None = None,
    clusters: Collection[str] | None = None,
    scored_by: tuple[ScoredBy, str] | None = None,
) -> list[Finished]:
    """Return the newest `limit` jobs of some traces, clusters and model (None: all), the oldest of them first.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    held: list[ColumnElement[bool]] = []
    if traces is not None:
        held.append(FEEDBACK.c.trace.in_(sorted(traces)))
    if clusters is not None:
        held.append(FEEDBACK.c.cluster.in_(sorted(clusters)))
    if scored_by is not None:
        kind, reference = scored_by
        held.append(FEEDBACK.c[f"{kind}_model"] == reference)
    asked = select(*_COLUMNS).where(*held).order_by(FEEDBACK.c.seq.desc()).limit(limit)
    with store.reading("reading feedback") as connection:
        return _finished(connection.execute(asked))[::-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The columns of a finished job from which a combined run-time model learns its weights."""

    seq: int
    cluster: str
    forecasts: str
    run_s: float


def scored_between(store: Store, model: str, after: int, upto: int, *, limit: int) -> list[Scored]:
    """Return the newest `limit` jobs with forecasts of a run-time model and change numbers in (after, upto].

    The oldest of them comes first.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    asked = select(FEEDBACK.c.seq, FEEDBACK.c.cluster, FEEDBACK.c.forecasts, FEEDBACK.c.run_s).where(
        FEEDBACK.c.run_time_model == model,
        FEEDBACK.c.forecasts.is_not(None),
        FEEDBACK.c.seq > after,
        FEEDBACK.c.seq <= upto,
    )
    with store.reading("reading forecasts") as connection:
        rows = connection.execute(asked.order_by(FEEDBACK.c.seq.desc()).limit(limit)).all()
    return [
        Scored(seq=row.seq, cluster=row.cluster, forecasts=row.forecasts, run_s=row.run_s) for row in reversed(rows)
    ]


def past_of(store: Store, trace: str, *, each: int) -> list[Finished]:
    """Return the newest `each` jobs of every cluster of a trace, the oldest of them first.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    asked = select(FEEDBACK.c.cluster).where(FEEDBACK.c.trace == trace).distinct()
    with store.reading("reading feedback") as connection:
        clusters = sorted(connection.execute(asked).scalars())
    parts = (newest_finished(store, traces=(trace,), clusters=(cluster,), limit=each) for cluster in clusters)
    return sorted(chain.from_iterable(parts), key=lambda job: job.seq)


def _finished(rows: Iterable[Row[*tuple[Any, ...]]]) -> list[Finished]:
    # Without `mappings()`, which looks each column up by name and takes longer than the query.
    return [Finished(**dict(zip(_FIELDS, row, strict=True))) for row in rows]
