"""A pod list and its nodes out of a lake, as the inflation takes them.

Nothing is placed here. Called by `fgd.experiment`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.errors import BadUsage
from pipelines.lake.lake import Lake
from pipelines.simulation.cluster_file import recorded_cluster
from pipelines.simulation.workloads import gangs_of
from pipelines.studies.fragmentation.arms import WORKLOADS
from pipelines.studies.fragmentation.inflation import Pods
from scheduler_core.cluster import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class PodList:
    """The pods of one cluster of a trace and its machines, both sorted by name."""

    name: str
    machines: tuple[Machine, ...]
    pods: Pods

    @property
    def capacity_milli(self) -> int:
        """Return the milli-GPUs of all machines."""
        return 1000 * sum(machine.gpus for machine in self.machines)


def chosen(lake: Lake, trace: str, asked: Sequence[str] | None) -> list[str]:
    """Return the workloads asked for, else those with published results that the lake holds.

    Raises
    ------
    BadUsage
        If the trace has no such workload, or none is asked for and it has none with published results.
    LakeError
        If the lake has no such trace.
    """
    held = sorted({output.cluster for output in lake.manifest(trace).outputs if output.table == "jobs"})
    if strange := [name for name in asked or () if name not in held]:
        raise BadUsage(f"no workload {strange[0]!r} in {trace}; it has {', '.join(held)}")
    wanted: list[str] = list(dict.fromkeys(asked or (name for name in WORKLOADS if name in held)))
    if not wanted:
        raise BadUsage(
            f"{trace} has none of the workloads with published results, but {', '.join(held)}: "
            "name one with --workload, or another trace with --trace"
        )
    return wanted


def pod_list(lake: Lake, trace: str, name: str) -> PodList:
    """Read one workload; every instance of a job is a pod.

    Raises
    ------
    BadUsage
        If the trace does not tell its machines' GPUs, CPU or memory, or no pod asks for a GPU.
    """
    cluster = recorded_cluster(lake.table("machines", trace, name).collect(), f"{trace}, cluster {name}")
    if cluster.untold:
        raise BadUsage(f"{trace} does not tell {' and '.join(cluster.untold)} of its machines; expected all of them")
    gangs = gangs_of(lake.table("jobs", trace, name).collect().sort("job_id", "role"))
    rows = np.repeat(np.arange(len(gangs.instances)), gangs.instances)
    pods = Pods(units=gangs.request_units[rows], gpu_type=gangs.gpu_type[rows], gpu_types=gangs.gpu_types)
    if not pods.milli_gpus.any() or not cluster.most_gpus:
        raise BadUsage(f"{trace}, {name}: found no pod that asks for a GPU, or no machine with one; expected both")
    return PodList(name=name, machines=cluster.machines, pods=pods)
