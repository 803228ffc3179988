"""The power of machines when idle and at full load: the shipped table, with entries replaced by a site's own file."""

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from modelserve.wrong_values import fault_of
from pipelines.errors import BadUsage
from scheduler_core.cluster import Machine
from scheduler_core.planning.hourly import MOST_PUE

__all__ = ["Assumed", "NodePower", "PowerTable", "power_file"]

SHIPPED: Final = Path(__file__).resolve().parents[3] / "data" / "power" / "nodes.toml"
EXAMPLE: Final = "[gpus.T4] with idle_w = 10 and full_w = 70"
MOST_W: Final = 1e6
"""Maximum number of watts: more suggests a wrong unit."""

_Power = Annotated[float, Field(strict=True, ge=0.0, le=MOST_W, allow_inf_nan=False)]
_Frac = Annotated[float, Field(strict=True, ge=0.0, le=1.0, allow_inf_nan=False)]
_Name = Annotated[str, Field(min_length=1)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Watts(_Part):
    """Power of a device when idle and at full load, in watts."""

    idle_w: _Power
    full_w: _Power

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        return _checked(self, self.idle_w, self.full_w)


class Gpu(Watts):
    """Power of one GPU, and further names of its type."""

    also: tuple[_Name, ...] = ()


class Cpu(Watts):
    """Power and number of physical cores of one CPU."""

    cores: Annotated[int, Field(strict=True, ge=1, le=10_000)]


class NodePower(_Part):
    """Power of one machine in watts: of all its CPUs together, and of each of its GPUs.

    Power is linear in use between idle and full load (our assumption: only these two values are published). Memory,
    disks and fans are not included.
    """

    name: str = ""
    cpu_idle_w: _Power
    cpu_full_w: _Power
    gpu_idle_w: _Power = 0.0
    gpu_full_w: _Power = 0.0

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        return _checked(_checked(self, self.cpu_idle_w, self.cpu_full_w), self.gpu_idle_w, self.gpu_full_w)

    def idle_w(self, gpus: int) -> float:
        """Return the power in watts of the machine when nothing runs on it.

        >>> NodePower(name="n", cpu_idle_w=40.0, cpu_full_w=330.0, gpu_idle_w=30.0, gpu_full_w=300.0).idle_w(8)
        280.0
        """
        return self.cpu_idle_w + gpus * self.gpu_idle_w


Part = TypeVar("Part", bound=_Part)


def _checked(part: Part, idle_w: float, full_w: float) -> Part:
    if idle_w > full_w:
        raise ValueError(f"found {idle_w} W idle and {full_w} W full, expected 0 <= idle <= full")
    return part


class Defaults(_Part):
    """What is used where a machine's description lacks it.

    `gpu` and `cpu` are the GPU type and CPU model where a GPU type is unknown or not in the table. `threads_per_core`
    are logical cores (as counted in a machine's description) per physical core. `packages` is the number of CPUs of a
    machine whose description has no core count.
    """

    gpu: _Name
    cpu: _Name
    threads_per_core: Annotated[int, Field(strict=True, ge=1, le=16)] = 1
    packages: Annotated[int, Field(strict=True, ge=1, le=64)] = 1


class Assumed(_Part):
    """Use assumed for runs without measured use: fractions of the CPUs and of the GPUs that the run holds."""

    gpu_frac: _Frac
    cpu_frac: _Frac


class PowerTable(_Part):
    """Power of the CPUs, GPUs and machines of a site.

    `gpus` and `cpus` are by GPU type, under each of its names, and by CPU model. `hosts` is the CPU model of the
    machines with each GPU type. `machines` is the power of single machines by machine name; it takes precedence over
    the tables by type. `unknown_use` is assumed for runs whose use was not measured, `pue` is the site's power usage
    effectiveness, and `source` the origin of the values, for reports.
    """

    source: _Name
    pue: Annotated[float, Field(strict=True, ge=1.0, le=MOST_PUE, allow_inf_nan=False)] = 1.0
    defaults: Defaults
    unknown_use: Assumed
    gpus: dict[_Name, Gpu]
    cpus: dict[_Name, Cpu]
    hosts: dict[_Name, _Name] = Field(default_factory=dict)
    machines: dict[_Name, NodePower] = Field(default_factory=dict)

    @field_validator("gpus")
    @classmethod
    def _by_each_name(cls, gpus: dict[str, Gpu]) -> dict[str, Gpu]:
        names = Counter([*gpus, *(name for gpu in gpus.values() for name in gpu.also)])
        twice = sorted(name for name, count in names.items() if count > 1)
        if twice:
            raise ValueError(f"found several figures of {twice[0]!r}, expected one per GPU type")
        return {each: gpu for name, gpu in gpus.items() for each in (name, *gpu.also)}

    @model_validator(mode="after")
    def _complete(self) -> Self:
        lacking = sorted({self.defaults.cpu, *self.hosts.values()} - set(self.cpus))
        if self.defaults.gpu not in self.gpus:
            known = ", ".join(sorted(self.gpus))
            raise ValueError(f"found the GPU {self.defaults.gpu!r} without figures, expected one of {known}")
        if lacking:
            known = ", ".join(sorted(self.cpus))
            raise ValueError(f"found the CPU {', '.join(map(repr, lacking))} without figures, expected one of {known}")
        return self

    def node(self, machine: Machine) -> NodePower:
        """Return a machine's power: its entry in `machines`, else by its GPU type and the CPU model in `hosts`."""
        if machine.name in self.machines:
            return self.machines[machine.name].model_copy(update={"name": machine.name})
        kind = machine.gpu_type or self.defaults.gpu
        gpu = kind if kind in self.gpus else self.defaults.gpu
        model = self.hosts.get(kind, self.defaults.cpu)
        cpu = self.cpus[model]
        counted = machine.cpu_cores / (cpu.cores * self.defaults.threads_per_core)
        packages = counted if machine.cpu_cores else float(self.defaults.packages)
        return NodePower.model_construct(
            name=f"{gpu} on {model}" if machine.gpus else model,
            cpu_idle_w=packages * cpu.idle_w,
            cpu_full_w=packages * cpu.full_w,
            gpu_idle_w=self.gpus[gpu].idle_w,
            gpu_full_w=self.gpus[gpu].full_w,
        )

    def nodes(self, machines: Sequence[Machine]) -> tuple[NodePower, ...]:
        """Return the power of each machine, in the given order."""
        return tuple(self.node(machine) for machine in machines)

    def guessed(self, machines: Sequence[Machine]) -> int:
        """Return the number of machines whose GPU type is not in the table, so that they count as the default GPU."""
        known = self.gpus.keys()
        return sum(each.gpus > 0 and each.name not in self.machines and each.gpu_type not in known for each in machines)


def power_file(path: Path | None = None) -> PowerTable:
    """Read a site's power file; entries that the file leaves out come from the shipped table."""
    shipped = _toml(SHIPPED)
    own = {} if path is None else _toml(path)
    named = path or SHIPPED
    if path is not None and "source" not in own:
        own["source"] = f"{path.name} over the shipped table"
    try:
        return PowerTable.model_validate(_laid_over(shipped, own))
    except ValidationError as error:
        faults = [(".".join(map(str, each["loc"])), fault_of(each)) for each in error.errors()]
        text = "; ".join(f"{where}: {fault}" if where else fault for where, fault in faults)
        raise BadUsage(f"{named}: {text}; expected figures in watts, as {EXAMPLE}") from error


def _toml(path: Path) -> dict[str, Any]:  # TOML holds any type; `PowerTable` validates it
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise BadUsage(f"{path}: {error.strerror}; expected a TOML file of watts, as {EXAMPLE}") from error
    except (ValueError, RecursionError) as error:  # invalid TOML or UTF-8, or a number of thousands of digits
        raise BadUsage(f"{path} is not valid TOML: {error}; expected figures in watts, as {EXAMPLE}") from error


def _laid_over(shipped: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:  # as `_toml` returns them
    """Return the shipped table with the site's entries; an entry of the site replaces a shipped entry as a whole."""
    laid = dict(shipped)
    for section, entries in own.items():
        under = laid.get(section)
        laid[section] = {**under, **entries} if isinstance(under, dict) and isinstance(entries, dict) else entries
    # A GPU type that the site lists is removed from the aliases of shipped GPU types.
    named = own.get("gpus")
    if isinstance(named, dict):
        laid["gpus"] = {
            name: {**entry, "also": [each for each in entry.get("also", ()) if each not in named]}
            if isinstance(entry, dict) and name not in named and isinstance(entry.get("also", ()), list)
            else entry
            for name, entry in laid["gpus"].items()
        }
    return laid
