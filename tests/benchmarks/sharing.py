"""Fragmentation gradient descent with nothing cached: each decision is the first of its placement, in a full cluster.

Times are CPU time, so others on the machine do not count. The clusters are drawn like the public list of 1213 machines.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from scheduler_core.cluster import Allocation, Cluster, Demand, Machine, Room, in_devices, move
from scheduler_core.engine import begun, in_arrays, run
from scheduler_core.gangs import ANY_GPU_TYPE, shape
from scheduler_core.kernels.clock import advance, aim_at_goal
from scheduler_core.kernels.state import State
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
    demands = [in_devices(Demand(units=(cpu, mem, gpu), instances=1)) for cpu, mem, gpu in asked.tolist()]
    target, rules = target_of(demands), Discipline(placement="fgd", match_gpu_type=True)

    def started(chosen: IntArray, room: Room) -> State:
        """Return the state in which these pods wait for their first round, each for a moment of its own."""
        units = np.array([demands[pod].units for pod in chosen.tolist()], dtype=np.int64)
        arrive_s = np.arange(len(chosen), dtype=np.float64)
        jobs = Jobs.of(units, np.full(len(chosen), ANY_GPU_TYPE), (), arrive_s=arrive_s)
        state = begun(jobs, cluster, rules, horizon_s=float(len(chosen)), target=target)
        now, free = state.cluster.now, in_arrays(room)
        for array, given in zip(now, free, strict=True):
            array[:] = given
        state.cluster.total_free[:] = free.free.sum(axis=0)
        return state

    def allocations(state: State, chosen: IntArray) -> Iterator[Allocation]:
        log = state.log
        for number in range(int(state.queue.tally["runs"][0])):
            machine, demand = int(log.hosts[number]), demands[int(chosen[log.runs["job"][number]])]
            milli = shape(demand.units[2])[1]
            devices = tuple((machine, device, milli) for device in np.flatnonzero(log.devices[number]).tolist())
            yield Allocation(demand=demand, counts=((machine, 1),), devices=devices)

    chosen = rng.integers(len(demands), size=len(demands) * count // PUBLISHED)
    running = list(allocations(run(started(chosen, cluster.empty), compiled=True), chosen))
    room = _taken(cluster.empty, running)
    for pod in rng.integers(len(demands), size=decisions):
        room = room.with_([running.pop(int(rng.integers(len(running))))])
        state = started(np.array([pod]), room)
        begin = time.thread_time()
        aim_at_goal(state)
        advance(state)
        yield (time.thread_time() - begin) * 1000.0
        new = list(allocations(state, np.array([pod])))
        room, running = _taken(room, new), running + new


def _taken(room: Room, allocations: Iterable[Allocation]) -> Room:
    free, devices, tenants = (np.array(each) for each in (room.free, room.devices, room.tenants))
    for each in allocations:
        move(each, -1, free, devices, tenants)
    return replace(room, free=free, devices=devices, tenants=tenants)


main = partial(benchmark, "sharing", __doc__, {"cold": cold_rows})

if __name__ == "__main__":
    main()
