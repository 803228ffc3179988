"""What was decided, as it is stored: modes, brakes and their release, users to forget.

What follows from them is decided elsewhere. Called by `modelserve.learning`.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Final, TypeVar

from sqlalchemy import Table, delete, exists, insert, or_, select

from modelserve.store.store import Store, take_numbers
from modelserve.store.tables import BRAKES, ERASURES, FEEDBACK, MODES, RESETS


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeSet:
    """A mode that was set for a place; empty texts mean every cluster, type or group, no mode: taken back."""

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
        """Where it holds."""
        return self.trace, self.cluster, self.task_type, self.group


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """A brake that was released; empty texts mean every cluster or type."""

    trace: str
    cluster: str
    task_type: str
    caller: str
    at: float
    seq: int = 0

    def releases(self, trace: str, cluster: str, task_type: str) -> bool:
        """Tell whether it releases the brake of a type."""
        return trace == self.trace and self.cluster in ("", cluster) and self.task_type in ("", task_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class Brake:
    """A type of one cluster (empty: of jobs that name none) whose jobs were killed too often."""

    trace: str
    cluster: str
    task_type: str
    why: str
    at: float
    seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """A user whose history up to a moment is to be forgotten; an empty cluster means every one."""

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
    """Write what was decided and return its number.

    Raises
    ------
    StoreError
        It was not written.
    """
    with store.writing("storing a decision") as connection:
        seq = take_numbers(connection, 1)
        connection.execute(insert(_TABLES[type(control)]).values(**{**asdict(control), "seq": seq}))
    return seq


def write_brake(store: Store, brake: Brake, seen: int) -> bool:
    """Write a brake that follows from the changes up to number `seen`; return False where it does no more.

    That is where its place was braked or released since, by whoever was first.

    Raises
    ------
    StoreError
        It was not written.
    """
    braked = exists().where(BRAKES.c.seq > seen, *[BRAKES.c[name] == getattr(brake, name) for name in _PLACE])
    released = exists().where(
        RESETS.c.seq > seen,
        RESETS.c.trace == brake.trace,
        RESETS.c.cluster.in_(("", brake.cluster)),
        RESETS.c.task_type.in_(("", brake.task_type)),
    )
    with store.writing("storing a brake") as connection:
        take_numbers(connection, 0)  # from here on nobody else decides anything
        if connection.execute(select(or_(braked, released))).scalar_one():
            return False
        seq = take_numbers(connection, 1)
        connection.execute(insert(BRAKES).values(**{**asdict(brake), "seq": seq}))
    return True


def write_erasures(store: Store, erasures: Sequence[Erasure]) -> int:
    """Write that users are to be forgotten and delete their feedback, all or nothing; return how many rows went.

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
    """Return what was decided of one kind, with numbers above `after` and at most `upto`, in their order.

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
