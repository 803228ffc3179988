"""A tiny pool of all four kinds for the tests of shrinking studies, and runs written by hand."""

from collections.abc import Mapping, Sequence

import polars as pl

from pipelines.simulation.advice import ConstantPredictor
from pipelines.simulation.cluster_file import ClusterSpec
from pipelines.simulation.job_pool import Pool, job_pool
from pipelines.simulation.settings import SimulationSettings
from pipelines.studies.shrinking.runs import TYPES, Plan, populations
from scheduler_core.cluster import Machine
from scheduler_core.types import Request
from tests.pipelines.lake.canonical import measured_tables

ONE_MACHINE = ClusterSpec(machines=(Machine(name="m", cpu_cores=96.0, mem_gib=512.0, gpus=8),), source="one machine")
SMALL = SimulationSettings(horizon_s=3600.0, cluster=ONE_MACHINE)
PREDICTOR = ConstantPredictor(run_s=600.0, peak=Request(cpu_cores=2.0, mem_gib=4.0, gpus=0.1), gpu_mem_gib=1.0, runs=10)


def tables(count: int = 40) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return canonical jobs of all four kinds in turn, in groups of five, and their use."""
    jobs, usage = measured_tables(count)
    kinds = [TYPES[at % len(TYPES)] for at in range(count)]
    groups = [f"g{at // 5}" for at in range(count)]
    return jobs.with_columns(task_type=pl.Series(kinds), group=pl.Series(groups)), usage


def pool() -> Pool:
    return job_pool(*tables())


def plan(of: Pool, *loads: float, settings: SimulationSettings = SMALL) -> Plan:
    return Plan(pool=of, populations=populations(of), loads_per_h=loads or (70.0,), settings=settings)


def runs(arms: Mapping[str, Mapping[str, Sequence[float]]], **place: object) -> pl.DataFrame:
    """Return rows of runs at one place: for each arm the figures by seed."""
    at = {"gnn": "with", "rate_per_h": 70.0, "truth": "contention", **place}
    rows = [
        {**at, "arm": arm, "seed": seed, "completed": 1.0, **{name: float(of[seed]) for name, of in figures.items()}}
        for arm, figures in arms.items()
        for seed in range(len(next(iter(figures.values()))))
    ]
    return pl.DataFrame(rows)
