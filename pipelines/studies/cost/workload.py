"""Jobs and nodes of the cost study: measured speeds on two node types, random due dates and weights."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl

from pipelines.errors import BadUsage
from pipelines.simulation.energy.power_file import NodePower
from pipelines.studies.cost.simulation import SubmittedJobs
from scheduler_core.planning.cost import Nodes, NodeType
from scheduler_core.types import BoolArray, FloatArray, IntArray

MINUTE_S: Final = 60.0
GPUS_ON_A_NODE: Final = 8
"""GPUs of each node of both types (ours): the largest number on one node for which speeds were measured."""

POWERS: Final = {
    "p100": NodePower(name="p100", cpu_idle_w=30.0, cpu_full_w=240.0, gpu_idle_w=25.0, gpu_full_w=250.0),
    "v100": NodePower(name="v100", cpu_idle_w=40.0, cpu_full_w=330.0, gpu_idle_w=30.0, gpu_full_w=300.0),
}
"""Node power by GPU type: published idle and full watts of the GPUs, and of two CPUs (our choice: E5-2682v4 with P100,
8163 with V100)."""

REFERENCE: Final = "v100"
"""GPU type to which the run times of Gavel's generator apply."""

ASKED: Final = {1: 0.70, 2: 0.10, 4: 0.15, 8: 0.05}
"""Probability of each number of requested GPUs, from Gavel's public generator, which follows the Philly trace."""

SHORT_MINUTES, LONG_MINUTES = (1.5, 3.0), (3.0, 4.0)
SHORT_SHARE: Final = 0.8
"""Run times with the requested GPUs: 10**U(1.5, 3) minutes for 80 % of the jobs, 10**U(3, 4) for the others (Gavel's
generator)."""

WEIGHT_USD_PER_S: Final = (0.000253709514333333, 0.000443991650083333)
"""Bounds of the uniformly drawn cost of a second of tardiness, from the public generator of the ANDREAS authors. Their
values are in EUR; we take a dollar as equal."""

SLOWEST_DUE: Final = 3.0
"""The factor 3 in due dates, U(fastest, min(3 · fastest, slowest)) after submission, where fastest and slowest are a
job's shortest and longest run time in any configuration (ANDREAS authors' generator)."""

MEAN_OF: Final = 20_000
"""Number of jobs drawn to estimate the mean work of one job."""


def node_type(power: NodePower, gpus: int = GPUS_ON_A_NODE) -> NodeType:
    """Return a node type; its CPUs are assumed to be as busy as its GPUs (ours)."""
    cpu_w = (power.cpu_full_w - power.cpu_idle_w) / gpus
    active_w = power.gpu_full_w - power.gpu_idle_w + cpu_w
    return NodeType(name=power.name, gpu_type=power.name, gpus=gpus, idle_w=power.idle_w(gpus), gpu_active_w=active_w)


def cluster(each: int) -> Nodes:
    """Return a cluster with `each` nodes of each type."""
    types = tuple(node_type(power) for power in POWERS.values())
    return Nodes(types=types, type_of=np.repeat(np.arange(len(types)), each))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Speeds:
    """Steps per second of A applications, shape (A, node types, 1 + GPUs on a node); NaN where not measured."""

    names: tuple[str, ...]
    steps_per_s: FloatArray

    @property
    def counts(self) -> BoolArray:
        """Return a mask (A, 1 + GPUs) of the numbers of GPUs with which each application was measured on both types."""
        return np.asarray(np.isfinite(self.steps_per_s).all(axis=1))


def speeds_of(throughputs: pl.DataFrame) -> Speeds:
    """Return the speeds on one node of the applications that were measured with one GPU on both node types."""
    kept = throughputs.filter("consolidated", pl.col("gpus") <= GPUS_ON_A_NODE)
    keys = kept.select("model", "batch").unique(maintain_order=True).rows()
    steps = np.full((len(keys), len(POWERS), 1 + GPUS_ON_A_NODE), np.nan)
    kinds = {name: at for at, name in enumerate(POWERS)}
    for model, batch, gpus, gpu_type, speed in kept.select(
        "model", "batch", "gpus", "gpu_type", "steps_per_s"
    ).iter_rows():
        steps[keys.index((model, batch)), kinds[gpu_type], gpus] = speed
    whole = np.isfinite(steps[:, :, 1]).all(axis=1)
    if not whole.any():
        raise BadUsage(f"throughputs: found none with one GPU on each of {', '.join(POWERS)}, expected some")
    names = [model if batch is None else f"{model} ({batch})" for model, batch in keys]
    return Speeds(names=tuple(np.array(names)[whole].tolist()), steps_per_s=steps[whole])


