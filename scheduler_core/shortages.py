"""Comparison of each resource that a gang requests with the free capacity, as numbers and as sentences for the user."""

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
    """One requested resource compared with what is free on the machines that are up and have an allowed GPU type.

    Of the `machines` machines, `short_machines` have less free than one instance requests (`each`). `wanted` is the
    request of the whole gang, and `free` the free amount on all these machines. `binds` is true if the gang would not
    fit even if it requested only this resource. `split` is true if GPUs bind only because they are counted by device:
    pooled GPUs of each machine would suffice.
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
    """Return the comparison of each requested resource (above 0) with the free capacity."""
    return tuple(_shortage(demand, room, at) for at, units in enumerate(demand.units) if units > 0)


def in_words(shortage: Shortage) -> str:
    """Return a sentence that tells what a gang requests of one resource and what is free."""
    requested = f"{WORDS[shortage.resource]}: an instance requests {shortage.each:g}"
    in_all = f"the gang requests {shortage.wanted:g}, and {shortage.free:g} are free in"
    some = f"{shortage.short_machines} of {shortage.machines} machines"
    if not shortage.split:
        return f"{requested}, more than is free on {some}; {in_all} total."
    if shortage.each * UNITS[GPUS] > WHOLE:
        return f"{requested} idle devices, and {some} have fewer; {in_all} total, but split over devices."
    return f"{requested} of one device, and no device of {some} has that free; {in_all} total, but split over devices."


def beyond(shortage: Shortage, whose: str) -> str:
    """Return a sentence on a resource of which even an empty cluster has too little; `whose` names the machines."""
    too_large = ", more than any of them has" if shortage.short_machines == shortage.machines else ""
    requested = f"{WORDS[shortage.resource]}: an instance requests {shortage.each:g}{too_large}"
    return f"{requested}; the gang requests {shortage.wanted:g}, and {whose} has {shortage.free:g}."


def fragmented_by(shortages: Iterable[Shortage]) -> str:
    """Return a sentence on why a gang does not fit although enough of every resource is free in total."""
    if any(shortage.split for shortage in shortages):
        return "Enough is free in total, but split over devices: it is fragmented."
    return "Enough is free in total, but not on the same machines: it is fragmented."


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
