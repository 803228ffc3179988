"""How each resource a gang asks for stands in a room, and how to say so.

What else keeps a gang waiting (rules, those before it) is in `pending`, which calls this.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from scheduler_core.cluster import UNITS, Demand, Room
from scheduler_core.devices import WHOLE, slots
from scheduler_core.types import RESOURCES

GPUS: Final = RESOURCES.index("gpus")
WORDS: Final[dict[str, str]] = {"cpu_cores": "Cores", "mem_gib": "GiB of memory", "gpus": "GPUs"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """How one asked resource stands on the machines that are up and of the job's GPU type.

    `short_machines` of the `machines` have less free than one instance asks (`each`); `free` is their sum, against
    `wanted` by the whole gang. `binds`: this resource alone keeps the gang out. `split`: the GPUs do, and would not if
    those of a machine were counted together: each for itself has too little free.
    """

    resource: str
    each: float
    wanted: float
    free: float
    short_machines: int
    machines: int
    binds: bool
    split: bool = False


def shortages_of(demand: Demand, room: Room) -> tuple[Shortage, ...]:
    """Return how each resource that is asked for stands."""
    return tuple(_shortage(demand, room, at) for at, units in enumerate(demand.units) if units > 0)


def in_words(shortage: Shortage) -> str:
    """Say how one resource stands, in a sentence."""
    asked = f"{WORDS[shortage.resource]}: an instance asks {shortage.each:g}"
    in_all = f"the gang asks {shortage.wanted:g}, and {shortage.free:g} are free in"
    some = f"{shortage.short_machines} of {shortage.machines} machines"
    if not shortage.split:
        return f"{asked}, more than is free on {some}; {in_all} all."
    if shortage.each * UNITS[GPUS] > WHOLE:
        return f"{asked} idle ones, and {some} have fewer; {in_all} sum, but split over devices."
    return f"{asked} of one, and no single one has that free on {some}; {in_all} sum, but split over devices."


def beyond(shortage: Shortage, whose: str) -> str:
    """Say how one resource of an empty cluster falls short, in a sentence; `whose` names the machines."""
    too_large = ", more than any of them has" if shortage.short_machines == shortage.machines else ""
    asked = f"{WORDS[shortage.resource]}: an instance asks {shortage.each:g}{too_large}"
    return f"{asked}; the gang asks {shortage.wanted:g}, and {whose} has {shortage.free:g}."


def fragmented_by(shortages: Iterable[Shortage]) -> str:
    """Say what it is that keeps a gang out though all it asks for is free in sum."""
    if any(shortage.split for shortage in shortages):
        return "Enough is free in sum, but split over devices: it is fragmented."
    return "Enough is free in sum, but not on the same machines: it is fragmented."


def _shortage(demand: Demand, room: Room, at: int) -> Shortage:
    open_, each = room.open_to(demand), demand.units[at]
    free = room.free[open_, at]
    pooled = free // each
    hosts = pooled if at != GPUS or room.devices is None else slots(room.devices[open_], each)
    binds = int(hosts.sum()) < demand.instances
    return Shortage(
        resource=RESOURCES[at],
        each=each / UNITS[at],
        wanted=each * demand.instances / UNITS[at],
        free=int(free.sum()) / UNITS[at],
        short_machines=int((hosts == 0).sum()),
        machines=int(open_.sum()),
        binds=binds,
        split=binds and int(pooled.sum()) >= demand.instances,
    )
