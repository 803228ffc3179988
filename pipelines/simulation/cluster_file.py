"""Read the machines of a simulation from a trace's machine table or a TOML file."""

import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from modelserve.wrong_values import fault_of
from pipelines.errors import BadUsage
from scheduler_core.cluster import Machine, paper_machines
from scheduler_core.types import RESOURCES

__all__ = ["ClusterSpec", "cluster_file", "paper_cluster", "recorded_cluster"]

EXAMPLE: Final = 'machines = [{name = "a", count = 4, cpu_cores = 96, mem_gib = 512, gpus = 8, gpu_type = "T4"}]'
"""One line of valid TOML, quoted in error messages."""

MOST_MACHINES: Final = 1_000_000
MOST_CPU_CORES: Final = 100_000
MOST_MEM_GIB: Final = 1_000_000
MOST_GPUS: Final = 1_000
"""Maximum capacity of one machine: above any real machine, and low enough to sum a million machines exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """The machines of a simulation and where they come from.

    `unstated` names the resources whose capacity the source does not state; the simulation does not limit them.
    """

    machines: tuple[Machine, ...]
    source: str
    unstated: tuple[str, ...] = ()

    @property
    def most_gpus(self) -> int:
        """Return the largest number of GPUs of any machine."""
        return max(machine.gpus for machine in self.machines)

    def note(self) -> str:
        """Return a one-line note on the source and the capacity of the machines."""
        cores, mem_gib, gpus = (sum(getattr(machine, name) for machine in self.machines) for name in RESOURCES)
        types = sorted({machine.gpu_type for machine in self.machines if machine.gpu_type is not None})
        text = f"cluster ({self.source}): {len(self.machines)} machines, {gpus} GPUs, {cores:g} cores, {mem_gib:g} GiB"
        text += f", GPU types {' '.join(types)}" if types else ", GPU types not given"
        if self.unstated:
            text += f"; it does not state {' and '.join(self.unstated)}: not limited"
        return text


def paper_cluster() -> ClusterSpec:
    """Return the cluster of the experiments of Yang, Hong and Tang."""
    return ClusterSpec(machines=paper_machines(), source="the paper's")


def recorded_cluster(machines: pl.DataFrame, trace: str) -> ClusterSpec:
    """Return the machines of a trace's own table, sorted by name.

    A resource that is null for all machines is not limited; one that is null for only some machines counts as 0 there.
    """
    clusters = machines["cluster"].unique().sort().to_list()
    if not clusters:
        raise BadUsage(f"found no table of machines in {trace}; describe them in a file: --cluster-from FILE.toml")
    if len(clusters) > 1:
        raise BadUsage(f"found machines of the clusters {', '.join(clusters)} in {trace}; choose one with --cluster")
    unstated = tuple(name for name in RESOURCES if machines[name].null_count() == machines.height)
    rows = machines.sort("machine").with_columns(pl.col(list(RESOURCES)).fill_null(0)).iter_rows(named=True)
    names = (*RESOURCES, "gpu_type")
    recorded = tuple(Machine(name=row["machine"], **{name: row[name] for name in names}) for row in rows)
    return ClusterSpec(machines=recorded, source=f"the machine table of {trace}, {clusters[0]}", unstated=unstated)


class _Machines(BaseModel):
    """Schema of one `[[machines]]` table, which describes `count` equal machines."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Annotated[str, Field(min_length=1)]
    count: Annotated[int, Field(ge=1, le=MOST_MACHINES)] = 1
    cpu_cores: Annotated[float, Field(ge=0.0, le=MOST_CPU_CORES, allow_inf_nan=False)]
    mem_gib: Annotated[float, Field(ge=0.0, le=MOST_MEM_GIB, allow_inf_nan=False)]
    gpus: Annotated[int, Field(ge=0, le=MOST_GPUS)]
    gpu_type: Annotated[str, Field(min_length=1)] | None = None

    def machines(self) -> list[Machine]:
        """Return the machines; if there are several, they are named NAME-0, NAME-1, ..."""
        names = [self.name] if self.count == 1 else [f"{self.name}-{number}" for number in range(self.count)]
        same = self.model_dump(exclude={"name", "count"})
        return [Machine(name=name, **same) for name in names]


class _ClusterFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    machines: Annotated[tuple[_Machines, ...], Field(min_length=1)]


def cluster_file(path: Path) -> ClusterSpec:
    """Read machines from a TOML file of `[[machines]]` tables, in the order of the file."""
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise BadUsage(f"{path}: {error.strerror}; expected a TOML file of machines, as {EXAMPLE}") from error
    except (ValueError, RecursionError) as error:  # invalid TOML or UTF-8, or a number with thousands of digits
        raise BadUsage(f"{path} is not valid TOML: {error}; expected tables of machines, as {EXAMPLE}") from error
    try:
        tables = _ClusterFile.model_validate(read).machines
    except ValidationError as error:
        # If the only table is invalid, the list of machines is also reported as too short: drop that second error.
        named = [fault for fault in error.errors() if fault["type"] != "too_short" or len(error.errors()) == 1]
        faults = "; ".join(_fault(fault["loc"], fault_of(fault), fault["input"]) for fault in named)
        raise BadUsage(f"{path}: {faults}; expected tables of machines, as {EXAMPLE}") from error
    machines = tuple(machine for table in tables for machine in table.machines())
    names = Counter(machine.name for machine in machines)
    twice = sorted(name for name, count in names.items() if count > 1)
    if twice:
        raise BadUsage(f"{path}: found several machines named {twice[0]!r}, expected unique names")
    return ClusterSpec(machines=machines, source=path.name)


def _fault(where: Sequence[int | str], message: str, found: object) -> str:
    """Return an error message that says in which table and key a fault is; tables are counted from one."""
    match where:
        case [table, int(number), str(key)]:
            place = f"[[{table}]] {number + 1}, {key}"
        case [table, int(number), *_]:
            place = f"[[{table}]] {number + 1}"
        case _:
            place = ".".join(map(str, where))
    shown = "" if isinstance(found, dict | list) else f", found {str(found)[:40]!r}"
    return f"{place}: {message}{shown}"
