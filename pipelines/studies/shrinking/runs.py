"""Runs of the shrinking studies and their tables: jobs drawn in a mix of task types, simulated in every arm."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from pipelines.errors import BadUsage
from pipelines.simulation.advice import ORACLE, REQUESTED, Advice, Sized
from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.engine.workload import SECONDS_PER_HOUR, poisson_draws
from pipelines.simulation.job_pool import Pool, one_instance_each
from pipelines.simulation.measures.series import series
from pipelines.simulation.paired_runs import Arrivals, paired_runs
from pipelines.simulation.settings import PAPER_MIX, SimulationSettings
from pipelines.simulation.shared.inputs import SHARED
from pipelines.simulation.simulate import ALL
from pipelines.simulation.workloads import gangs_of
from pipelines.studies.compare import ARM, NOTHING, Interval, Values, compare, mean, paired, ratio
from pipelines.studies.study import Row
from scheduler_core.cluster import UNITS
from scheduler_core.types import RESOURCES, IntArray

GNN: Final = "gnn"
TYPES: Final = ("cv", "nlp", "gnn", "ctr")
"""Task types of the mixes. Yang, Hong and Tang use ResNet, NMT, GraphLearn and CTR, in this order."""

PAPER: Final = "5:15:15:65"
MIXES: Final[Mapping[str, Mapping[str, float]]] = {
    PAPER: PAPER_MIX,
    "40:30:20:10": dict(zip(TYPES, (40.0, 30.0, 20.0, 10.0), strict=True)),
}
"""Weights of the task types in the mixes of Yang, Hong and Tang, each named cv:nlp:gnn:ctr."""

WITH, WITHOUT = "with", "without"
"""Names of the populations: with or without GNN jobs."""

PLACE: Final = ("gnn", "rate_per_h", "truth")
"""Columns of runs that differ only in arm and seed. `truth` is the slowdown model that runs are simulated under."""

STEP_S: Final = 300.0
FULL_FRAC: Final = 0.95
"""Share of the CPU that must be allocated, on average over a step, for it to count as fully allocated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What every arm is simulated in: jobs and their populations, loads, the mix, and the settings of the cluster.

    With `single`, an arrival is one instance of a task, else all of them; Yang, Hong and Tang do not state which.
    """

    pool: Pool
    populations: Mapping[str, IntArray]
    loads_per_h: Sequence[float]
    settings: SimulationSettings
    mix: str = PAPER
    single: bool = False

    def cases(self, seed: int) -> Iterator[tuple[str, float, Arrivals]]:
        """Yield (whether GNN jobs are drawn, load per hour, arrivals of the seed) for each population and load."""
        for gnn, members in self.populations.items():
            for rate in self.loads_per_h:
                mix = weights_of(gnn, self.mix)
                yield gnn, rate, drawn(self.pool, members, mix, rate, self.settings.horizon_s, seed)


def run_arms(plan: Plan, advice: Advice, seeds: Sequence[int]) -> pl.DataFrame:
    """Simulate every arm in every population, load and slowdown model; return a row per run: `PLACE` and metrics."""
    return compare({REQUESTED: advice}, seeds, partial(_run, plan=plan))


def _run(advice: Advice, seed: int, *, plan: Plan) -> list[Row]:
    pool = one_instance_each(plan.pool) if plan.single else plan.pool
    working = gangs_of(pool.frame)
    # A drawn job completes, even if the recorded job failed.
    gangs = replace(working, fails=np.zeros_like(working.fails))
    cases = list(plan.cases(seed))
    of = {id(arrivals): {"gnn": gnn, "rate_per_h": rate} for gnn, rate, arrivals in cases}
    arrivals, settings = [each for _, _, each in cases], plan.settings
    treated = advice if SHARED in settings.slowdown_models else {}
    shared = {arm: Sized.at_submission(pool, gangs, answers) for arm, answers in treated.items()}
    return [
        {
            **of[id(run.arrivals)],
            ARM: run.arm,
            "truth": run.slowdown_model,
            **asdict(run.metrics),
            "cpu_request_cores": _requested_cores(run.schedule),
            **_over_time(run.schedule),
        }
        for run in paired_runs(pool, gangs, advice, settings.slowdown_models, arrivals, settings, shared)
        if run.arm in advice
    ]


def _requested_cores(schedule: Schedule) -> float:
    """Return the mean CPU cores that a gang requests when it enters the queue, after shrinking by the arm."""
    workload, counted = schedule.workload, ~schedule.never_fits
    cores = workload.granted_units[:, 0] * workload.instances / UNITS[0]
    return float(cores[counted].mean()) if counted.any() else float("nan")


def _over_time(schedule: Schedule) -> Row:
    """Return `cpu_met_h`, the hour at which 95 % of the CPU was first allocated, and the shares allocated over time.

    The hour is the length of the run if the CPU was never full. The shares are of every sixth step.
    """
    steps = series(schedule, STEP_S)
    units = np.array([[each.cpu_cores, each.mem_gib, each.gpus] for each in schedule.machines]).sum(axis=0)
    shares = {
        f"{short}_over_time": np.asarray(steps[f"allocated_{name}"]) / units[at]
        for at, (short, name) in enumerate(zip(("cpu", "mem", "gpu"), RESOURCES, strict=True))
    }
    full = np.flatnonzero(shares["cpu_over_time"] >= FULL_FRAC)
    met_s = steps["time_s"][full[0]] if len(full) else steps["until_s"][-1]
    return {"cpu_met_h": float(met_s) / SECONDS_PER_HOUR} | {
        name: share[::6].tolist() for name, share in shares.items()
    }


def of_mix(jobs: pl.DataFrame) -> pl.DataFrame:
    """Return the jobs of the task types of the mixes."""
    if lacking := [kind for kind in TYPES if kind != GNN and kind not in jobs["task_type"]]:
        raise BadUsage(f"the trace has no {', '.join(lacking)} job; the paper's mix draws all of them")
    return jobs.filter(pl.col("task_type").is_in(TYPES))


def populations(pool: Pool) -> dict[str, IntArray]:
    """Return the rows of the pool in each population; without GNN jobs in the pool there is only one."""
    kinds = np.array([entry.job.task_type for entry in pool.jobs])
    others = [kind for kind in TYPES if kind != GNN]
    if lacking := [kind for kind in others if kind not in kinds]:
        raise BadUsage(f"the pool has no {', '.join(lacking)} job; the paper's mix draws all of them")
    without = {WITHOUT: np.flatnonzero(np.isin(kinds, others))}
    return {WITH: np.flatnonzero(np.isin(kinds, TYPES)), **without} if GNN in kinds else without


def weights_of(gnn: str, mix: str = PAPER) -> Mapping[str, float]:
    """Return the weights of the task types in the mix of a population `with` or `without` GNN jobs."""
    return {kind: weight for kind, weight in MIXES[mix].items() if gnn == WITH or kind != GNN}


def drawn(
    pool: Pool, members: IntArray, mix: Mapping[str, float], rate_per_h: float, horizon_s: float, seed: int
) -> Arrivals:
    """Return Poisson arrivals of members of the pool in a mix of task types."""
    kinds = [pool.jobs[row].job.task_type for row in members.tolist()]
    rng = np.random.default_rng(seed)
    draws = poisson_draws(kinds, rate_per_h=rate_per_h, horizon_s=horizon_s, rng=rng, mix=mix)
    return Arrivals(devices=ALL, seed=seed, at_s=draws.at_s, picks=members[draws.picks])


PERCENT: Final = 100.0
TOLERANCE: Final = 1.0 / 3.0
TRUTH: Final = "contention"
"""The slowdown model under which the goal and harm are judged."""


class Figure(NamedTuple):
    """A metric: its column in the rows of runs, and the gain that Yang, Hong and Tang claim.

    They claim it at 70 jobs/h, under FIFO and with their mix 5:15:15:65.
    """

    column: str
    paper_gain_pct: float | None = None


FIGURES: Final = {
    "deployed": Figure("deployed", 25.3),
    "completion_rate": Figure("complete_rate", 15.2),
    "gpu_allocated": Figure("gpu_allocated_frac", 7.2),
    "mem_allocated": Figure("mem_allocated_frac", 8.0),
    "cpu_allocated": Figure("cpu_allocated_frac", -2.0),
    "cpu_request": Figure("cpu_request_cores", -28.5),
    "completed": Figure("completed"),
    "gpu_used": Figure("gpu_used_frac"),
    "mem_used": Figure("mem_used_frac"),
    "cpu_used": Figure("cpu_used_frac"),
}
"""Metrics by name. Yang, Hong and Tang measure utilisation as the allocated share; we add the used share."""

PAPER_CPU_MET_H: Final = 2.0
"""Hour at which the baseline of Yang, Hong and Tang has allocated all CPU."""

LEAST_OF_ORACLE, MOST_KILLED, MOST_STRETCH_P99 = 0.5, 0, 1.05
"""The goal: share of the oracle's gain in finished jobs, jobs killed in all seeds, p99 of stretch."""

