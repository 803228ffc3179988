"""Readings: assumptions about the machines of a trace's cluster, each stated in its note.

Traces say little about their machines: they have a list that contradicts the log, GPUs per day, or nothing. A reading
divides the machines into pools, each with a queue of its own.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

import polars as pl

from pipelines.errors import BadUsage, LakeError
from pipelines.lake.lake import Lake
from scheduler_core.cluster import Machine

GPUS_PER_MACHINE: Final = 8
"""GPUs per machine where no table lists them: as in all GPU machines of Helios and the larger ones of Philly."""

SECONDS_PER_DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Machines with one queue, for the jobs of one virtual cluster (VC), or of all if `vc` is None."""

    vc: str | None
    machines: tuple[Machine, ...]

    @property
    def gpus(self) -> int:
        """Number of GPUs of all machines of the pool."""
        return sum(machine.gpus for machine in self.machines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One assumption about the machines of a cluster: its pools, the source of their number, and an explanation."""

    name: str
    basis: Literal["published", "chosen"]
    pools: tuple[Pool, ...]
    note: str


READINGS: Final = ("machine_list", "vc_table", "load")
"""Names of the readings; `load` is made for each target load."""


def readings_of(
    lake: Lake, jobs: pl.DataFrame, *, since: datetime, loads: Sequence[float], names: Sequence[str] = ()
) -> list[Reading]:
    """Return the readings of these names for the jobs; by default all for which the lake has data.

    Jobs are measured from their submission at `since`; `loads` are the target loads of the readings `load`. A rebuilt
    trace has no machine list of its own; the list of the trace with the same cluster name is taken instead.
    """
    if unknown := sorted(set(names) - set(READINGS)):
        raise BadUsage(f"no reading {', '.join(unknown)}; there are {', '.join(READINGS)}")
    trace, cluster = str(jobs["trace"][0]), str(jobs["cluster"][0])
    machines = lake.table("machines").filter(pl.col("cluster") == cluster).collect()
    own = machines.filter(pl.col("trace") == trace)
    machines = own if own.height else machines.filter(pl.col("trace") == pl.col("trace").min())
    made: dict[str, Sequence[Reading | None]] = {
        "machine_list": [listed(machines)],
        "vc_table": [vc_table(jobs, lake.table("capacity", trace).collect())],
        "load": [at_load(jobs, since, load) for load in loads],
    }
    readings = [reading for name in names or READINGS for reading in made[name] if reading is not None]
    if not readings:
        raise LakeError(
            f"no reading {', '.join(names)} of the cluster {cluster}: the lake has neither its "
            "machines nor its GPUs per day; take the reading load"
        )
    return readings


def listed(machines: pl.DataFrame) -> Reading | None:
    """Return the published machine list as one pool for all jobs; None if the trace has no list."""
    if machines.is_empty():
        return None
    names = machines.select("machine", "gpus").sort("machine")
    pool = Pool(vc=None, machines=tuple(_machine(name, gpus) for name, gpus in names.iter_rows()))
    note = f"the machine list of {machines['trace'][0]}, one pool for all VCs"
    return Reading(name="machine_list", basis="published", pools=(pool,), note=note)


def vc_table(jobs: pl.DataFrame, capacity: pl.DataFrame) -> Reading | None:
    """Return one pool per VC with its median GPUs per day, from the capacity table over the days of the log.

    None if the jobs have no VCs, or the table lacks one of them.
    """
    submit_ts, vcs = jobs["submit_ts"], jobs["vc"].drop_nulls().unique().sort().to_list()
    days = pl.col("date").is_between(submit_ts.min().date(), submit_ts.max().date())  # type: ignore[union-attr]  # times
    known = capacity.filter(pl.col("vc").is_in(vcs), days)
    sizes = known.group_by("vc").agg(pl.col("gpus").quantile(0.5, interpolation="nearest")).sort("vc")
    if not vcs or sizes["vc"].to_list() != vcs:
        return None
    pools = tuple(Pool(vc=vc, machines=_machines(int(gpus))) for vc, gpus in sizes.iter_rows())
    sizes_of_vcs = ", ".join(f"{pool.vc} {pool.gpus}" for pool in pools)
    note = f"GPUs of each VC by the capacity table ({sizes_of_vcs}), machines of {GPUS_PER_MACHINE}, a pool per VC"
    return Reading(name="vc_table", basis="published", pools=pools, note=note)


def at_load(jobs: pl.DataFrame, since: datetime, load: float) -> Reading:
    """Return one pool of the size at which the measured jobs offer a given load; the trace's machines are ignored."""
    machines = _machines(math.ceil(offered_gpus(jobs, since) / load))
    note = (
        f"NOT THE TRACE'S CLUSTER: {len(machines)} machines of {GPUS_PER_MACHINE}, chosen so that the measured jobs "
        f"offer a load of {load:g} on average over their months; one pool for all VCs"
    )
    return Reading(name=f"load_{load:g}", basis="chosen", pools=(Pool(vc=None, machines=machines),), note=note)


def offered_gpus(jobs: pl.DataFrame, since: datetime) -> float:
    """Return the mean number of GPUs that jobs submitted from `since` on need, over their submission period."""
    own = jobs.filter(pl.col("submit_ts") >= since)
    gpu_s = own.select((pl.col("run_s") * pl.col("req_gpus") * pl.col("instances")).sum()).item()
    span_s = (own["submit_ts"].max() - own["submit_ts"].min()).total_seconds() if own.height else 0.0  # type: ignore[operator,union-attr]  # times
    return float(gpu_s) / max(span_s, SECONDS_PER_DAY)


def _machines(gpus: int) -> tuple[Machine, ...]:
    count = max(1, math.ceil(gpus / GPUS_PER_MACHINE))
    return tuple(_machine(f"m{i}", GPUS_PER_MACHINE) for i in range(count))


def _machine(name: str, gpus: int) -> Machine:
    """Return a machine with GPUs only; CPU and memory are 0, because the replayed jobs request none."""
    return Machine(name=name, cpu_cores=0.0, mem_gib=0.0, gpus=gpus)
