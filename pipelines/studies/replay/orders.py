"""The queue orders that a replay compares, by name, each a discipline of the scheduler with its numbers said.

What they do is in `scheduler_core`. Called by `replay.replay` and `taut experiment replay`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from pipelines.errors import BadUsage
from scheduler_core.discipline import Discipline

AGING: Final = 0.1
"""Seconds that a second of waiting takes off a predicted run time: ten hours of waiting weigh one hour of size.
Chosen as a round number, not tuned on these traces."""

AGING_GPU_S: Final = 1.0
"""The same for `qssf`, whose keys are GPU-seconds."""

CHECKPOINT_S: Final = 60.0
"""What each start after a preemption costs, by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A discipline, whether sizes change what it does, and which column of the jobs it cannot do without.

    `compared` ones are replayed over the sizes from history too; the others over predicted and oracle ones, unless
    sizes are asked by name.
    """

    discipline: Discipline
    sized: bool = True
    compared: bool = False
    needs: str | None = None


STRICT: Final = Discipline(overtakes=0)

ORDERS: Final[dict[str, Order]] = {
    "fifo": Order(discipline=STRICT, sized=False),
    "fifo+skip": Order(discipline=Discipline(), sized=False),
    "fifo+easy": Order(discipline=Discipline(backfill="easy")),
    "sjf": Order(discipline=replace(STRICT, policy="sjf"), compared=True),
    "sjf+skip": Order(discipline=Discipline(policy="sjf")),
    "sjf+easy": Order(discipline=Discipline(policy="sjf", backfill="easy"), compared=True),
    "sjf+aging": Order(discipline=replace(STRICT, policy="sjf", aging=AGING)),
    "sjf+aging+easy": Order(discipline=Discipline(policy="sjf", aging=AGING, backfill="easy")),
    "qssf": Order(discipline=replace(STRICT, policy="qssf"), compared=True),
    "qssf+easy": Order(discipline=Discipline(policy="qssf", backfill="easy")),
    "qssf+aging": Order(discipline=replace(STRICT, policy="qssf", aging=AGING_GPU_S)),
    "srtf": Order(discipline=Discipline(policy="srtf"), compared=True),
    "srtf+aging": Order(discipline=Discipline(policy="srtf", aging=AGING)),
    "sjf+preempt": Order(discipline=Discipline(policy="sjf", preempt=True)),
    "las": Order(discipline=Discipline(policy="las"), sized=False),
    "drf": Order(discipline=Discipline(policy="drf"), sized=False, needs="user"),
    "drf+easy": Order(discipline=Discipline(policy="drf", backfill="easy"), needs="user"),
    "priority": Order(discipline=replace(STRICT, policy="priority"), sized=False, needs="priority"),
}
"""Alone, a name is strict: nobody passes the first job that does not fit (`drf` passes over it, the preemptive ones
too). `skip` lets everyone pass, `easy` only who does not delay it by prediction. `sjf+preempt` is SRTF whose
predictions are not renewed as a job runs."""

FIFO: Final = "fifo"


def orders_for(jobs: pl.DataFrame, names: Sequence[str] | None = None) -> dict[str, Order]:
    """Return the orders of these names, or all for which the jobs tell what is needed.

    Raises
    ------
    BadUsage
        If a name is unknown, or asks for what the trace does not tell.
    """
    told = {n: o for n, o in ORDERS.items() if o.needs is None or jobs[o.needs].null_count() < jobs.height}
    if unknown := sorted(set(names or ()) - set(told)):
        raise BadUsage(f"no order {', '.join(unknown)} for these jobs; there are {', '.join(told)}")
    return {n: o for n, o in told.items() if not names or n in names}
