"""Queries on finished jobs about the effect of shrinking: resource-hours, kills, and run times with predictions.

Called by `modelserve.learning.modes` and `modelserve.calls.recent`, which compute savings from the results.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, Float, Row, and_, case, func, or_, select, true, tuple_

from modelserve.store.finished import OOM, SLACK
from modelserve.store.store import Store
from modelserve.store.tables import FEEDBACK

__all__ = ["RESOURCES", "Ran", "Totals", "named_ran", "newest_ran", "totals"]

RESOURCES: Final = ("cpu_cores", "mem_gib", "gpus")
_HOURS: Final = FEEDBACK.c.run_s * FEEDBACK.c.instances / 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Counts and sums of the finished jobs of one trace and task type.

    `shrunk` jobs got less than they requested; `kills` of them ran out of memory. Resource-hours are summed over all
    instances of the jobs whose request and allocation are known.
    """

    trace: str
    task_type: str
    jobs: int
    shrunk: int
    kills: int
    asked_hours: dict[str, float]
    allocated_hours: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The columns of a finished job from which its savings and its slowdown are computed.

    `requests` and `allocations` are in the order of `RESOURCES`.
    """

    trace: str
    cluster: str
    task_type: str
    job_id: str
    role: str
    answer_id: str | None
    instances: int
    run_s: float
    outcome: str
    p50_s: float | None
    shrunk: bool
    requests: tuple[float | None, ...]
    allocations: tuple[float | None, ...]


def _below(resource: str) -> ColumnElement[bool]:
    return FEEDBACK.c[f"alloc_{resource}"] < FEEDBACK.c[f"req_{resource}"] * (1.0 - SLACK)


_SHRUNK: Final = func.coalesce(or_(*[func.coalesce(case((_below(r), 1), else_=0), 0) == 1 for r in RESOURCES]), False)


_PLAIN: Final = tuple(
    FEEDBACK.c[name]
    for name in (
        "trace", "cluster", "task_type", "job_id", "role", "answer_id", "instances", "run_s", "outcome", "p50_s",
    )
)  # fmt: skip
_ASKED: Final = select(
    *_PLAIN,
    case((_SHRUNK, 1), else_=0).label("shrunk"),
    *[FEEDBACK.c[f"{kind}_{resource}"] for kind in ("req", "alloc") for resource in RESOURCES],
)


def _reach(traces: Collection[str] | None, clusters: Collection[str] | None) -> ColumnElement[bool]:
    held: list[ColumnElement[bool]] = [true()]
    if traces is not None:
        held.append(FEEDBACK.c.trace.in_(sorted(traces)))
    if clusters is not None:
        held.append(FEEDBACK.c.cluster.in_(sorted(clusters)))
    return and_(*held)


def totals(store: Store, *, traces: Collection[str] | None, clusters: Collection[str] | None) -> list[Totals]:
    """Return counts and sums of finished jobs for each trace and task type, in some traces and clusters (None: all).

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    c = FEEDBACK.c
    shrunk = case((_SHRUNK, 1), else_=0)
    killed = case((and_(_SHRUNK, c.outcome == OOM), 1), else_=0)
    sums = []
    for resource in RESOURCES:
        asked, given = c[f"req_{resource}"], c[f"alloc_{resource}"]
        known = and_(asked.is_not(None), given.is_not(None))
        for amount in (asked, given):
            sums.append(func.coalesce(func.sum(case((known, amount * _HOURS), else_=0.0)), 0.0).cast(Float(53)))
    asked_for = (
        select(c.trace, c.task_type, func.count(), func.sum(shrunk), func.sum(killed), *sums)
        .where(_reach(traces, clusters))
        .group_by(c.trace, c.task_type)
        .order_by(c.trace, c.task_type)
    )
    with store.reading("summing up feedback") as connection:
        rows = connection.execute(asked_for).all()
    return [
        Totals(
            trace=trace,
            task_type=task_type,
            jobs=int(jobs),
            shrunk=int(small),
            kills=int(kills),
            asked_hours=dict(zip(RESOURCES, map(float, hours[0::2]), strict=True)),
            allocated_hours=dict(zip(RESOURCES, map(float, hours[1::2]), strict=True)),
        )
        for trace, task_type, jobs, small, kills, *hours in rows
    ]


def newest_ran(
    store: Store, *, traces: Collection[str] | None, clusters: Collection[str] | None, limit: int
) -> list[Ran]:
    """Return the newest `limit` finished jobs in some traces and clusters (None: all), the newest first.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    asked = _ASKED.where(_reach(traces, clusters)).order_by(FEEDBACK.c.seq.desc()).limit(limit)
    with store.reading("reading feedback") as connection:
        return [_ran(row) for row in connection.execute(asked)]


def named_ran(store: Store, names: Collection[tuple[str, str]]) -> list[Ran]:
    """Return the finished jobs with these pairs of trace and job id, of any cluster and role.

    All pairs go into one statement, so pass at most a few hundred.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    if not names:
        return []
    # PostgreSQL refuses NUL in texts, and no stored job has it in its id.
    sound = sorted(name for name in names if "\x00" not in "".join(name))
    asked = _ASKED.where(tuple_(FEEDBACK.c.trace, FEEDBACK.c.job_id).in_(sound))
    with store.reading("reading feedback") as connection:
        return [_ran(row) for row in connection.execute(asked.order_by(FEEDBACK.c.seq))]


def _ran(row: Row[*tuple[object, ...]]) -> Ran:
    fields = row._mapping
    return Ran(
        **{column.name: fields[column.name] for column in _PLAIN},
        shrunk=bool(fields["shrunk"]),
        requests=tuple(fields[f"req_{resource}"] for resource in RESOURCES),
        allocations=tuple(fields[f"alloc_{resource}"] for resource in RESOURCES),
    )
