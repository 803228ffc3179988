"""Power of machines when idle and at full load, looked up by machine name or by GPU type and CPU model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from scheduler_core.cluster import Machine
from scheduler_core.errors import BadInput

__all__ = ["JOULES_PER_KWH", "Assumed", "NodePower", "Package", "PowerTable", "Watts"]

JOULES_PER_KWH: Final = 3.6e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Watts:
    """Power of a device when idle and at full load, in watts."""

    idle_w: float
    full_w: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.idle_w <= self.full_w < float("inf"):
            raise BadInput(f"found {self.idle_w} W idle and {self.full_w} W full, expected 0 <= idle <= full")


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """Power and number of physical cores of one CPU."""

    watts: Watts
    cores: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePower:
    """Power of one machine in watts: of all its CPUs together, and of each of its GPUs.

    Power is linear in use between idle and full load (our assumption: only these two values are published). Memory,
    disks and fans are not included.
    """

    name: str
    cpu_idle_w: float
    cpu_full_w: float
    gpu_idle_w: float
    gpu_full_w: float

    def __post_init__(self) -> None:
        Watts(idle_w=self.cpu_idle_w, full_w=self.cpu_full_w)
        Watts(idle_w=self.gpu_idle_w, full_w=self.gpu_full_w)

    def idle_w(self, gpus: int) -> float:
        """Return the power in watts of the machine when nothing runs on it.

        >>> NodePower(name="n", cpu_idle_w=40.0, cpu_full_w=330.0, gpu_idle_w=30.0, gpu_full_w=300.0).idle_w(8)
        280.0
        """
        return self.cpu_idle_w + gpus * self.gpu_idle_w


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """Use assumed for runs without measured use: fractions of the CPUs and of the GPUs that the run holds."""

    cpu_frac: float
    gpu_frac: float

    def __post_init__(self) -> None:
        if not (0.0 <= self.cpu_frac <= 1.0 and 0.0 <= self.gpu_frac <= 1.0):
            raise BadInput(f"assumed use: found CPU {self.cpu_frac} and GPU {self.gpu_frac}, expected 0 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerTable:
    """Power of the CPUs, GPUs and machines of a site.

    - `gpus`, `cpus`: power by GPU type, and by CPU model.
    - `hosts`: CPU model of the machines with each GPU type.
    - `default_gpu`, `default_cpu`: GPU type and CPU model used where a GPU type is unknown or not in the table.
    - `threads_per_core`: logical cores (as counted in a machine's description) per physical core.
    - `packages`: number of CPUs assumed for a machine whose description has no core count.
    - `assumed`: use assumed for runs whose use was not measured.
    - `machines`: power of single machines by machine name; it takes precedence over the tables by type.
    - `pue`: the site's power usage effectiveness.
    - `source`: origin of the values, for reports.
    """

    gpus: Mapping[str, Watts]
    cpus: Mapping[str, Package]
    default_gpu: str
    default_cpu: str
    assumed: Assumed
    source: str
    hosts: Mapping[str, str] = field(default_factory=dict)
    threads_per_core: int = 1
    packages: int = 1
    machines: Mapping[str, NodePower] = field(default_factory=dict)
    pue: float = 1.0

    def __post_init__(self) -> None:
        unknown = sorted({self.default_cpu, *self.hosts.values()} - set(self.cpus))
        if self.default_gpu not in self.gpus:
            raise BadInput(
                f"found the GPU {self.default_gpu!r} without figures, expected one of {', '.join(sorted(self.gpus))}"
            )
        if unknown:
            raise BadInput(
                f"found the CPU {', '.join(map(repr, unknown))} without figures, expected one of "
                f"{', '.join(sorted(self.cpus))}"
            )

    def node(self, machine: Machine) -> NodePower:
        """Return a machine's power: its entry in `machines`, else by its GPU type and the CPU model in `hosts`."""
        if machine.name in self.machines:
            return self.machines[machine.name]
        kind = machine.gpu_type or self.default_gpu
        gpu = kind if kind in self.gpus else self.default_gpu
        model = self.hosts.get(kind, self.default_cpu)
        package = self.cpus[model]
        counted = machine.cpu_cores / (package.cores * self.threads_per_core)
        packages = counted if machine.cpu_cores else float(self.packages)
        return NodePower(
            name=f"{gpu} on {model}" if machine.gpus else model,
            cpu_idle_w=packages * package.watts.idle_w,
            cpu_full_w=packages * package.watts.full_w,
            gpu_idle_w=self.gpus[gpu].idle_w,
            gpu_full_w=self.gpus[gpu].full_w,
        )

    def nodes(self, machines: Sequence[Machine]) -> tuple[NodePower, ...]:
        """Return the power of each machine, in the given order."""
        return tuple(self.node(machine) for machine in machines)

    def guessed(self, machines: Sequence[Machine]) -> int:
        """Return the number of machines whose GPU type is not in the table, so that it counts as `default_gpu`."""
        known = self.gpus.keys()
        return sum(each.gpus > 0 and each.name not in self.machines and each.gpu_type not in known for each in machines)
