"""Simulation of one random set of jobs under several policies: a row of results for each policy.

Also the tardiness that no policy can avoid. Tables of the rows are made in `tables`. Called by `study`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import polars as pl

from pipelines.engine.engine import Engine
from pipelines.studies.cost.arms import as_asked, policies
from pipelines.studies.cost.bound import least_usd
from pipelines.studies.cost.settings import BOUND, Setting
from pipelines.studies.cost.simulation import Outcome, Site, SubmittedJobs, gpu_seconds, simulate
from pipelines.studies.cost.workload import Speeds, cluster, stretch, submitted
from pipelines.studies.grids import RecordedHours
from pipelines.studies.study import Row, dealt
from scheduler_core.planning.hourly import HOUR_S
from scheduler_core.types import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavoidable:
    """Share of jobs that are late even in their fastest run from submission, and the cost of this tardiness in USD."""

    late_share: float
    usd: float


def unavoidable(jobs: SubmittedJobs, *, as_asked: bool) -> Unavoidable:
    """Return the tardiness on an empty cluster, where every job starts at submission on its fastest node type.

    With `as_asked`, jobs use their requested GPUs, otherwise their fastest number of GPUs. No queue order, preemption
    or additional node can lower this tardiness.
    """
    late_s = np.maximum(jobs.submit_s + _soonest_s(jobs, as_asked=as_asked) - jobs.due_s, 0.0)
    # Rounding must not make a job late that is due exactly at its earliest end.
    late_s = np.where(late_s > 1e-6, late_s, 0.0)
    return Unavoidable(late_share=float((late_s > 0.0).mean()), usd=float(jobs.weight_usd_per_s @ late_s))


def _soonest_s(jobs: SubmittedJobs, *, as_asked: bool) -> FloatArray:
    allowed = jobs.run_s
    if as_asked:
        allowed = np.take_along_axis(jobs.run_s, jobs.asked_gpus[:, None, None], axis=2)
    return np.asarray(np.nanmin(allowed, axis=(1, 2)) * jobs.off_by)


TALK_EVERY: Final = 25

FIGURES: Final = (
    "total_usd",
    "tardiness_usd",
    "energy_usd",
    "energy_kwh",
    "kept_on_usd",
    "late_share",
    "gpu_hours",
    "restarts",
    "infeasible_share",
    "unavoidable_usd",
)
"""Results of a run: cost and its parts, energy, cost of leaving idle nodes on, share of late jobs, GPU time, restarts.

The last two are from `unavoidable`: share and tardiness cost of jobs that are late on an empty cluster.
"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task:
    """One setting and seed to simulate, with `nodes` nodes of each type and `jobs` jobs, drawn or `recorded`."""

    setting: Setting
    seed: int
    speeds: Speeds
    grid: RecordedHours
    nodes: int
    jobs: int
    iterations: int
    pue: float
    restart_s: float
    recorded: pl.DataFrame | None = None


def run_task(task: Task) -> list[Row]:
    """Simulate every policy of a task with the same jobs, prices and nodes; return a row per policy."""
    setting, nodes = task.setting, cluster(task.nodes)
    rng = np.random.default_rng(task.seed)
    start_ts = task.grid.drawn_ts(rng)
    draw = submitted if task.recorded is None else partial(stretch, task.recorded)
    jobs = draw(task.speeds, nodes, load=setting.load, count=task.jobs, off_by=setting.off_by, rng=rng)
    site = Site(
        nodes=nodes,
        price=task.grid.series,
        start_ts=start_ts,
        pue=task.pue,
        restart_s=task.restart_s,
    )
    by_name = policies(task.iterations, setting.weight_factor)
    least = {asked: unavoidable(jobs, as_asked=asked) for asked in (True, False)}
    rows: list[Row] = []
    for arm in setting.arms:
        if arm == BOUND:
            rows.append({**_said(task), "arm": arm, "total_usd": least_usd(jobs, site)})
            continue
        outcome = simulate(jobs, site, by_name[arm], np.random.default_rng([task.seed, 1]))
        rows.append({**_said(task), "arm": arm, **_figures(outcome, len(jobs), least[as_asked(arm)])})
    return rows


def _said(task: Task) -> Row:
    setting = task.setting
    return {
        "study": setting.study,
        "zone": setting.zone,
        "load": setting.load,
        "value": setting.value,
        "seed": task.seed,
    }


def _figures(outcome: Outcome, jobs: int, least: Unavoidable) -> Row:
    return {
        "total_usd": outcome.total_usd,
        "tardiness_usd": outcome.tardiness_usd,
        "energy_usd": outcome.energy_usd,
        "energy_kwh": outcome.energy_kwh,
        "kept_on_usd": outcome.kept_on_usd,
        "foreseen_usd": outcome.foreseen_usd,
        "late_share": float((outcome.tardiness_s > 0.0).mean()),
        "gpu_hours": float(gpu_seconds(outcome, jobs).sum()) / HOUR_S,
        "restarts": outcome.restarts,
        "infeasible_share": least.late_share,
        "unavoidable_usd": least.usd,
        "decisions": len(outcome.spans),
    }


def run_all(tasks: Sequence[Task], engine: Engine, talk: Callable[[str], None]) -> pl.DataFrame:
    """Run all tasks on the engine; return a row per setting, seed and policy."""
    rows: list[Row] = []
    for count, done in enumerate(dealt(run_task, tasks, engine), start=1):
        rows += done
        if count % TALK_EVERY == 0 or count == len(tasks):
            talk(f"{count} of {len(tasks)} draws run")
    return pl.DataFrame(rows, infer_schema_length=None)
