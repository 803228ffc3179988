"""What was decided, as it is stored: modes, brakes and their release, users to forget.

What follows from them is decided elsewhere. Called by `modelserve.{feed, modes, erasure}`.
"""

from dataclasses import asdict, dataclass, fields
from typing import Final, TypeVar

from sqlalchemy import Table, insert, select

from modelserve.store.store import Store, take_numbers
from modelserve.store.tables import BRAKES, ERASURES, MODES, RESETS


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeSet:
    """A mode that was set for a place; empty texts mean every cluster, type or group."""

    trace: str
    cluster: str
    task_type: str
    group: str
    mode: str
    caller: str
    at: float
    seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """A brake that was released; empty texts mean every cluster or type."""

    trace: str
    cluster: str
    task_type: str
    caller: str
    at: float
    seq: int = 0


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

_TABLES: Final[dict[type[object], Table]] = {ModeSet: MODES, Reset: RESETS, Brake: BRAKES, Erasure: ERASURES}


def write_control(store: Store, control: ModeSet | Reset | Brake | Erasure) -> int:
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
