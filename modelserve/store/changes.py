"""The numbered changes that workers learn from: finished jobs, modes, brakes and their releases."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from operator import itemgetter
from typing import Any, Final, Literal

from sqlalchemy import Connection, and_, exists, insert, or_, select

from modelserve.store.finished import OOM, TRUSTS, Finished, Identity, Outcome, Stored, reports_of
from modelserve.store.store import CHANGES, Store, take_numbers

__all__ = [
    "Brake",
    "Change",
    "ModeSet",
    "Reset",
    "changes_between",
    "insert_finished",
    "known_reports",
    "status_of",
    "write_brake",
    "write_control",
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
    """The release of a brake: harm before it no longer counts. An empty cluster or task type means all.

    With a user or group, only its brake is released.
    """

    trace: str
    cluster: str
    task_type: str
    caller: str
    at: float
    user: str = ""
    group: str = ""
    seq: int = 0

    def releases(self, trace: str, cluster: str, task_type: str, user: str, group: str) -> bool:
        """Return whether this release applies to the brake on a task type, user or group in a cluster."""
        placed = trace == self.trace and self.cluster in ("", cluster) and self.task_type in ("", task_type)
        return placed and (self.user or "", self.group or "") in (("", ""), (user, group))


@dataclass(frozen=True, slots=True, kw_only=True)
class Brake:
    """A stop to shrinking a group, a user or a task type in one cluster, since too many of its shrunk jobs were harmed.

    It holds until its release. An empty cluster means jobs without one. If user and group are empty, it stops the whole
    task type.
    """

    trace: str
    cluster: str
    task_type: str
    why: str
    at: float
    user: str = ""
    group: str = ""
    caller: str = ""
    seq: int = 0

    @property
    def scope(self) -> tuple[str, str, str, str, str]:
        """The trace, cluster, task type, user and group that are stopped."""
        return self.trace, self.cluster, self.task_type, self.user or "", self.group or ""


Change = Outcome | ModeSet | Reset | Brake

KINDS: Final[dict[type[Any], str]] = {ModeSet: "mode", Reset: "reset", Brake: "brake"}
PAGE: Final = 5_000
"""Maximum number of changes in memory at once."""

_C: Final = CHANGES.c


def _row(change: Change, seq: int) -> dict[str, object]:
    return {"kind": KINDS.get(type(change)), **asdict(change), "seq": seq}  # the kind of a report is its trust


Status = Literal["accepted", "duplicate", "conflict"]
Known = dict[Identity, list[Stored]]
"""Stored reports by job, with `caller`, `kind`, `outcome` and `digest`."""


def known_reports(connection: Connection, rows: Iterable[Finished]) -> Known:
    """Return the stored reports of the jobs in `rows`, by all reporters."""
    known: Known = defaultdict(list)
    for each in reports_of(connection, {(row.trace, row.job_id) for row in rows}):
        known[each.trace, each.cluster, each.job_id, each.role].append(each)
    return known


def status_of(row: Finished, known: Known) -> Status:
    """Return whether a report is new, or repeats or contradicts an earlier one of the job by its reporter.

    Reports by others, or of less trust, are ignored; a kill for memory is compared only with another kill for memory.
    """
    least = TRUSTS.index(row.kind)
    said = [each for each in known[row.identity] if each.caller == row.caller and TRUSTS.index(each.kind) >= least]
    if any(each.digest == row.digest for each in said):
        return "duplicate"
    stands = any(row.outcome != OOM or each.outcome == OOM for each in said)
    return "conflict" if stands else "accepted"


def insert_finished(store: Store, rows: Sequence[Finished]) -> list[Status]:
    """Write the reports that are new, in one transaction; return the status of each, in their order."""
    statuses: list[Status] = []
    if not rows:
        return statuses
    with store.writing("storing finished jobs") as connection:
        # Taking change numbers makes other writers wait, so no other worker stores one of these reports meanwhile.
        first = take_numbers(connection, len(rows))
        known = known_reports(connection, rows)
        new: list[dict[str, object]] = []
        for row in rows:
            statuses.append(status_of(row, known))
            if statuses[-1] == "accepted":
                known[row.identity].append(row)
                new.append(_row(row, first + len(new)))
        if new:
            connection.execute(insert(CHANGES), new)
    return statuses


def write_control(store: Store, control: ModeSet | Reset) -> int:
    """Write a decision and return its change number."""
    with store.writing("storing a decision") as connection:
        seq = take_numbers(connection, 1)
        connection.execute(insert(CHANGES).values(_row(control, seq)))
    return seq


def write_brake(store: Store, brake: Brake, seen: int) -> bool:
    """Write a brake that was decided from the changes up to number `seen`; return False if it is outdated.

    The brake is outdated if, after change `seen`, another worker has set or released a brake of the same scope.
    """
    place = [_C[name] == getattr(brake, name) for name in ("trace", "cluster", "task_type", "user", "group")]
    braked = exists().where(_C.kind == KINDS[Brake], _C.seq > seen, *place)
    released = exists().where(
        _C.kind == KINDS[Reset],
        _C.seq > seen,
        _C.trace == brake.trace,
        _C.cluster.in_(("", brake.cluster)),
        _C.task_type.in_(("", brake.task_type)),
        or_(and_(_C.user == "", _C.group == ""), and_(_C.user == brake.user, _C.group == brake.group)),
    )
    with store.writing("storing a brake") as connection:
        take_numbers(connection, 0)  # makes other writers of changes wait
        if connection.execute(select(or_(braked, released))).scalar_one():
            return False
        connection.execute(insert(CHANGES).values(_row(brake, take_numbers(connection, 1))))
    return True


def changes_between(store: Store, after: int, upto: int, *, finished: type[Outcome] = Finished) -> Iterator[Change]:
    """Yield the changes with numbers in (after, upto], in order.

    Reports that are only shown are left out. With `finished=Outcome`, only those columns of finished jobs are read.
    """
    read: dict[str, type[Any]] = {name: kind for kind, name in KINDS.items()} | {
        "believed": finished,
        "bounded": finished,
    }
    columns = list(dict.fromkeys(("kind", *(field.name for kind in read.values() for field in fields(kind)))))
    made = {name: (kind, [field.name for field in fields(kind)]) for name, kind in read.items()}
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
