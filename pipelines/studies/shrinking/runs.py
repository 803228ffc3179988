"""Runs of the shrinking studies: jobs of a population drawn in a mix of task types, simulated in every arm."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Final

import numpy as np
import polars as pl

from pipelines.errors import BadUsage
from pipelines.simulation.advice import REQUESTED, Advice
from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.engine.workload import NO_OUTAGES, SECONDS_PER_HOUR, poisson_draws
from pipelines.simulation.job_pool import Pool, one_instance_each
from pipelines.simulation.measures.series import series
from pipelines.simulation.paired_runs import Arrivals, paired_runs
from pipelines.simulation.reclaiming import Sized
from pipelines.simulation.settings import PAPER_MIX, SimulationSettings
from pipelines.simulation.shared.inputs import SHARED
from pipelines.simulation.simulate import ALL, KNOWN
from pipelines.simulation.workloads import gangs_of
from pipelines.studies.compare import ARM, compare
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
Population = tuple[str, str]
"""With or without GNN jobs; all devices, or only those of known memory."""

PLACE: Final = ("gnn", "devices", "rate_per_h", "truth")
"""Columns of runs that differ only in arm and seed. `truth` is the slowdown model that runs are simulated under."""

STEP_S: Final = 300.0
FULL_FRAC: Final = 0.95
"""Share of the CPU that must be allocated, on average over a step, for it to count as fully allocated."""


class Draw(StrEnum):
    """What one arrival is: a task with all its instances, or one instance; Yang, Hong and Tang do not say."""

    GANG = "gang"
    INSTANCE = "instance"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What every arm is simulated in: jobs and their populations, loads, the mix, and the settings of the cluster."""

    pool: Pool
    populations: Mapping[Population, IntArray]
    loads_per_h: Sequence[float]
    settings: SimulationSettings
    mix: str = PAPER
    draw: Draw = Draw.GANG

    def cases(self, seed: int) -> Iterator[tuple[str, float, Arrivals]]:
        """Yield (whether GNN jobs are drawn, load per hour, arrivals of the seed) for each population and load."""
        for (gnn, devices), members in self.populations.items():
            for rate in self.loads_per_h:
                arrivals = drawn(self.pool, members, weights_of(gnn, self.mix), rate, self.settings.horizon_s, seed)
                yield gnn, rate, replace(arrivals, devices=devices)


def run_arms(plan: Plan, advice: Advice, seeds: Sequence[int]) -> pl.DataFrame:
    """Simulate every arm in every population, load and slowdown model; return a row per run: `PLACE` and metrics."""
    return compare({REQUESTED: advice}, seeds, partial(_run, plan=plan))


def _run(advice: Advice, seed: int, *, plan: Plan) -> list[Row]:
    pool = plan.pool if plan.draw is Draw.GANG else one_instance_each(plan.pool)
    working = gangs_of(pool.frame)
    # A drawn job completes, even if the recorded job failed.
    gangs = replace(working, fails=np.zeros_like(working.fails))
    cases = list(plan.cases(seed))
    of = {id(arrivals): {"gnn": gnn, "devices": arrivals.devices, "rate_per_h": rate} for gnn, rate, arrivals in cases}
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


def populations(pool: Pool) -> dict[Population, IntArray]:
    """Return the rows of the pool in each population.

    Populations of known devices are left out if all devices are known, and any population that lacks a task type of
    its mix.
    """
    kinds = np.array([entry.job.task_type for entry in pool.jobs])
    others = [kind for kind in TYPES if kind != GNN]
    if lacking := [kind for kind in others if kind not in kinds]:
        raise BadUsage(f"the pool has no {', '.join(lacking)} job; the paper's mix draws all of them")
    devices = {ALL: np.ones(len(kinds), dtype=np.bool_)}
    if not all(pool.known):
        devices[KNOWN] = np.array(pool.known)
    rows: dict[Population, IntArray] = {}
    for name, known in devices.items():
        if set(others) <= set(kinds[known]):
            if GNN in kinds[known]:
                rows[WITH, name] = np.flatnonzero(np.isin(kinds, TYPES) & known)
            rows[WITHOUT, name] = np.flatnonzero(np.isin(kinds, others) & known)
    return rows


def weights_of(gnn: str, mix: str = PAPER) -> Mapping[str, float]:
    """Return the weights of the task types in the mix of a population `with` or `without` GNN jobs."""
    return {kind: weight for kind, weight in MIXES[mix].items() if gnn == WITH or kind != GNN}


def drawn(
    pool: Pool, members: IntArray, mix: Mapping[str, float] | None, rate_per_h: float, horizon_s: float, seed: int
) -> Arrivals:
    """Return Poisson arrivals of members of the pool in a mix of task types, or uniformly if `mix` is None."""
    kinds = [pool.jobs[row].job.task_type if mix else ALL for row in members.tolist()]
    rng = np.random.default_rng(seed)
    draws = poisson_draws(kinds, rate_per_h=rate_per_h, horizon_s=horizon_s, rng=rng, mix=mix)
    return Arrivals(devices=ALL, seed=seed, at_s=draws.at_s, picks=members[draws.picks], outages=NO_OUTAGES)