def drawn(speeds: Speeds, count: int, rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
    """Draw jobs: their run times (J, node types, 1 + GPUs), and the requested GPUs.

    The requested number of GPUs is drawn first, then an application measured with it, then the run time on the
    reference type. Run times in other configurations follow from the measured speeds, for the same number of steps.
    """
    asked = rng.choice(np.array(list(ASKED)), count, p=np.array(list(ASKED.values())))
    slowness = _slowness(speeds, asked, rng)
    short = rng.random(count) < SHORT_SHARE
    low, high = (np.where(short, *bounds) for bounds in zip(SHORT_MINUTES, LONG_MINUTES, strict=True))
    as_asked_s = MINUTE_S * 10.0 ** rng.uniform(low, high)
    return as_asked_s[:, None, None] * slowness, asked


def _slowness(speeds: Speeds, asked: IntArray, rng: np.random.Generator) -> FloatArray:
    """Draw an application for each job; return its run times (J, node types, 1 + GPUs) relative to its request."""
    pick = rng.random(len(asked))
    application = np.empty(len(asked), np.int64)
    for gpus in ASKED:
        fitting = np.flatnonzero(speeds.counts[:, gpus])
        mine = asked == gpus
        application[mine] = fitting[(pick[mine] * len(fitting)).astype(np.int64)]
    speed = speeds.steps_per_s[application]
    reference = speed[np.arange(len(asked)), list(POWERS).index(REFERENCE), asked]
    return np.asarray(reference[:, None, None] / speed)


def least_gpu_s(run_s: FloatArray) -> FloatArray:
    """Return the fewest GPU-seconds that each job needs in any configuration (J,)."""
    return np.asarray(np.nanmin(run_s * np.arange(run_s.shape[2]), axis=(1, 2)))


def interval_s(speeds: Speeds, nodes: Nodes, load: float) -> float:
    """Return the mean time between arrivals at an offered load.

    At a load of 1 the jobs need as many GPU-seconds as the cluster has, if every job runs in the configuration with the
    fewest GPU-seconds (ours; the ANDREAS authors' generator uses the time on one GPU).
    """
    run_s, _ = drawn(speeds, MEAN_OF, np.random.default_rng(0))
    return float(least_gpu_s(run_s).mean() / (load * nodes.gpus.sum()))


def submitted(
    speeds: Speeds, nodes: Nodes, *, load: float, count: int, off_by: float, rng: np.random.Generator
) -> SubmittedJobs:
    """Draw the jobs of one run: Poisson arrivals, run times, due dates, weights.

    Each true run time is `off_by` (a fraction) above or below the predicted one, with equal probability (ours). Draws
    depend only on the seed: `load` only scales the arrival times, and every `off_by` makes the same jobs run longer.
    """
    run_s, asked = drawn(speeds, count, rng)
    gaps_s = rng.exponential(1.0, count) * interval_s(speeds, nodes, load)
    jobs = _due(np.cumsum(gaps_s) - gaps_s[0], run_s, asked, rng)
    return replace(jobs, off_by=np.where(rng.random(count) < 0.5, 1.0 + off_by, 1.0 - off_by))


def stretch(
    recorded: pl.DataFrame, speeds: Speeds, nodes: Nodes, *, load: float, off_by: float, rng: np.random.Generator
) -> SubmittedJobs:
    """Return recorded jobs (`submit_s, gpus, run_s, predicted`) with drawn speeds, due dates and weights.

    Times between arrivals are multiplied by one factor, so that the true run times make the load. Decisions are made
    with predicted run times; with an `off_by` of 0 these come true.
    """
    submit_s, asked, true_s, told_s = (recorded[name].to_numpy() for name in ("submit_s", "gpus", "run_s", "predicted"))
    slowness = _slowness(speeds, asked, rng)
    run_s = true_s[:, None, None] * slowness
    came_s = submit_s - submit_s[0]
    span_s = float(least_gpu_s(run_s).sum() / (load * nodes.gpus.sum()))
    jobs = _due(came_s * (span_s / max(float(came_s[-1]), 1.0)), run_s, asked, rng)
    jobs = replace(jobs, run_s=told_s[:, None, None] * slowness)
    return replace(jobs, off_by=true_s / told_s) if off_by else jobs


def _due(submit_s: FloatArray, run_s: FloatArray, asked: IntArray, rng: np.random.Generator) -> SubmittedJobs:
    """Return jobs with exactly known run times; due dates and weights are drawn."""
    fastest, slowest = np.nanmin(run_s, axis=(1, 2)), np.nanmax(run_s, axis=(1, 2))
    return SubmittedJobs(
        submit_s=submit_s,
        due_s=submit_s + rng.uniform(fastest, np.minimum(SLOWEST_DUE * fastest, slowest)),
        weight_usd_per_s=rng.uniform(*WEIGHT_USD_PER_S, len(submit_s)),
        run_s=run_s,
        asked_gpus=asked.astype(np.int64),
        off_by=np.ones(len(submit_s)),
    )
