"""The study `fragmentation`: placements on shared GPUs by FGD's inflation protocol, against the published results.

Pods are submitted one by one until they request 130 % of the cluster's GPUs; none ends, and pods that do not fit are
dropped.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal

import numpy as np
import polars as pl

from pipelines.errors import BadUsage
from pipelines.lake.lake import Lake
from pipelines.simulation.cluster_file import recorded_cluster
from pipelines.simulation.workloads import gangs_of
from pipelines.studies.compare import ARM, compare
from pipelines.studies.fragmentation.published import (
    FOLDER,
    POLICIES,
    bars,
    by_workload,
    no_results,
    read_published,
    unallocated_rows,
    usual_folder,
)
from pipelines.studies.study import Context, Findings, Row, Study, option, seed_option, seeds_option
from scheduler_core.cluster import Cluster, Demand, Machine
from scheduler_core.engine import begun, effort_s, pays
from scheduler_core.engine import run as run_jobs
from scheduler_core.errors import BadInput
from scheduler_core.gangs import ANY_GPU_TYPE, rounded
from scheduler_core.queueing import Discipline, Jobs
from scheduler_core.target import TargetWorkload, target_of
from scheduler_core.types import BoolArray, IntArray

UNTIL: Final = 1.3
"""Maximum number of GPUs that all submitted pods request together, as a multiple of the cluster's GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PodList:
    """One workload: machines and pods (n) of one cluster of a trace, both sorted by name, and the target workload.

    `units` are requested CPU, memory and GPUs in the integers of `cluster.UNITS` (n, 3), more than one GPU as whole
    ones; `gpu_type` are indices into `gpu_types`, or `ANY_GPU_TYPE` (n,).
    """

    name: str
    machines: tuple[Machine, ...]
    units: IntArray
    gpu_type: IntArray
    gpu_types: tuple[str, ...]
    target: TargetWorkload


def inflate(milli_gpus: IntArray, capacity_milli: int, *, until: float = UNTIL, rng: np.random.Generator) -> IntArray:
    """Return row numbers of pods in the order of submission, which together request almost `until` times the capacity.

    All pods come first, shuffled. Then random pods are repeated until one more would exceed the limit. If all pods
    already exceed it, random pods are left out instead until the rest fits. Pass pods sorted by name, so that the
    result does not depend on their order in the file.

    References
    ----------
    Weng et al., USENIX ATC 2023, section 6.1 (Monte-Carlo workload inflation).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sorted(inflate(np.array([600, 600]), 1000, until=1.3, rng=rng).tolist())
    [0, 1]
    >>> len(inflate(np.array([600, 600]), 1000, until=0.7, rng=rng))
    1
    """
    if not (milli_gpus > 0).any():
        raise BadInput("inflation: found no pod that asks for a GPU, expected at least one")
    most = until * capacity_milli
    order = rng.permutation(len(milli_gpus))
    total = int(milli_gpus.sum())
    if total > most:
        leaving = rng.permutation(len(order))
        left = total - np.cumsum(milli_gpus[order[leaving]])
        out = leaving[: int(np.argmax(left <= most)) + 1]
        return np.delete(order, out)
    parts, mean = [order], max(float(milli_gpus.mean()), 1e-9)
    while True:
        more = rng.integers(0, len(milli_gpus), int((most - total) / mean) + 100)
        sums = total + np.cumsum(milli_gpus[more])
        passes = np.flatnonzero(sums > most)
        if len(passes):
            return np.concatenate([*parts, more[: passes[0]]])
        parts.append(more)
        total = int(sums[-1])


def filled_up(policy: str, seed: int, *, pods: PodList) -> list[Row]:
    """Fill a cluster up once; return a row for each whole percent of requested GPUs.

    The order of pods and the order of nodes use independent random streams. So all placements get
    the same pods and the same order of nodes. (The published simulator takes the smallest name among equal nodes, but
    prefixes names with numbers permuted by the seed.) `unallocated_pct` is the mean over the pods submitted within the
    percent (`arrived_pct`).
    """
    for_pods, for_nodes = (np.random.default_rng(each) for each in np.random.SeedSequence(seed).spawn(2))
    capacity_milli = 1000 * sum(machine.gpus for machine in pods.machines)
    order = inflate(pods.units[:, 2], capacity_milli, rng=for_pods)
    machines = tuple(pods.machines[at] for at in for_nodes.permutation(len(pods.machines)))
    submitted = replace(pods, machines=machines, units=pods.units[order], gpu_type=pods.gpu_type[order])
    ran = placed(submitted, policy, seed)
    milli, to_pct = pods.units[order, 2], 100.0 / capacity_milli
    every = pl.DataFrame(
        {
            "arrived_pct": np.round(to_pct * np.cumsum(milli)).astype(np.int64),
            "unallocated_pct": 100.0 - to_pct * np.cumsum(np.where(ran, milli, 0)),
        }
    )
    curve = every.group_by("arrived_pct").mean().sort("arrived_pct")
    return [{"workload": pods.name, **row} for row in curve.iter_rows(named=True)]