LEVELS: Final = (
    "deployed", "completed", "complete_rate", "cpu_allocated_frac", "mem_allocated_frac", "gpu_allocated_frac",
)  # fmt: skip
HARM: Final = ("killed", "stretched_share", "stretch_p99", "stretch_mean", "wait_mean_s", "killed_gpu_h")


def claim_rows(runs: pl.DataFrame) -> list[Row]:
    """Return one row per metric, arm (except `requested`) and place: the gain over `requested`.

    Columns: `requested` and `found` are the means over seeds of the baseline and of the arm. `gain_pct` is the relative
    gain, and `of_oracle` the gain divided by the oracle's; each has a 95 % interval, paired by seed. `paper_gain_pct`
    is the claimed gain; `within_third`: the gain misses it by at most a third.
    """
    return [
        {**place, "seeds": len(arms[REQUESTED]["completed"]), "figure": name, "arm": arm, **_claim(figure, arm, arms)}
        for place, arms in paired(runs, PLACE)
        for name, figure in FIGURES.items()
        if figure.column in arms[REQUESTED]
        for arm in arms
        if arm != REQUESTED
    ]


def _claim(figure: Figure, arm: str, arms: Values) -> Row:
    base, own = arms[REQUESTED][figure.column], arms[arm][figure.column]
    relative = gain_of(arms, arm, figure.column)
    return {
        "paper_gain_pct": figure.paper_gain_pct,
        "requested": float(np.mean(base)),
        "found": float(np.mean(own)),
        **relative.columns("gain_pct"),
        **share_of_oracle(arms, arm, figure.column).columns("of_oracle"),
        "within_third": None
        if (stated := figure.paper_gain_pct) is None
        else abs(relative.value - stated) <= abs(stated) * TOLERANCE,
    }


