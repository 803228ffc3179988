"""Runs of the inflation protocol: every arm on every pod list of the lake with every seed, and the curve of each run.

Tables are made from the curves in `tables`. Called by `study`.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from pipelines.engine.engine import Engine, Local
from pipelines.errors import BadUsage
from pipelines.lake.lake import Lake
from pipelines.simulation.cluster_file import recorded_cluster
from pipelines.simulation.workloads import gangs_of
from pipelines.studies.fragmentation.arms import Arm
from pipelines.studies.fragmentation.inflation import Inflation, Pods, binned, inflate, run_inflation
from pipelines.studies.study import dealt
from scheduler_core.cluster import Machine
from scheduler_core.target import target_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PodList:
    """One workload: the pods and the machines of one cluster of a trace, both sorted by name."""

    name: str
    machines: tuple[Machine, ...]
    pods: Pods

    @property
    def capacity_milli(self) -> int:
        """Return the milli-GPUs of all machines."""
        return 1000 * sum(machine.gpus for machine in self.machines)


def chosen(lake: Lake, trace: str, asked: Sequence[str], published: Sequence[str]) -> list[str]:
    """Return the workloads `asked` for; by default those `published` that the lake has, or all if none is published.

    Raises
    ------
    BadUsage
        If the trace lacks a given workload, or none is given and the trace has none of the published ones.
    LakeError
        If the lake has no such trace.
    """
    held = sorted({output.cluster for output in lake.manifest(trace).outputs if output.table == "jobs"})
    if strange := [name for name in asked if name not in held]:
        raise BadUsage(f"no workload {strange[0]!r} in {trace}; it has {', '.join(held)}")
    wanted = list(dict.fromkeys(asked or (name for name in published or held if name in held)))
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
        If the trace lacks its machines' GPUs, CPU or memory, or no pod requests a GPU.
    """
    cluster = recorded_cluster(lake.table("machines", trace, name).collect(), f"{trace}, cluster {name}")
    if cluster.unstated:
        raise BadUsage(f"{trace} lacks {' and '.join(cluster.unstated)} of its machines; expected all of them")
    gangs = gangs_of(lake.table("jobs", trace, name).collect().sort("job_id", "role"))
    rows = np.repeat(np.arange(len(gangs.instances)), gangs.instances)
    pods = Pods(units=gangs.request_units[rows], gpu_type=gangs.gpu_type[rows], gpu_types=gangs.gpu_types)
    if not pods.milli_gpus.any() or not cluster.most_gpus:
        raise BadUsage(f"{trace}, {name}: found no pod that asks for a GPU, or no machine with one; expected both")
    return PodList(name=name, machines=cluster.machines, pods=pods)


CURVE_SCHEMA = {
    "workload": pl.String(),
    "policy": pl.String(),
    "popularity": pl.Float64(),
    "ties": pl.String(),
    "seed": pl.Int64(),
    "arrived_pct": pl.Int64(),
    "unallocated_pct": pl.Float64(),
    "fragmented_pct": pl.Float64(),
}
"""Columns of curves, one row per run and whole percent of the cluster's GPUs requested so far (`arrived_pct`).

`unallocated_pct` is the share of GPUs not allocated. `fragmented_pct` is the share that is free but that an average pod
of the target workload cannot use. Both are means over the pods submitted within that percent.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """The curves of several runs, and the duration of each run in seconds, by placement."""

    frame: pl.DataFrame
    seconds: dict[str, list[float]]


def filled_up(
    lists: Sequence[PodList],
    arms: Sequence[Arm],
    seeds: Sequence[int],
    *,
    engine: Engine | None = None,
    talk: Callable[[str], None] = lambda _: None,
) -> Curves:
    """Run every arm on every pod list with every seed; the curves do not depend on the engine."""
    frames: list[pl.DataFrame] = []
    seconds: dict[str, list[float]] = {}
    tasks = [(pods, tuple(arms), seed) for pods in lists for seed in seeds]
    for number, done in enumerate(dealt(one_seed, tasks, engine or Local()), start=1):
        frames.append(done.frame)
        for policy, took in done.seconds.items():
            seconds.setdefault(policy, []).extend(took)
        if number % len(seeds) == 0:
            talk(f"{lists[number // len(seeds) - 1].name}: {len(arms)} arms, {len(seeds)} seeds")
    return Curves(frame=pl.concat(frames), seconds=seconds)


def one_seed(task: tuple[PodList, tuple[Arm, ...], int]) -> Curves:
    """Draw the submitted pods of one list with one seed, and run every arm on them.

    The order of pods, the order of nodes and the random ties use independent random streams. So all arms get the same
    pods and the same order of nodes.
    """
    pods, arms, seed = task
    for_pods, for_nodes, for_ties = np.random.SeedSequence(seed).spawn(3)
    order = inflate(pods.pods.milli_gpus, pods.capacity_milli, rng=np.random.default_rng(for_pods))
    permuted = np.random.default_rng(for_nodes).permutation(len(pods.machines))
    machines = [pods.machines[at] for at in permuted]
    demands, arriving = pods.pods.demands(), pods.pods.ordered(order)
    targets = {share: target_of(demands, share) for share in {arm.popularity for arm in arms}}
    frames: list[pl.DataFrame] = []
    seconds: dict[str, list[float]] = {}
    for arm in arms:
        began = time.perf_counter()
        filled = run_inflation(
            machines,
            arriving,
            arm.policy,
            targets[arm.popularity],
            ties=arm.ties,
            rng=np.random.default_rng(for_ties),
        )
        seconds.setdefault(arm.policy, []).append(time.perf_counter() - began)
        frames.append(curve_of(filled, {"workload": pods.name, **arm.columns, "seed": seed}))
    return Curves(frame=pl.concat(frames), seconds=seconds)


def curve_of(filled: Inflation, keys: dict[str, object]) -> pl.DataFrame:
    """Return the curve of one run: one row for each whole percent of requested GPUs at which a pod was submitted."""
    arrived, allocated, fragmented = binned(filled)
    means = pl.DataFrame({"arrived_pct": arrived, "unallocated_pct": 100.0 - allocated, "fragmented_pct": fragmented})
    return means.select(
        pl.lit(keys[name], dtype=kind).alias(name) if name in keys else pl.col(name)
        for name, kind in CURVE_SCHEMA.items()
    )
