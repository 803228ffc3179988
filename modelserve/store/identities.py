"""Look up which finished jobs are already stored, by identity, or by job id on any cluster.

Called by `modelserve.store.finished` and `modelserve.learning.feedback`.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, delete, select

from modelserve.store.store import Store
from modelserve.store.tables import FEEDBACK

__all__ = ["OOM", "Identity", "Report", "known_digests", "reports_of"]

OOM: Final = "oom"
"""The outcome of a job that was killed because it ran out of memory."""

Identity = tuple[str, str, str, str]
"""Key of a finished job: trace, cluster (empty if none was named), job id and role."""

_BATCH: Final = 500
"""Number of job ids in one IN list; SQLite and PostgreSQL allow many more."""


def known_digests(store: Store, identities: Iterable[Identity]) -> dict[Identity, str]:
    """Return the digest (hash) of the stored report of each job that is stored already.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    with store.reading("looking for finished jobs") as connection:
        return digests_on(connection, set(identities))


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The columns of a stored report that distinguish jobs of the same trace, job id and role."""

    cluster: str
    vc: str | None
    submit_us: int
    digest: str


def reports_of(store: Store, jobs: Iterable[tuple[str, str, str]]) -> dict[tuple[str, str, str], list[Report]]:
    """Return the stored reports of jobs on any cluster, keyed by trace, job id and role.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    wanted = set(jobs)
    found: dict[tuple[str, str, str], list[Report]] = defaultdict(list)
    c = FEEDBACK.c
    with store.reading("looking for finished jobs") as connection:
        for trace, batch in _batches((trace, job_id) for trace, job_id, _ in wanted):
            asked = select(c.job_id, c.role, c.cluster, c.vc, c.submit_us, c.digest)
            for job_id, role, cluster, vc, submit_us, digest in connection.execute(
                asked.where(c.trace == trace, c.job_id.in_(batch)).order_by(c.seq)
            ):
                if (trace, job_id, role) in wanted:
                    report = Report(cluster=cluster, vc=vc, submit_us=submit_us, digest=digest)
                    found[trace, job_id, role].append(report)
    return dict(found)


def replace_by_kills(connection: Connection, kills: Collection[Identity]) -> None:
    """Delete the stored reports of jobs that are now reported as killed for memory, unless they say so themselves.

    A kill always counts, even if somebody reported another end of a job of that id before.
    """
    c = FEEDBACK.c
    for trace, cluster, job_id, role in kills:
        same = (c.trace == trace, c.cluster == cluster, c.job_id == job_id, c.role == role)
        connection.execute(delete(FEEDBACK).where(*same, c.outcome != OOM))


def digests_on(connection: Connection, identities: Collection[Identity]) -> dict[Identity, str]:
    """Return what `known_digests` returns, but read within the transaction of `connection`."""
    found: dict[Identity, str] = {}
    key = (FEEDBACK.c.trace, FEEDBACK.c.cluster, FEEDBACK.c.job_id, FEEDBACK.c.role)
    for trace, batch in _batches((trace, job_id) for trace, _, job_id, _ in identities):
        asked = select(*key, FEEDBACK.c.digest).where(FEEDBACK.c.trace == trace, FEEDBACK.c.job_id.in_(batch))
        for row in connection.execute(asked):
            identity: Identity = (row[0], row[1], row[2], row[3])
            if identity in identities:
                found[identity] = row[4]
    return found


def _batches(jobs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, list[str]]]:
    """Yield pairs of a trace and some of its job ids, as many as fit in one statement."""
    by_trace: dict[str, set[str]] = defaultdict(set)
    for trace, job_id in jobs:
        by_trace[trace].add(job_id)
    for trace in sorted(by_trace):
        ids = sorted(by_trace[trace])
        yield from ((trace, ids[begin : begin + _BATCH]) for begin in range(0, len(ids), _BATCH))