def placed(pods: PodList, policy: str, seed: int) -> BoolArray:
    """Submit the pods one by one, of which none ends, and return which of them got a place (n,).

    A pod that does not fit waits, but cannot start later either, because free capacity never grows.
    """
    rules = Discipline(placement=policy, match_gpu_type=True, seed=seed)
    jobs = Jobs.of(pods.units, pods.gpu_type, pods.gpu_types, arrive_s=np.arange(len(pods.units), dtype=np.float64))
    cluster = Cluster(pods.machines, sharing="devices")
    state = begun(jobs, cluster, rules, horizon_s=math.inf, target=pods.target)
    log = run_jobs(state, compiled=pays(effort_s(len(pods.units), len(pods.machines), rules))).log
    started = np.zeros(len(pods.units), dtype=np.bool_)
    started[log.runs["job"][: int(state.queue.tally["runs"][0])]] = True
    return started


POPULARITY: Final = 0.95
"""Share of the pods whose request shapes, the most frequent first, make the target workload, as published."""

FIRST_SEED: Final = 42
"""First seed of the ten published runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Options of the study; an empty choice takes everything that applies."""

    trace: str = option("openb", help="Name of the trace in the lake.")
    workloads: tuple[str, ...] = option(
        (),
        name="--workload",
        help="Only this pod list (may be repeated).",
        shown="those with published results, or all without any",
    )
    policies: tuple[Literal["random", "dot_product", "gpu_clustering", "gpu_packing", "best_fit_gpu", "fgd"], ...] = (
        option((), name="--policy", help="Only this placement (may be repeated).", shown="all six")
    )
    seeds: int = seeds_option(10)
    seed: int = seed_option(FIRST_SEED)


def run(config: Config, context: Context) -> Findings:
    """Fill clusters up under every placement, and compare unallocated GPUs with the published results."""
    lake, folder = context.lake(), usual_folder(context.traces)
    context.trace(config.trace)  # names the command that gets it
    published = no_results() if folder is None else read_published(folder)
    known = by_workload(published["workload"].unique().to_list())
    names = chosen(lake, config.trace, config.workloads, known)
    published = published.filter(pl.col("workload").is_in(names))
    arms = {policy: policy for policy in POLICIES if policy in (config.policies or POLICIES)}
    seeds = range(config.seed, config.seed + config.seeds)
    frames = []
    for name in names:
        pods = pod_list(lake, config.trace, name)
        frames.append(compare(arms, seeds, partial(filled_up, pods=pods), engine=context.engine))
        context.talk(f"{name}: {len(arms)} arms, {config.seeds} seeds")
    curves = pl.concat(frames).rename({ARM: "policy"})
    unallocated = unallocated_rows(curves, published)
    notes = [
        "unallocated: percent of GPUs when requests reach all GPUs; mean and sd over seeds; random streams differ from "
        "the published ones, so compare means",
    ]
    if absent := [name for name in known if name not in names and not config.workloads]:
        notes.append(f"the lake lacks {', '.join(absent)}: left out")
    if folder is None:
        notes.append(
            "no published results: their columns are empty, and what is held to them is not judged; TAUT_TRACES names "
            f"the folder that holds {FOLDER}"
        )
    return Findings(
        study="fragmentation",
        trace=config.trace,
        tables={"unallocated": unallocated, "bar": bars(unallocated)},
        frames={"curves": curves},
        notes=notes,
    )


def chosen(lake: Lake, trace: str, wanted: Sequence[str], published: Sequence[str]) -> list[str]:
    """Return the `wanted` workloads; by default those `published` that the lake has, or all if none is published."""
    held = sorted({output.cluster for output in lake.manifest(trace).outputs if output.table == "jobs"})
    if strange := [name for name in wanted if name not in held]:
        raise BadUsage(f"no workload {strange[0]!r} in {trace}; it has {', '.join(held)}")
    taken = list(dict.fromkeys(wanted or (name for name in published or held if name in held)))
    if not taken:
        raise BadUsage(
            f"{trace} has none of the workloads with published results, but {', '.join(held)}: "
            "name one with --workload, or another trace with --trace"
        )
    return taken


def pod_list(lake: Lake, trace: str, name: str) -> PodList:
    """Read one workload; every instance of a job is a pod."""
    cluster = recorded_cluster(lake.table("machines", trace, name).collect(), f"{trace}, cluster {name}")
    if cluster.unstated:
        raise BadUsage(f"{trace} lacks {' and '.join(cluster.unstated)} of its machines; expected all of them")
    gangs = gangs_of(lake.table("jobs", trace, name).collect().sort("job_id", "role"))
    rows = np.repeat(np.arange(len(gangs.instances)), gangs.instances)
    units, gpu_type = gangs.request_units[rows], gangs.gpu_type[rows]
    if not units[:, 2].any() or not cluster.most_gpus:
        raise BadUsage(f"{trace}, {name}: found no pod that asks for a GPU, or no machine with one; expected both")
    kinds = [None if code == ANY_GPU_TYPE else gangs.gpu_types[code] for code in gpu_type.tolist()]
    demands = (
        Demand(units=(cpu, mem, gpu), instances=1, gpu_type=kind)
        for (cpu, mem, gpu), kind in zip(units.tolist(), kinds, strict=True)
    )
    return PodList(
        name=name,
        machines=cluster.machines,
        units=np.column_stack([units[:, :2], rounded(units[:, 2])]),
        gpu_type=gpu_type,
        gpu_types=gangs.gpu_types,
        target=target_of(demands, POPULARITY),
    )


FRAGMENTATION: Final = Study(
    name="fragmentation",
    config=Config,
    run=run,
    arms={policy: f"{published} in the published results" for policy, published in POLICIES.items()},
    takes=("lake", "engine"),
)
