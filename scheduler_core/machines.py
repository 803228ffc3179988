"""Machines, kinds of equal machines, and the check whether an empty cluster could host a gang.

`cluster` re-exports `Machine` and keeps track of free capacity.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scheduler_core.devices import WHOLE, shape
from scheduler_core.errors import BadInput
from scheduler_core.gangs import ALTERNATIVES, GPUS, Demand


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The capacity of one machine.

    Raises
    ------
    BadInput
        If an amount is not a finite number of at least 0, or the number of GPUs is not whole.
    """

    name: str
    cpu_cores: float
    mem_gib: float
    gpus: int
    gpu_type: str | None = None

    def __post_init__(self) -> None:
        amounts = {"cpu_cores": self.cpu_cores, "mem_gib": self.mem_gib, "gpus": self.gpus}
        for resource, amount in amounts.items():
            try:
                holds = 0.0 <= amount < math.inf and (resource != "gpus" or amount == int(amount))
            except TypeError:
                holds = False
            if not holds:
                expected = "a whole number of at least 0" if resource == "gpus" else "a finite amount of at least 0"
                raise BadInput(f"machine {self.name!r}: found {resource}={amount!r}, expected {expected}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineKind:
    """The capacity of equal machines in integer units; `devices` is the number of GPUs, None when GPUs are pooled."""

    units: tuple[int, ...]
    gpu_type: str | None
    devices: int | None

    def hosts(self, demand: Demand) -> int:
        """Return how many instances of a gang an empty machine could host, at most the size of the gang."""
        most = demand.instances
        for at, units in enumerate(demand.units):
            if units > 0:
                by_devices = at == GPUS and self.devices is not None
                most = min(most, self._slots(units) if by_devices else self.units[at] // units)
        return most

    def _slots(self, units_gpu: int) -> int:
        count, milli = shape(units_gpu)
        return (self.devices or 0) * (WHOLE // milli) // count


def kinds_of(machines: Iterable[MachineKind]) -> list[tuple[MachineKind, int]]:
    """Return the distinct kinds of machines with their counts, the most frequent first."""
    return Counter(machines).most_common()


def could_host(kinds: Sequence[tuple[MachineKind, int]], demand: Demand) -> bool:
    """Return whether empty machines of these kinds and counts could host the whole gang.

    >>> kinds = kinds_of([MachineKind(units=(8000, 65536, 4000), gpu_type="T4", devices=None)] * 2)
    >>> [could_host(kinds, Demand(units=(0, 0, 3000), instances=n, gpu_type="P100|T4")) for n in (2, 3)]
    [True, False]
    """
    types = None if demand.gpu_type is None else demand.gpu_type.split(ALTERNATIVES)
    missing = demand.instances
    for kind, count in kinds:
        if types is None or (kind.gpu_type and kind.gpu_type in types):
            missing -= count * kind.hosts(demand)
            if missing <= 0:
                return True
    return False


def paper_machines() -> tuple[Machine, ...]:
    """Return the cluster of Yang, Hong and Tang: four machines with 8 GPUs, 96 cores and 512 GiB each."""
    return tuple(Machine(name=f"m{i}", cpu_cores=96.0, mem_gib=512.0, gpus=8) for i in range(4))