def bottleneck_rows(runs: pl.DataFrame) -> list[Row]:
    """Return the hour at which each arm had allocated 95 % of the CPU, next to the published baseline's hour."""
    rows = level_rows(runs, ("cpu_met_h",))
    return [
        {name: row[name] for name in (*PLACE, "seeds", ARM)}
        | {"paper_h": PAPER_CPU_MET_H if row[ARM] == REQUESTED else None}
        | {name: value for name, value in row.items() if name.startswith("cpu_met_h")}
        for row in rows
    ]


def level_rows(runs: pl.DataFrame, columns: Sequence[str] = LEVELS) -> list[Row]:
    """Return one row per place and arm: each column's mean over seeds, with its interval."""
    rows: list[Row] = []
    for place, arms in paired(runs, PLACE):
        for arm, values in arms.items():
            row: Row = {**place, "seeds": len(values["completed"]), ARM: arm}
            for column in (column for column in columns if column in values):
                row |= mean(values[column]).columns(column)
            rows.append(row)
    return rows


def gain_of(arms: Values, arm: str, column: str) -> Interval:
    """Return the relative gain of an arm over the arm `requested` in one column, in percent, with its interval."""
    return ratio(arms[arm][column], arms[REQUESTED][column]).scaled(PERCENT, less=1.0)


def share_of_oracle(arms: Values, arm: str, column: str) -> Interval:
    """Return an arm's gain as a share of the oracle's gain; NaN if the interval of the oracle's gain includes zero."""
    if ORACLE not in arms:
        return NOTHING
    base = arms[REQUESTED][column]
    whole = mean(arms[ORACLE][column] - base)
    if not (whole.low > 0.0 or whole.high < 0.0):
        return NOTHING
    return ratio(arms[arm][column] - base, arms[ORACLE][column] - base)


def goal_rows(runs: pl.DataFrame, arm: str) -> list[Row]:
    """Return three rows for an arm in each place under contention, one for each part of the goal.

    Columns: `asked` is the bound. `found` is the mean over seeds with its interval, or for kills the sum over seeds.
    `met` tells whether `found` is within the bound; its interval may exceed it.
    """
    rows: list[Row] = []
    for place, arms in paired(runs.filter(pl.col("truth") == TRUTH), PLACE):
        of = {**place, "seeds": len(arms[arm]["completed"]), ARM: arm}
        gained, killed = share_of_oracle(arms, arm, "completed"), float(arms[arm]["killed"].sum())
        stretch = mean(arms[arm]["stretch_p99"])
        rows += [
            {**of, "demand": "share of the oracle's gain in finished jobs, at least", "asked": LEAST_OF_ORACLE}
            | {**gained.columns("found"), "met": gained.value >= LEAST_OF_ORACLE},
            {**of, "demand": "jobs killed in all seeds, at most", "asked": MOST_KILLED}
            | {"found": killed, "met": killed <= MOST_KILLED},
            {**of, "demand": "p99 of stretch, at most", "asked": MOST_STRETCH_P99}
            | {**stretch.columns("found"), "met": stretch.value <= MOST_STRETCH_P99},
        ]
    return rows
