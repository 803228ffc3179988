"""Simulation runs of the reclaiming study: every arm under every variation, sharing and mix, with the same arrivals.

A run gives one row of figures. Called by `study`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

import numpy as np
import polars as pl

from pipelines.engine.engine import Engine
from pipelines.simulation.advice import ORACLE, REQUESTED
from pipelines.simulation.engine.simulator import PAPER_HORIZON_S
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.measures.job_metrics import job_metrics
from pipelines.simulation.measures.metrics import STRETCHED_ABOVE
from pipelines.simulation.paired_runs import Arrivals
from pipelines.simulation.reclaiming import Sized
from pipelines.simulation.shared.inputs import Load, load_of
from pipelines.simulation.shared.variation import VARIATIONS, Variation
from pipelines.simulation.workloads import Gangs, arriving, gangs_of
from pipelines.studies.intervals import clopper_pearson, mean, ratio
from pipelines.studies.reclaim.arms import sized
from pipelines.studies.shrinking.arms import Asked
from pipelines.studies.shrinking.cases import WITH, WITHOUT, Case
from pipelines.studies.study import Row, dealt
from scheduler_core.cluster import paper_machines
from scheduler_core.devices import Sharing
from scheduler_core.queueing import Discipline
from scheduler_core.reserve import ReservePolicy
from scheduler_core.types import FloatArray, IntArray

__all__ = ["Setting", "run_all", "share_rows"]

MIXES: Final = {WITH: "gnn", WITHOUT: "no-gnn"}
"""Value of the column `mix` by population; it is `all` if jobs are drawn uniformly."""

PLACE: Final = ("trace", "mix", "sharing", "policy", "variation", "rate_per_h", "z", "probation_s")
"""Columns within which arms are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the runs of a study vary."""

    arms: Sequence[str]
    variations: Sequence[str]
    sharings: Sequence[Sharing]
    policies: Sequence[str]
    reserve: ReservePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The runs of one arm in one place, one for each set of arrivals."""

    place: Row
    arm: str
    gangs: Gangs
    load: Load
    sized: Sized
    variation: Variation
    discipline: Discipline
    arrivals: Sequence[Arrivals]


def run_all(asked: Asked, cases: Sequence[Case], setting: Setting, trace: str, engine: Engine) -> pl.DataFrame:
    """Simulate every arm in every place; return one row per run."""
    tasks = list(_tasks(asked, cases, setting, trace))
    return pl.DataFrame([row for rows in dealt(runs_of, tasks, engine) for row in rows], infer_schema_length=None)


def _tasks(asked: Asked, cases: Sequence[Case], setting: Setting, trace: str) -> Iterator[Task]:
    machines = paper_machines()
    working = gangs_of(asked.pool.frame, gpus_per_machine=max(machine.gpus for machine in machines))
    # A drawn job completes, even if the recorded job failed.
    gangs = replace(working, fails=np.zeros_like(working.fails))
    load = load_of(asked.pool.jobs, gangs)
    groups: dict[tuple[str, float], list[Arrivals]] = {}
    for case in cases:
        groups.setdefault((case.gnn, case.rate_per_h), []).append(case.arrivals)
    answers = {arm: sized(arm, asked, gangs, setting.reserve) for arm in setting.arms}
    places = product(groups.items(), setting.sharings, setting.policies, setting.variations)
    for ((gnn, rate), arrivals), sharing, order, variation in places:
        place: Row = {
            "trace": trace,
            "mix": MIXES.get(gnn, gnn),
            "sharing": sharing,
            "policy": order,
            "variation": variation,
            "rate_per_h": rate,
            "z": setting.reserve.z,
            "probation_s": setting.reserve.probation_s,
        }
        for arm, answer in answers.items():
            yield Task(
                place=place,
                arm=arm,
                gangs=gangs,
                load=load,
                sized=answer,
                variation=VARIATIONS[variation],
                discipline=Discipline(policy=order, sharing=sharing, preempt=False),
                arrivals=arrivals,
            )


