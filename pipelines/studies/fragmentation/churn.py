"""Pods that come and go: those of a list with their own lifetimes, and arrivals that keep a cluster at a load.

Nothing is placed here. Called by `departures`.

The recorded load of openb is a fraction of a percent of its GPUs, so a loaded cluster has to be made. Its arrivals are
drawn anew rather than compressed: compressed, 149 days of arrivals would last hours, less than many of the pods run.
Machines are thinned rather than arrivals multiplied beyond need: every k-th of each GPU type and size.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl

from pipelines.errors import BadUsage
from pipelines.lake.lake import Lake
from pipelines.simulation.cluster_file import recorded_cluster
from pipelines.simulation.engine.workload import SECONDS_PER_HOUR, Workload
from pipelines.simulation.job_pool import submissions
from pipelines.simulation.workloads import Gangs, arriving, as_requested, gangs_of, recorded_workload
from pipelines.studies.fragmentation.runs import pod_list
from scheduler_core.cluster import Machine
from scheduler_core.devices import WHOLE, rounded
from scheduler_core.target import TargetWorkload, target_of
from scheduler_core.types import FloatArray

LONGEST_S: Final = 24 * SECONDS_PER_HOUR
"""Pods that ran longer are left out of loaded clusters: few of them would hold nearly all GPUs, and never leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Churn:
    """Machines and pods of a list: all of them as recorded, and those that are drawn from.

    `pods` (n) are those of a known lifetime of at most `LONGEST_S`; `thinned` is every k-th machine; `target` counts
    all pods of the list, timed or not.
    """

    name: str
    machines: tuple[Machine, ...]
    recorded: Workload
    thinned: tuple[Machine, ...]
    pods: Gangs
    left_out: int
    target: TargetWorkload

    @property
    def work_gpu_s(self) -> FloatArray:
        """Return the GPU-seconds of each pod drawn from (n,)."""
        gpus = rounded(self.pods.request_units[:, 2]) * self.pods.instances / WHOLE
        return np.asarray(gpus * self.pods.run_s, dtype=np.float64)


def churn_of(lake: Lake, trace: str, name: str, *, every: int) -> Churn:
    """Read a list with its times.

    Raises
    ------
    BadUsage
        If no pod of it with a GPU has a known lifetime of at most a day, or the trace does not tell what is needed.
    LakeError
        If there is no such trace or list, or none of its pods has a lifetime.
    """
    machines = recorded_cluster(lake.table("machines", trace, name).collect(), f"{trace}, cluster {name}").machines
    jobs = submissions(lake.table("jobs", trace, name).collect()).jobs
    short = jobs.filter(pl.col("run_s") <= LONGEST_S)
    pods = gangs_of(short)
    if not pods.request_units[:, 2].any():
        raise BadUsage(f"{trace}, {name}: found no pod with a GPU that ran at most a day; expected some")
    return Churn(
        name=name,
        machines=machines,
        recorded=recorded_workload(jobs),
        thinned=thinned(machines, every),
        pods=replace(pods, fails=np.zeros_like(pods.fails)),
        left_out=jobs.height - short.height,
        target=target_of(pod_list(lake, trace, name).pods.demands()),
    )


def thinned(machines: Sequence[Machine], every: int) -> tuple[Machine, ...]:
    """Return every k-th machine of those sorted by GPU type and size: each kind by its share.

    >>> machines = [Machine(name=str(at), cpu_cores=1.0, mem_gib=1.0, gpus=at % 2) for at in range(8)]
    >>> [machine.gpus for machine in thinned(machines, 2)]
    [0, 0, 1, 1]
    """
    ordered = sorted(machines, key=lambda machine: (machine.gpu_type or "", machine.gpus, machine.name))
    return tuple(ordered[every // 2 :: every])


def loaded(churn: Churn, load: float, horizon_s: float, rng: np.random.Generator) -> Workload:
    """Let drawn pods arrive so that they ask for `load` of the thinned cluster's GPUs at every moment, on average.

    Poisson arrivals of pods drawn with replacement. The cluster does not start empty: at 0 s those arrive that would be
    running, pods drawn by how long they run, each with what is left of its time.
    """
    gpus = sum(machine.gpus for machine in churn.thinned)
    run_s = churn.pods.run_s
    rate = load * gpus / float(churn.work_gpu_s.mean())
    count, there = rng.poisson(rate * horizon_s), rng.poisson(rate * float(run_s.mean()))
    running = rng.choice(len(run_s), there, p=run_s / run_s.sum())
    picks = np.concatenate([running, rng.integers(0, len(run_s), count)])
    at_s = np.concatenate([np.zeros(there), np.sort(rng.random(count) * horizon_s)])
    left_s = np.concatenate([run_s[running] * (1.0 - rng.random(there)), run_s[picks[there:]]])
    workload = arriving(churn.pods, as_requested(churn.pods), at_s, picks)
    return replace(workload, run_s=left_s, granted_run_s=left_s)
