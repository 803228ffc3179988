"""What machines draw: idle and at full load, from their GPU type, their CPU model, or their own name.

Reading tables from files is `pipelines.simulation.energy.power_file`'s matter. Called by `accounting` and `taut
simulate`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scheduler_core.cluster import Machine
from scheduler_core.errors import BadInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Watts:
    """What a device draws when idle and at full load, W.

    Raises
    ------
    BadInput
        If it draws less at full load than idle, or less than nothing.
    """

    idle_w: float
    full_w: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.idle_w <= self.full_w < float("inf"):
            raise BadInput(f"found {self.idle_w} W idle and {self.full_w} W full, expected 0 <= idle <= full")


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One CPU of a model: its watts and its physical cores."""

    watts: Watts
    cores: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePower:
    """One machine: its CPUs together, and each of its GPUs.

    Draw is linear in use between idle and full (ours: the published figures are these two ends); memory, disks and fans
    are not in them.

    Raises
    ------
    BadInput
        If anything draws less at full load than idle, or less than nothing.
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
        """Return what the machine draws when nothing runs on it.

        >>> NodePower(name="n", cpu_idle_w=40.0, cpu_full_w=330.0, gpu_idle_w=30.0, gpu_full_w=300.0).idle_w(8)
        280.0
        """
        return self.cpu_idle_w + gpus * self.gpu_idle_w


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """Which part of what it holds a run draws, where nobody measured it."""

    cpu_frac: float
    gpu_frac: float

    def __post_init__(self) -> None:
        if not (0.0 <= self.cpu_frac <= 1.0 and 0.0 <= self.gpu_frac <= 1.0):
            raise BadInput(f"found use assumed at {self.cpu_frac} and {self.gpu_frac}, expected 0 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerTable:
    """What is known of a site's power.

    Attributes
    ----------
    gpus, cpus
        By GPU type, and by CPU model.
    hosts
        The CPU model of machines with a GPU type.
    default_gpu, default_cpu
        Of machines whose type is unknown or not in the table.
    threads_per_core
        Cores that a machine's description counts for each physical one.
    packages
        CPUs of a machine that tells no cores.
    assumed
        What runs of unknown use draw.
    machines
        Machines with figures of their own, by name.
    pue
        The site's power usage effectiveness.
    source
        Who says so.
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
        """Return what a machine draws: by its name, else by its GPU type and the CPU that goes with it."""
        if machine.name in self.machines:
            return self.machines[machine.name]
        kind = machine.gpu_type or self.default_gpu
        gpu = kind if kind in self.gpus else self.default_gpu
        model = self.hosts.get(kind, self.default_cpu)
        package = self.cpus[model]
        told = machine.cpu_cores / (package.cores * self.threads_per_core)
        packages = told if machine.cpu_cores else float(self.packages)
        return NodePower(
            name=f"{gpu} on {model}" if machine.gpus else model,
            cpu_idle_w=packages * package.watts.idle_w,
            cpu_full_w=packages * package.watts.full_w,
            gpu_idle_w=self.gpus[gpu].idle_w,
            gpu_full_w=self.gpus[gpu].full_w,
        )

    def nodes(self, machines: Sequence[Machine]) -> tuple[NodePower, ...]:
        """Return what each machine draws, in their order."""
        return tuple(self.node(machine) for machine in machines)

    def guessed(self, machines: Sequence[Machine]) -> int:
        """Return how many machines with GPUs are taken as the default, because the table does not know their type."""
        known = self.gpus.keys()
        return sum(each.gpus > 0 and each.name not in self.machines and each.gpu_type not in known for each in machines)
