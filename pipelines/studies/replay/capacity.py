"""Readings of the size of a trace's cluster: each is an assumption, stated in its note.

Traces contain little about it: a machine list that contradicts their log, GPUs per day, or nothing. A reading divides
the cluster into pools that share no machine. Called by `replay` and `study`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

import numpy as np
import polars as pl

from pipelines.errors import BadUsage, LakeError
from pipelines.lake.lake import Lake
from scheduler_core.cluster import Machine

GPUS_PER_MACHINE: Final = 8
"""GPUs per machine not in a table: the count of every GPU machine of Helios and of the larger kind of Philly's."""

REVISED_GPUS: Final = 3205
"""GPUs of Philly by a public revision, counted from its utilisation log; the machine list has 2490."""

VC_LEVEL: Final = 0.99
SECONDS_PER_DAY: Final = 86_400.0


Basis = Literal["published", "inferred", "chosen"]
"""Source of a size: published, inferred from the log, or chosen by us (unrelated to the trace's cluster)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Machines that one queue serves, of one VC, or of all jobs where `vc` is None."""

    vc: str | None
    machines: tuple[Machine, ...]

    @property
    def gpus(self) -> int:
        """GPUs of all its machines."""
        return sum(machine.gpus for machine in self.machines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One reading of a cluster's size: its pools, the source of the size, and the assumptions in `note`."""

    name: str
    basis: Basis
    pools: tuple[Pool, ...]
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence for readings: the replayed jobs (each with a run time), tables of the trace, and target loads.

    `machines` are of the jobs' cluster, and may be empty as `capacity` (all clusters of the trace). `since` is when
    the measured jobs begin.
    """

    jobs: pl.DataFrame
    machines: pl.DataFrame
    capacity: pl.DataFrame
    since: datetime
    loads: tuple[float, ...]


def evidence_of(lake: Lake, jobs: pl.DataFrame, *, since: datetime, loads: Sequence[float]) -> Evidence:
    """Collect the evidence in the lake for the size of the jobs' cluster.

    A log rebuilt under another name has no machine list of its own; it takes that of the trace with its cluster.
    """
    trace, cluster = str(jobs["trace"][0]), str(jobs["cluster"][0])
    listed = lake.table("machines").filter(pl.col("cluster") == cluster).collect()
    own = listed.filter(pl.col("trace") == trace)
    first = listed.filter(pl.col("trace") == pl.col("trace").min())
    return Evidence(
        jobs=jobs,
        machines=own if own.height else first,
        capacity=lake.table("capacity", trace).collect(),
        since=since,
        loads=tuple(loads),
    )


def listed(evidence: Evidence) -> Reading | None:
    """Take the published machine list as it is, one pool for all jobs."""
    if evidence.machines.is_empty():
        return None
    names = evidence.machines.select("machine", "gpus").sort("machine")
    machines = tuple(_machine(name, gpus) for name, gpus in names.iter_rows())
    source = evidence.machines["trace"][0]
    return _one_pool("machine_list", machines, f"the machine list of {source}, one pool for all VCs")


def revised(evidence: Evidence) -> Reading | None:
    """Take Philly's machines with the GPUs of the public revision: as many of its small machines as needed have 8."""
    sizes = evidence.machines["gpus"].sort(descending=True).to_list()
    if evidence.jobs["cluster"][0] != "philly" or not sizes:
        return None
    missing = REVISED_GPUS - sum(sizes)
    for i, gpus in enumerate(sizes):
        sizes[i] = gpus + max(0, min(GPUS_PER_MACHINE - gpus, missing))
        missing -= sizes[i] - gpus
    note = (
        f"{REVISED_GPUS} GPUs by a public revision on the {len(sizes)} listed machines: which of them have more than "
        f"listed is not known, so {sum(size == GPUS_PER_MACHINE for size in sizes)} are given {GPUS_PER_MACHINE}"
    )
    return _one_pool("revised", tuple(_machine(f"m{i}", gpus) for i, gpus in enumerate(sizes)), note)


def daily_total(evidence: Evidence) -> Reading | None:
    """Take the median of the cluster's daily GPU totals, constant throughout, one pool for all jobs."""
    cluster = evidence.jobs["cluster"][0]
    totals = evidence.capacity.filter(pl.col("cluster") == cluster).group_by("date").agg(pl.col("gpus").sum())
    # Days after the last submission are irrelevant to the jobs.
    within = totals.filter(pl.col("date") <= evidence.jobs["submit_ts"].max().date())  # type: ignore[union-attr]  # a time
    if within.is_empty():
        return None
    gpus = int(within["gpus"].quantile(0.5, interpolation="nearest"))  # type: ignore[arg-type]  # not empty
    days = within["gpus"].sort().to_list()
    note = (
        f"{gpus} GPUs, the median of the daily totals ({days[0]} to {days[-1]}), constant, one pool for all VCs, "
        f"machines of {GPUS_PER_MACHINE} assumed"
    )
    return _one_pool("daily_total", _machines(gpus), note)


def vc_table(evidence: Evidence) -> Reading | None:
    """Take each VC's own GPUs from the capacity table over the days of the log, one pool per VC."""
    vcs = evidence.jobs["vc"].drop_nulls().unique().sort().to_list()
    first, last = evidence.jobs["submit_ts"].min(), evidence.jobs["submit_ts"].max()
    days = pl.col("date").is_between(first.date(), last.date())  # type: ignore[union-attr]  # jobs have times
    known = evidence.capacity.filter(pl.col("vc").is_in(vcs), days)
    sizes = known.group_by("vc").agg(pl.col("gpus").quantile(0.5, interpolation="nearest")).sort("vc")
    if not vcs or sizes["vc"].to_list() != vcs:
        return None
    pools = tuple(Pool(vc=vc, machines=_machines(int(gpus))) for vc, gpus in sizes.iter_rows())
    said = ", ".join(f"{pool.vc} {pool.gpus}" for pool in pools)
    return Reading(
        name="vc_table",
        basis="published",
        pools=pools,
        note=f"GPUs of each VC by the capacity table ({said}), machines of {GPUS_PER_MACHINE} assumed, a pool per VC",
    )


def vc_inferred(evidence: Evidence) -> Reading | None:
    """Infer each VC's size: the 99th percentile over time of its concurrent GPUs as recorded, in whole machines."""
    vcs = evidence.jobs["vc"].drop_nulls().unique().sort().to_list()
    if len(vcs) < 2 or vc_table(evidence) is not None:
        return None
    pools = []
    for vc in vcs:
        own = evidence.jobs.filter(pl.col("vc") == vc)
        pools.append(Pool(vc=vc, machines=_machines(concurrent_gpus(own, VC_LEVEL))))
    said = ", ".join(f"{pool.vc} {pool.gpus}" for pool in pools)
    note = (
        f"INFERRED: each VC has the p99 over time of its concurrent GPUs, up to whole machines of {GPUS_PER_MACHINE} "
        f"({said}); runs begin at submission in it, so bursts count as capacity"
    )
    return Reading(name="vc_inferred", basis="inferred", pools=tuple(pools), note=note)


def at_load(jobs: pl.DataFrame, since: datetime, load: float) -> Reading:
    """Choose the size at which the measured jobs offer a load: not the trace's cluster, only its jobs."""
    machines = _machines(math.ceil(offered_gpus(jobs, since) / load))
    note = (
        f"NOT THE TRACE'S CLUSTER: {len(machines)} machines of {GPUS_PER_MACHINE}, chosen so that the measured jobs "
        f"offer a load of {load:g} on average over their months; one pool for all VCs"
    )
    return _one_pool(f"load_{load:g}", machines, note, "chosen")


READINGS: Final[Mapping[str, Callable[[Evidence], Reading | None]]] = {
    "machine_list": listed,
    "revised": revised,
    "daily_total": daily_total,
    "vc_table": vc_table,
    "vc_inferred": vc_inferred,
}
"""Each returns None if the trace lacks the data; in addition, `LOAD` is one reading per load."""

LOAD: Final = "load"


def readings_of(evidence: Evidence, names: Sequence[str] | None = None) -> list[Reading]:
    """Return the readings of these names, or all that the trace allows.

    Raises
    ------
    BadUsage
        If a name is unknown.
    LakeError
        If none of them can be read off the lake.
    """
    asked = names or (*READINGS, LOAD)
    if unknown := sorted(set(asked) - {*READINGS, LOAD}):
        raise BadUsage(f"no reading {', '.join(unknown)}; there are {', '.join((*READINGS, LOAD))}")
    made = [READINGS[name](evidence) for name in asked if name != LOAD]
    found = [reading for reading in made if reading is not None]
    if LOAD in asked:
        found += [at_load(evidence.jobs, evidence.since, load) for load in evidence.loads]
    if not found:
        raise LakeError(
            f"no reading {', '.join(asked)} of the cluster {evidence.jobs['cluster'][0]}: the lake has neither its "
            f"machines nor its GPUs per day; take the reading {LOAD}"
        )
    return found


def offered_gpus(jobs: pl.DataFrame, since: datetime) -> float:
    """Return the GPUs that the jobs submitted from `since` on would keep busy on average until the last submission."""
    own = jobs.filter(pl.col("submit_ts") >= since)
    gpu_s = own.select((pl.col("run_s") * pl.col("req_gpus") * pl.col("instances")).sum()).item()
    span_s = (own["submit_ts"].max() - own["submit_ts"].min()).total_seconds() if own.height else 0.0  # type: ignore[operator,union-attr]  # times
    return float(gpu_s) / max(span_s, SECONDS_PER_DAY)


def concurrent_gpus(jobs: pl.DataFrame, level: float) -> int:
    """Return the quantile over time of the GPUs held at once, every run beginning at its submission."""
    begin = jobs["submit_ts"].dt.epoch("us").to_numpy() / 1e6
    held = (jobs["req_gpus"] * jobs["instances"]).to_numpy()
    times = np.concatenate([begin, begin + jobs["run_s"].to_numpy()])
    order = np.argsort(times, kind="stable")
    at_once = np.cumsum(np.concatenate([held, -held])[order])[:-1].round(3)
    lasted = np.diff(times[order])
    rank = np.argsort(at_once, kind="stable")
    reached = np.searchsorted(np.cumsum(lasted[rank]), level * lasted.sum())
    return math.ceil(float(at_once[rank][min(reached, len(rank) - 1)]))


def _one_pool(name: str, machines: tuple[Machine, ...], note: str, basis: Basis = "published") -> Reading:
    return Reading(name=name, basis=basis, pools=(Pool(vc=None, machines=machines),), note=note)


def _machines(gpus: int) -> tuple[Machine, ...]:
    count = max(1, math.ceil(gpus / GPUS_PER_MACHINE))
    return tuple(_machine(f"m{i}", GPUS_PER_MACHINE) for i in range(count))


def _machine(name: str, gpus: int) -> Machine:
    """Return a machine with known GPUs only: CPU and memory set no limit, because the logs have no requests."""
    return Machine(name=name, cpu_cores=0.0, mem_gib=0.0, gpus=gpus)
