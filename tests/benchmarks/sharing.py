"""Fragmentation gradient descent with nothing cached: each decision is the first of its placement, in a full cluster.

Times are CPU time, so others on the machine do not count. The clusters are drawn like the public list of 1213 machines.
"""

import time
from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np

from scheduler_core.cluster import Allocation, Cluster, Demand, Machine, in_devices
from scheduler_core.engine import begun
from scheduler_core.gangs import ANY_GPU_TYPE, rounded, shape
from scheduler_core.kernels.sharing import fill_in_order
from scheduler_core.queueing import Discipline, Jobs
from scheduler_core.target import target_of
from scheduler_core.types import IntArray
from tests.benchmarks.harness import Bar, Row, amount_row, benchmark

ROUNDS: Final = 3
DECISIONS: Final = 500
"""Of a round."""
PUBLISHED: Final = 1_213
SIZES: Final = {PUBLISHED: Bar(side="under", value=0.5), 10_000: None}
"""Machines, and the bar of p99 in milliseconds."""
MODELS: Final = (
    # (machines, GPUs, cores, GiB, type): the public list's, as it counts them
    (549, 8, 96.0, 384.0, "G2"),
    (39, 8, 128.0, 768.0, "G3"),
    (29, 8, 96.0, 768.0, "V100M32"),
    (37, 4, 32.0, 128.0, "V100M16"),
    (17, 4, 96.0, 384.0, "T4"),
    (387, 2, 104.0, 512.0, "T4"),
    (131, 2, 64.0, 256.0, "P100"),
    (24, 1, 8.0, 60.0, "V100M16"),
)
SHAPES: Final = 150
"""Distinct demands, as in the public list."""
PODS: Final = 8152
GPUS: Final = (0, 100, 250, 460, 500, 700, 810, 1000, 1000, 2000, 4000, 8000)
GPU_SHARES: Final = (0.133, 0.06, 0.08, 0.12, 0.06, 0.05, 0.01, 0.25, 0.23, 0.001, 0.001, 0.005)


def cold_rows() -> list[Row]:
    """Time decisions on each size of cluster."""
    rows = []
    for count, bar in SIZES.items():
        rounds_ms = np.split(np.array(list(_decisions_ms(count, ROUNDS * DECISIONS))), ROUNDS)
        for name, percent in (("median", 50), ("p99", 99)):
            measured = [float(np.percentile(each, percent)) for each in rounds_ms]
            what = f"one fgd decision with nothing cached, {count} machines, full: {name}"
            rows.append(amount_row(what, measured, unit="ms", bar=bar if percent == 99 else None))
    return rows


def machines(count: int) -> list[Machine]:
    """Return machines of the public list's models in a drawn order, again and again."""
    kinds = np.random.default_rng(0).permutation(np.repeat(np.arange(len(MODELS)), [many for many, *_ in MODELS]))
    drawn = (MODELS[kinds[at % len(kinds)]] for at in range(count))
    return [
        Machine(name=f"m{at:05}", cpu_cores=cores, mem_gib=gib, gpus=gpus, gpu_type=gpu_type)
        for at, (_, gpus, cores, gib, gpu_type) in enumerate(drawn)
    ]


def pods() -> IntArray:
    """Return CPU, memory and GPU of as many pods as the public default list has, drawn from as many shapes (n, 3)."""
    rng = np.random.default_rng(0)
    cpu_mem = [rng.integers(1, 25, SHAPES) * 500, rng.integers(1, 33, SHAPES) * 1024]
    shapes = np.stack([*cpu_mem, rng.choice(GPUS, SHAPES, p=GPU_SHARES)], axis=1)
    popular = rng.dirichlet(np.full(SHAPES, 0.3))
    drawn: IntArray = shapes[rng.choice(SHAPES, PODS, p=popular)]
    return drawn


def _decisions_ms(count: int, decisions: int) -> Iterator[float]:
    """Fill the cluster, then end one pod and place the next, again and again; yield the time of each placement."""
    rng, asked, cluster = np.random.default_rng(0), pods(), Cluster(machines(count), sharing="devices")
    demands = [Demand(units=(cpu, mem, gpu), instances=1) for cpu, mem, gpu in asked.tolist()]
    units = np.column_stack([asked[:, :2], rounded(asked[:, 2])])
    jobs = Jobs.of(units, np.full(PODS, ANY_GPU_TYPE), ())
    discipline = Discipline(placement="fgd", match_gpu_type=True)
    state = begun(jobs, cluster, discipline, horizon_s=1.0, target=target_of(demands))
    buckets, now = np.ascontiguousarray(state.queue.jobs["granted_bucket"]), state.cluster.now
    chosen, fragmented = (np.empty(1, dtype=np.int64) for _ in range(2))
    draw, taken = np.full((1, 2), -1.0), np.zeros((1, now.devices.shape[1]), dtype=np.bool_)
    running, room = list[Allocation](), cluster.empty
    first = len(demands) * count // PUBLISHED
    fill_in_order(state, buckets[:1], draw, chosen, taken, fragmented)
    for number in range(first + decisions):
        full = number >= first
        if full:
            room = room.with_([running.pop(int(rng.integers(len(running))))])
        pod = int(rng.integers(len(demands)))
        begin = time.thread_time()
        now.free[:], now.devices[:], now.tenants[:] = room.free, room.devices, room.tenants
        fill_in_order(state, buckets[pod : pod + 1], draw, chosen, taken, fragmented)
        if full:
            yield (time.thread_time() - begin) * 1000.0
        machine, milli = int(chosen[0]), shape(demands[pod].units[2])[1]
        if machine >= 0:
            devices = tuple((machine, device, milli) for device in np.flatnonzero(taken[0]).tolist())
            allocation = Allocation(demand=in_devices(demands[pod]), counts=((machine, 1),), devices=devices)
            room = room.without([allocation])
            running.append(allocation)


main = partial(benchmark, "sharing", __doc__, {"cold": cold_rows})

if __name__ == "__main__":
    main()
