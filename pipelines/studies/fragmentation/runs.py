"""Clusters filled up: every arm with the same pods in the same order, seed by seed, dealt to processes.

What the curves come to is judged in `tables` and `bars`. Called by `fgd.experiment`.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
import polars as pl

from pipelines.studies.fragmentation.arms import PERMUTED, Arm
from pipelines.studies.fragmentation.inflation import Inflation, binned, inflate, run_inflation
from pipelines.studies.fragmentation.pod_lists import PodList
from scheduler_core.target import target_of

CURVE_SCHEMA = {
    "workload": pl.String(),
    "policy": pl.String(),
    "popularity": pl.Float64(),
    "ties": pl.String(),
    "nodes": pl.String(),
    "seed": pl.Int64(),
    "arrived_pct": pl.Int64(),
    "unallocated_pct": pl.Float64(),
    "fragmented_pct": pl.Float64(),
}
"""One row per run and whole percent of the cluster's GPUs that had been asked for: how many of them were not given,
and how many were free without use to an average pod of the target, as means over the pods that arrived there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """The curves of some runs, and how long each run took: by placement, since they differ in that."""

    frame: pl.DataFrame
    seconds: dict[str, list[float]]


def filled_up(
    lists: Sequence[PodList],
    arms: Sequence[Arm],
    seeds: Sequence[int],
    *,
    processes: int = 1,
    talk: Callable[[str], None] = lambda _: None,
) -> Curves:
    """Run every arm on every list with every seed; the answer does not depend on the number of processes."""
    frames: list[pl.DataFrame] = []
    seconds: dict[str, list[float]] = {}
    tasks = [(pods, tuple(arms), seed) for pods in lists for seed in seeds]
    for number, done in enumerate(_done(tasks, processes), start=1):
        frames.append(done.frame)
        for policy, took in done.seconds.items():
            seconds.setdefault(policy, []).extend(took)
        if number % len(seeds) == 0:
            talk(f"{lists[number // len(seeds) - 1].name}: {len(arms)} arms, {len(seeds)} seeds")
    return Curves(frame=pl.concat(frames), seconds=seconds)


def one_seed(pods: PodList, arms: Sequence[Arm], seed: int) -> Curves:
    """Inflate a list with a seed and run every arm on it.

    The pods' order, the nodes' and the draws each have a stream of their own: all arms see the same pods, and all
    permuted ones the same nodes.
    """
    for_pods, for_nodes, for_ties = np.random.SeedSequence(seed).spawn(3)
    order = inflate(pods.pods.milli_gpus, pods.capacity_milli, rng=np.random.default_rng(for_pods))
    permuted = np.random.default_rng(for_nodes).permutation(len(pods.machines))
    machines = {True: [pods.machines[at] for at in permuted], False: pods.machines}
    demands, arriving = pods.pods.demands(), pods.pods.ordered(order)
    targets = {share: target_of(demands, share) for share in {arm.popularity for arm in arms}}
    frames: list[pl.DataFrame] = []
    seconds: dict[str, list[float]] = {}
    for arm in arms:
        began = time.perf_counter()
        filled = run_inflation(
            machines[arm.nodes == PERMUTED],
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
    """Return one run's curve: a row for each whole percent at which a pod arrived."""
    arrived, allocated, fragmented = binned(filled)
    means = pl.DataFrame({"arrived_pct": arrived, "unallocated_pct": 100.0 - allocated, "fragmented_pct": fragmented})
    return means.select(
        pl.lit(keys[name], dtype=kind).alias(name) if name in keys else pl.col(name)
        for name, kind in CURVE_SCHEMA.items()
    )


def _done(tasks: Sequence[tuple[PodList, tuple[Arm, ...], int]], processes: int) -> Iterator[Curves]:
    """Yield what each task comes to, in their order.

    The first is done here: what it compiles, the other processes read back.
    """
    first, *others = tasks
    yield one_seed(*first)
    if processes == 1 or not others:
        yield from (one_seed(*task) for task in others)
        return
    with ProcessPoolExecutor(max_workers=min(processes, len(others)), mp_context=get_context("spawn")) as pool:
        yield from pool.map(one_seed, *_columns(others))


def _columns(tasks: Iterable[tuple[PodList, tuple[Arm, ...], int]]) -> Iterable[Iterable[object]]:
    return zip(*tasks, strict=True)
