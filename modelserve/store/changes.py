"""The numbered changes that workers learn from: finished jobs, modes, brakes and their releases, and erasures."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import delete, exists, insert, or_, select

from modelserve.store.finished import FINISHED, OOM, Finished, Identity, Outcome, known_digests
from modelserve.store.store import Store, take_numbers
from modelserve.store.tables import CHANGES

__all__ = [
    "Brake",
    "Change",
    "Erasure",
    "ModeSet",
    "Reset",
    "changes_between",
    "insert_finished",
    "write_brake",
    "write_control",
    "write_erasures",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeSet:
    """A mode (observe or enforce), set for a combination of trace, cluster, task type and group.

    An empty cluster, task type or group means all; an empty mode means that the mode was unset.
    """

    trace: str
    cluster: str
    task_type: str
    group: str
    mode: str
    caller: str
    at: float
    seq: int = 0

    @property
    def place(self) -> tuple[str, str, str, str]:
        """The trace, cluster, task type and group for which the mode was set."""
        return self.trace, self.cluster, self.task_type, self.group


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """The release of a brake: kills before it no longer count. An empty cluster or task type means all."""

    trace: str
    cluster: str
    task_type: str
    caller: str
    at: float
    seq: int = 0

    def releases(self, trace: str, cluster: str, task_type: str) -> bool:
        """Return whether this release applies to the brake on a task type in a cluster."""
        return trace == self.trace and self.cluster in ("", cluster) and self.task_type in ("", task_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class Brake:
    """A stop to shrinking a task type in one cluster, since too many of its shrunk jobs were killed.

    It holds until a later release, even if the killed jobs are erased. An empty cluster means the jobs without one.
    """

    trace: str
    cluster: str
    task_type: str
    why: str
    at: float
    caller: str = ""
    seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """The erasure of a user: jobs submitted up to `before_us` are dropped; an empty cluster means all."""

    trace: str
    cluster: str
    user: str
    before_us: int
    caller: str
    at: float
    seq: int = 0


Change = Outcome | ModeSet | Reset | Brake | Erasure

KINDS: Final[dict[type[Any], str]] = {
    Finished: FINISHED, Outcome: FINISHED, ModeSet: "mode", Reset: "reset", Brake: "brake", Erasure: "erasure",
}  # fmt: skip
PAGE: Final = 5_000
"""Maximum number of changes in memory at once."""

_C: Final = CHANGES.c


def _row(change: Change, seq: int) -> dict[str, object]:
    return {**asdict(change), "seq": seq, "kind": KINDS[type(change)]}


def insert_finished(store: Store, rows: Sequence[Finished]) -> dict[Identity, str]:
    """Write the jobs that are not stored yet, in one transaction; return the digests of those already stored.

    No two of `rows` may have the same identity. A kill for memory always counts: it replaces an earlier report that
    says otherwise.
    """
    if not rows:
        return {}
    with store.writing("storing finished jobs") as connection:
        # Taking change numbers makes other writers wait, so no other worker stores one of these jobs meanwhile.
        first = take_numbers(connection, len(rows))
        for row in rows:
            if row.outcome == OOM:
                same = [_C[name] == getattr(row, name) for name in ("trace", "cluster", "job_id", "role")]
                connection.execute(delete(CHANGES).where(*same, _C.outcome != OOM))
        earlier = known_digests(connection, {row.identity for row in rows})
        new = [row for row in rows if row.identity not in earlier]
        if new:
            connection.execute(insert(CHANGES), [_row(row, first + i) for i, row in enumerate(new)])
    return earlier


def write_control(store: Store, control: ModeSet | Reset) -> int:
    """Write a decision and return its change number."""
    with store.writing("storing a decision") as connection:
        seq = take_numbers(connection, 1)
        connection.execute(insert(CHANGES).values(_row(control, seq)))
    return seq


def write_brake(store: Store, brake: Brake, seen: int) -> bool:
    """Write a brake that was decided from the changes up to number `seen`; return False if it is outdated.

    The brake is outdated if, after change `seen`, another worker has set or released a brake on the same task type and
    cluster.
    """
    place = [_C[name] == getattr(brake, name) for name in ("trace", "cluster", "task_type")]
    braked = exists().where(_C.kind == KINDS[Brake], _C.seq > seen, *place)
    released = exists().where(
        _C.kind == KINDS[Reset],
        _C.seq > seen,
        _C.trace == brake.trace,
        _C.cluster.in_(("", brake.cluster)),
        _C.task_type.in_(("", brake.task_type)),
    )
    with store.writing("storing a brake") as connection:
        take_numbers(connection, 0)  # makes other writers of changes wait
        if connection.execute(select(or_(braked, released))).scalar_one():
            return False
        connection.execute(insert(CHANGES).values(_row(brake, take_numbers(connection, 1))))
    return True


def write_erasures(store: Store, erasures: Sequence[Erasure]) -> int:
    """Write erasures and delete the users' finished jobs in one transaction; return the number of deleted jobs."""
    gone = 0
    with store.writing("erasing feedback") as connection:
        first = take_numbers(connection, len(erasures))
        for i, erasure in enumerate(erasures):
            theirs = [_C.kind == FINISHED, _C.trace == erasure.trace, _C.user == erasure.user]
            if erasure.cluster:
                theirs.append(_C.cluster == erasure.cluster)
            gone += connection.execute(delete(CHANGES).where(*theirs)).rowcount
            connection.execute(insert(CHANGES).values(_row(erasure, first + i)))
    return gone


def changes_between(
    store: Store, after: int, upto: int, *kinds: type[Change], finished: type[Outcome] = Finished
) -> Iterator[Change]:
    """Yield the changes with numbers in (after, upto], in order; with `kinds`, only these.

    With `finished=Outcome`, only those columns of finished jobs are read.
    """
    every: list[type[Any]] = [finished, ModeSet, Reset, Brake, Erasure]
    read = [kind for kind in every if not kinds or kind in kinds]
    columns = list(dict.fromkeys(("kind", *(field.name for kind in read for field in fields(kind)))))
    made = {KINDS[kind]: (kind, [field.name for field in fields(kind)]) for kind in read}
    pick = {name: itemgetter(*map(columns.index, names)) for name, (_, names) in made.items()}
    numbered = select(*(_C[name] for name in columns)).where(_C.kind.in_(sorted(made))).order_by(_C.seq).limit(PAGE)
    while True:
        with store.reading("reading changes") as connection:
            rows = connection.execute(numbered.where(_C.seq > after, _C.seq <= upto)).all()
        for row in rows:
            kind, names = made[row[0]]
            yield kind(**dict(zip(names, pick[row[0]](row), strict=True)))
        if len(rows) < PAGE:
            return
        after = rows[-1].seq
