"""Stored decisions about shrinking and erasing: modes, brakes and their releases, and erasures of users.

`modelserve.learning` calls this module and applies the decisions.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Final, TypeVar

from sqlalchemy import Table, delete, exists, insert, or_, select

from modelserve.store.store import Store, take_numbers
from modelserve.store.tables import BRAKES, ERASURES, FEEDBACK, MODES, RESETS

__all__ = ["Brake", "Erasure", "ModeSet", "Reset", "controls_between", "write_brake", "write_control", "write_erasures"]


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
    """The release of a brake; an empty cluster or task type means all."""

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

    An empty cluster means the jobs without a cluster.
    """

    trace: str
    cluster: str
    task_type: str
    why: str
    at: float
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


Control = TypeVar("Control", ModeSet, Reset, Brake, Erasure)

_PLACE: Final = ("trace", "cluster", "task_type")
_TABLES: Final[dict[type[object], Table]] = {ModeSet: MODES, Reset: RESETS, Brake: BRAKES, Erasure: ERASURES}


def write_control(store: Store, control: ModeSet | Reset) -> int:
    """Write a decision and return its change number.

    Raises
    ------
    StoreError
        The decision was not written.
    """
    with store.writing("storing a decision") as connection:
        seq = take_numbers(connection, 1)
        connection.execute(insert(_TABLES[type(control)]).values(**{**asdict(control), "seq": seq}))
    return seq


def write_brake(store: Store, brake: Brake, seen: int) -> bool:
    """Write a brake that was decided from the changes up to number `seen`; return False if it is outdated.

    The brake is outdated if, after change `seen`, another worker has set or released a brake on the same task type and
    cluster.

    Raises
    ------
    StoreError
        The brake was not written.
    """
    braked = exists().where(BRAKES.c.seq > seen, *[BRAKES.c[name] == getattr(brake, name) for name in _PLACE])
    released = exists().where(
        RESETS.c.seq > seen,
        RESETS.c.trace == brake.trace,
        RESETS.c.cluster.in_(("", brake.cluster)),
        RESETS.c.task_type.in_(("", brake.task_type)),
    )
    with store.writing("storing a brake") as connection:
        take_numbers(connection, 0)  # makes other writers of changes wait
        if connection.execute(select(or_(braked, released))).scalar_one():
            return False
        seq = take_numbers(connection, 1)
        connection.execute(insert(BRAKES).values(**{**asdict(brake), "seq": seq}))
    return True


def write_erasures(store: Store, erasures: Sequence[Erasure]) -> int:
    """Write erasures and delete the users' finished jobs in one transaction; return the number of deleted jobs.

    Raises
    ------
    StoreError
        Nothing was deleted.
    """
    gone = 0
    with store.writing("erasing feedback") as connection:
        first = take_numbers(connection, len(erasures))
        for i, erasure in enumerate(erasures):
            held = [FEEDBACK.c.trace == erasure.trace, FEEDBACK.c.user == erasure.user]
            if erasure.cluster:
                held.append(FEEDBACK.c.cluster == erasure.cluster)
            gone += connection.execute(delete(FEEDBACK).where(*held)).rowcount
            connection.execute(insert(ERASURES).values(**{**asdict(erasure), "seq": first + i}))
    return gone


def controls_between(store: Store, kind: type[Control], after: int, upto: int) -> list[Control]:
    """Return the decisions of one kind with change numbers above `after` and at most `upto`, in order.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    table = _TABLES[kind]
    columns = [table.c[field.name] for field in fields(kind)]
    asked = select(*columns).where(table.c.seq > after, table.c.seq <= upto).order_by(table.c.seq)
    with store.reading("reading decisions") as connection:
        return [kind(**row) for row in connection.execute(asked).mappings()]
