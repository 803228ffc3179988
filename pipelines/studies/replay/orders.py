"""Queue orders of the replays by name, and the sources of sizes with which each is replayed.

Called by `replay`, `study` and the charts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from pipelines.errors import BadUsage
from pipelines.studies.replay.sizes import ORACLE, PREDICTED
from scheduler_core.queueing import Discipline


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A queue order.

    Attributes
    ----------
    discipline
        The rules of the queue.
    sized
        Whether it uses sizes (run-time estimates).
    compared
        Whether it is replayed with sizes from history too, and not only with predicted sizes and the oracle's. If the
        user names sources of sizes, every order is replayed with all of them.
    least_runs
        Minimum run time before a preemption, as a multiple of the restart cost.
    needs
        Column of the jobs table without which the order is not replayed.
    """

    discipline: Discipline
    sized: bool = True
    compared: bool = False
    least_runs: float = 6.0
    needs: str | None = None


STRICT: Final = Discipline(overtakes=0)

ORDERS: Final[dict[str, Order]] = {
    "fifo": Order(discipline=STRICT, sized=False),
    "fifo+easy": Order(discipline=Discipline(backfill="easy")),
    "sjf": Order(discipline=replace(STRICT, policy="sjf"), compared=True),
    "sjf+easy": Order(discipline=Discipline(policy="sjf", backfill="easy"), compared=True),
    "qssf": Order(discipline=replace(STRICT, policy="qssf"), compared=True),
    "srtf": Order(discipline=Discipline(policy="srtf"), compared=True),
    "las": Order(discipline=Discipline(policy="las"), sized=False),
    "las_time": Order(discipline=Discipline(policy="las_time"), sized=False),
    "mlfq": Order(discipline=Discipline(policy="mlfq")),
    "gittins": Order(discipline=Discipline(policy="gittins"), least_runs=2.0),
    "drf": Order(discipline=Discipline(policy="drf"), sized=False, needs="user"),
    "priority": Order(discipline=replace(STRICT, policy="priority"), sized=False, needs="priority"),
}
"""Queue orders by name.

Without a suffix, no job starts before a job ahead of it that does not fit (except under `drf` and the preemptive
orders). With `+easy`, a job may start if by the predictions it does not delay the first job that does not fit (EASY
backfilling). `las` sorts by attained GPU time, `las_time` by attained run time. `mlfq` and `gittins` use
sizes and attained run time. `least_runs` was chosen on Philly's jobs of October 2017: if restarts cost much, `las` and
`las_time` gain from long runs, while `gittins` spares running jobs by itself.
"""

FIFO: Final = "fifo"


def orders_for(jobs: pl.DataFrame, names: Sequence[str] | None = None) -> dict[str, Order]:
    """Return the queue orders of these names; by default all whose needed column the jobs have.

    Raises
    ------
    BadUsage
        If a name is unknown, or needs data that the trace lacks.
    """
    told = {n: o for n, o in ORDERS.items() if o.needs is None or jobs[o.needs].null_count() < jobs.height}
    if unknown := sorted(set(names or ()) - set(told)):
        raise BadUsage(f"no order {', '.join(unknown)} for these jobs; there are {', '.join(told)}")
    return {n: o for n, o in told.items() if not names or n in names}


UNSIZED = "none"
"""Name of the source of sizes for orders that use no sizes."""


def planned(orders: Mapping[str, Order], sources: Sequence[str], *, everywhere: bool) -> dict[str, list[str]]:
    """Return the sources of sizes with which each order is replayed.

    FIFO is always replayed, and every order that uses sizes is replayed with the oracle's. Sizes from history are used
    for orders with `compared` only, or with `everywhere` for all.
    """
    plan: dict[str, list[str]] = {FIFO: [UNSIZED]}
    for name, order in orders.items():
        own = [s for s in sources if everywhere or order.compared or s in (PREDICTED, ORACLE)]
        plan[name] = [*dict.fromkeys([*own, ORACLE])] if order.sized else [UNSIZED]
    return plan
