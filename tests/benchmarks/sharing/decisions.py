"""Fragmentation gradient descent timed: one decision in a full cluster, with and without caches; one cluster filled up.

Decisions take CPU time, so others on the machine do not count. Called by `tests.benchmarks.sharing`.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from pipelines.studies.fragmentation.inflation import Pods, inflate, run_inflation
from scheduler_core.cluster import Allocation, Cluster, Machine, in_devices
from scheduler_core.devices import shape
from scheduler_core.engine import begun
from scheduler_core.jobs import Jobs
from scheduler_core.kernels.clock import choose
from scheduler_core.queueing import Discipline
from scheduler_core.target import TargetWorkload, target_of
from scheduler_core.types import FloatArray
from tests.benchmarks.serving.figures import Bar, Row, amount_row
from tests.benchmarks.sharing.clusters import machines, many_machines, pods, recorded

ROUNDS: Final = 3
DECISIONS: Final = 3_000
COLD_DECISIONS: Final = 500
MANY: Final = 10_000
POLICIES: Final = ("fgd", "dot_product", "best_fit_gpu", "gpu_packing", "gpu_clustering", "random")
WORKLOADS: Final = 12
SEEDS: Final = 10

PUBLISHED_DECISION_MS: Final = 300.0
PUBLISHED_RUN_S: Final = 600.0
"""The paper's: hundreds of milliseconds a decision, about ten minutes a run on two cores; told beside, not run."""


def decision_rows() -> list[Row]:
    """Time decisions while the cluster stays full: one gang ends, the next is placed."""
    rows: list[Row] = []
    asked = pods()
    for name, target in {"known": target_of(asked.demands())}.items():
        rounds_ms = [
            np.array(list(_decisions_ms(asked, machines(), target, seed, DECISIONS))) for seed in range(ROUNDS)
        ]
        bars = {50: Bar(side="under", value=2.0), 99: Bar(side="under", value=10.0)}
        rows += _percentile_rows("a", f"one fgd decision, 1213 machines, full, target {name}", rounds_ms, bars)
    return [*rows, amount_row("a", "one fgd decision (published: hundreds of ms)", [PUBLISHED_DECISION_MS], unit="ms")]


def cold_rows() -> list[Row]:
    """Time decisions by placements that have cached nothing: each is the first of its placement."""
    rows: list[Row] = []
    asked = pods()
    target = target_of(asked.demands())
    for nodes, bars in ((machines(), {99: Bar(side="under", value=0.5)}), (many_machines(MANY), {})):
        found_ms = np.array(list(_decisions_ms(asked, nodes, target, 0, ROUNDS * COLD_DECISIONS, cold=True)))
        what = f"one fgd decision with nothing cached, {len(nodes)} machines, full"
        rows += _percentile_rows("c", what, np.split(found_ms, ROUNDS), bars)
    return rows


def _percentile_rows(part: str, what: str, rounds_ms: Sequence[FloatArray], bars: Mapping[int, Bar]) -> list[Row]:
    """Return the rows of the rounds' medians and 99th percentiles."""
    return [
        amount_row(
            part,
            f"{what}: {figure}",
            [float(np.percentile(each, percent)) for each in rounds_ms],
            unit="ms",
            bar=bars.get(percent),
        )
        for figure, percent in {"median": 50, "p99": 99}.items()
    ]


def _decisions_ms(
    asked: Pods, nodes: Sequence[Machine], target: TargetWorkload, seed: int, decisions: int, *, cold: bool = False
) -> Iterator[float]:
    """Fill the cluster, then end one pod and place the next, again and again; yield the time of each placement."""
    rng, cluster = np.random.default_rng(seed), Cluster(nodes, sharing="devices")
    units = np.column_stack([asked.units[:, :2], asked.milli_gpus])
    jobs = Jobs.of(units, asked.gpu_type, asked.gpu_types)
    state = begun(jobs, cluster, Discipline(placement="fgd", match_gpu_type=True), horizon_s=1.0, target=target)
    buckets, bare, found = state.queue.jobs["granted_bucket"], state.scratch.bare, state.scratch
    demands, running = asked.demands(), list[Allocation]()
    first = len(demands) * len(nodes) // len(machines())
    choose(state, int(buckets[0]))
    for number in range(first + decisions):
        full = number >= first
        if full:
            cluster.release(running.pop(int(rng.integers(len(running)))))
        pod, room = int(rng.integers(len(demands))), cluster.room()
        if full and cold:
            state.cache.up[:] = False
        begin = time.thread_time()
        bare.free[:], bare.devices[:], bare.tenants[:] = room.free, room.devices, room.tenants
        used = choose(state, int(buckets[pod]))
        if full:
            yield (time.thread_time() - begin) * 1000.0
        if used:
            machine, milli = int(found.chosen[0]), shape(demands[pod].units[2])[1]
            devices = tuple((machine, device, milli) for device in np.flatnonzero(found.taken[0]).tolist())
            allocation = Allocation(demand=in_devices(demands[pod]), counts=((machine, 1),), devices=devices)
            cluster.allocate(allocation)
            running.append(allocation)


def run_rows() -> list[Row]:
    """Time whole clusters filled up to 130 %, of every placement."""
    found = {policy: [_run_s(policy, seed) for seed in range(ROUNDS)] for policy in POLICIES}
    which = "drawn" if recorded() is None else "public default"
    filled = f"1213 machines filled to 130 %, {which} pods"
    rows = [
        amount_row("b", f"{policy}: {filled}", measured, unit="s", bar=Bar(side="under", value=20.0))
        for policy, measured in found.items()
    ]
    minutes = sum(float(np.median(measured)) for measured in found.values()) * WORKLOADS * SEEDS / 2 / 60
    return [
        *rows,
        amount_row("b", "fgd: one run (published: about ten minutes on two cores)", [PUBLISHED_RUN_S], unit="s"),
        amount_row(
            "b",
            "12 workloads x 6 placements x 10 seeds on two cores, reckoned from these runs",
            [minutes],
            unit="min",
            bar=Bar(side="under", value=40.0),
        ),
    ]


def _run_s(policy: str, seed: int) -> float:
    rng, nodes, asked = np.random.default_rng(seed), machines(), pods()
    target = target_of(asked.demands(), popularity=0.95)
    begin = time.perf_counter()
    order = inflate(asked.milli_gpus, 1000 * sum(machine.gpus for machine in nodes), rng=rng)
    run_inflation(nodes, asked.ordered(order), policy, target, rng=rng)
    return time.perf_counter() - begin