def runs_of(task: Task) -> list[Row]:
    """Simulate one arm in one place; return one row per set of arrivals."""
    # Imported here, because it loads compiled code that the other process compiles first.
    from pipelines.simulation.shared.run import simulate_shared

    rows: list[Row] = []
    for each in task.arrivals:
        run = simulate_shared(
            arriving(task.gangs, task.sized.starts, each.at_s, each.picks),
            task.load.picked(each.picks),
            paper_machines(),
            task.sized.reserving.picked(each.picks),
            variation=task.variation,
            discipline=task.discipline,
            horizon_s=PAPER_HORIZON_S,
            seed=each.seed,
        )
        jobs = job_metrics(run.schedule)
        started = ~np.isnan(jobs.first_start_s)
        stretch = jobs.stretch[started]
        rows.append(
            {
                **task.place,
                "arm": task.arm,
                "seed": each.seed,
                "finished": float(jobs.completed.sum()),
                "deployed": float(started.sum()),
                "killed": float(jobs.killed.sum()),
                "stretch_p99": float(np.quantile(stretch, 0.99)) if len(stretch) else np.nan,
                "stretched_share": float((stretch > STRETCHED_ABOVE).mean()) if len(stretch) else np.nan,
                "gpus_used": _gpus_used(run.schedule.end_s, task.load.compute[each.picks], jobs.done_frac, task, each),
                "killed_rows": np.unique(each.picks[jobs.killed]).tolist(),
                "started_rows": np.unique(each.picks[started]).tolist(),
            }
        )
    return rows


def _gpus_used(end_s: float, compute: FloatArray, done: FloatArray, task: Task, arrivals: Arrivals) -> float:
    """Return the mean number of GPUs that did work which was not lost."""
    work_s = task.gangs.run_s[arrivals.picks] * np.nan_to_num(done)
    gpus = np.minimum(compute[:, 1], task.gangs.request_units[arrivals.picks, 2]) / 1000.0
    return float((work_s * gpus * task.gangs.instances[arrivals.picks]).sum() / end_s)


def share_rows(runs: pl.DataFrame, pool: Pool) -> list[Row]:
    """Return one row per place and arm: its share of the oracle's gain, and its kills and stretch.

    `share` is (finished - finished as requested) / (finished by the oracle - finished as requested), a ratio of means
    over seeds with its interval. `killed` sums over seeds. `killed_rows_hi` is the upper end of the interval of the
    share of distinct rows that were killed at least once, of those that started.
    """
    rows: list[Row] = []
    for key, members in runs.group_by(PLACE, maintain_order=True):
        by_arm = {str(arm): own.sort("seed") for (arm,), own in members.group_by("arm", maintain_order=True)}
        base, most = (by_arm[name]["finished"].to_numpy() for name in (REQUESTED, ORACLE))
        for arm, own in by_arm.items():
            finished = own["finished"].to_numpy()
            share = ratio(finished - base, most - base)
            killed, started = (len(_distinct(own[name])) for name in ("killed_rows", "started_rows"))
            rows.append(
                {
                    **dict(zip(PLACE, key, strict=True)),
                    "arm": arm,
                    "share": share.value,
                    "share_lo": share.low,
                    "share_hi": share.high,
                    "finished": mean(finished).value,
                    "requested_finished": mean(base).value,
                    "oracle_finished": mean(most).value,
                    "gpus_used": mean(own["gpus_used"].to_numpy()).value,
                    "killed": int(own["killed"].sum()),
                    "killed_rows": killed,
                    "killed_rows_hi": clopper_pearson(killed, started).high,
                    "stretch_p99": mean(own["stretch_p99"].to_numpy()).value,
                    "requested_stretch_p99": mean(by_arm[REQUESTED]["stretch_p99"].to_numpy()).value,
                    "stretched_share": mean(own["stretched_share"].to_numpy()).value,
                    "seeds": own.height,
                    "rows": len(pool.jobs),
                }
            )
    return rows


def _distinct(rows: pl.Series) -> IntArray:
    return np.unique(np.concatenate([np.array(each, dtype=np.int64) for each in rows.to_list()]))
