"""Simulate a pool of jobs with and without shrinking, under the same arrivals; return result rows and notes."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from pipelines.errors import BadUsage
from pipelines.simulation.advice import REQUESTED, Scale, advice, shared_arms
from pipelines.simulation.energy.account import EnergyAccount, energy_figures
from pipelines.simulation.energy.site import Site
from pipelines.simulation.engine.workload import SECONDS_PER_HOUR, poisson_draws
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.measures.metrics import Metrics
from pipelines.simulation.paired_runs import Arrivals, Keep, Run, paired_runs
from pipelines.simulation.rows import (
    Row,
    assumed_note,
    finite,
    gains,
    prediction_notes,
    reclaimed_rows,
    recorded_notes,
    trace_of,
    type_notes,
    window_notes,
)
from pipelines.simulation.settings import SimulationSettings
from pipelines.simulation.shared.inputs import SHARED
from pipelines.simulation.workloads import Gangs, gangs_of, submitted_s
from scheduler_core.engine import effort_s, pays
from scheduler_core.types import RESOURCES, Predictor

__all__ = ["ALL", "KNOWN", "SimulationResult", "simulate", "simulate_recorded"]

ALL: Final = "all"
KNOWN: Final = "known"
NO_JOB_WAITED: Final = "no job waited in any run: placements can differ in fragmented_gpus only"
AS_RECORDED: Final = ("unchanged",)
"""Slowdown models used if no job of the pool was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """The results of a simulation as flat rows, with notes on assumptions.

    `rows` has one row per population (column `devices`: all jobs, or jobs on GPUs of known memory), seed, slowdown
    model and arm; `reclaimed` sums over the pool, one row per arm, resource and reason of the target.
    """

    rows: list[Row]
    reclaimed: list[Row]
    notes: list[str]


def simulate(
    pool: Pool,
    scales: Mapping[str, Scale],
    settings: SimulationSettings | None = None,
    *,
    predictor: Predictor | None = None,
    keep: Keep | None = None,
) -> SimulationResult:
    """Draw arrivals from the pool, and simulate the arms `requested`, `oracle` and one per entry of `scales`.

    Recommendations are computed once per job, at its recorded submission time. A drawn job always completes,
    even if it failed in the trace. If the GPU memory of some jobs is assumed, all arms run a second time without these
    jobs. Under the slowdown model `shared`, the arms of `reclaiming.shared_arms` run; `predictor` sizes newcomers in
    `reclaim_prior`.
    """
    settings = settings or SimulationSettings()
    if not np.isfinite(settings.horizon_s):
        raise BadUsage("simulate: found an infinite horizon with drawn arrivals, expected a finite number of hours")
    arrivals, notes = _drawn(pool, settings)
    gangs = gangs_of(pool.frame)
    working = replace(gangs, fails=np.zeros_like(gangs.fails))
    return _simulated(pool, working, scales, arrivals, settings, predictor, keep, notes, settings.rate_per_h)


def simulate_recorded(
    pool: Pool,
    scales: Mapping[str, Scale],
    settings: SimulationSettings,
    *,
    predictor: Predictor | None = None,
    keep: Keep | None = None,
) -> SimulationResult:
    """Run the pool's jobs at their recorded times, the first at 0 s, under the same arms as `simulate`.

    Jobs whose use was not measured run as recorded, with their full requests. If no job was measured, `requested` is
    the only arm.
    """
    gangs = gangs_of(pool.frame, gpus_per_machine=settings.cluster.most_gpus)
    _check_capacity(gangs, settings)
    at_s = submitted_s(pool.frame)
    arrivals = Arrivals(
        devices=ALL,
        seed=settings.seed,
        at_s=at_s,
        picks=np.arange(len(pool.jobs), dtype=np.int64),
    )
    notes = [*window_notes(pool, at_s, settings), *recorded_notes(pool, gangs)]
    return _simulated(pool, gangs, scales, [arrivals], settings, predictor, keep, notes, None)


def _simulated(
    pool: Pool,
    gangs: Gangs,
    scales: Mapping[str, Scale],
    arrivals: Sequence[Arrivals],
    settings: SimulationSettings,
    predictor: Predictor | None,
    keep: Keep | None,
    notes: Sequence[str],
    rate_per_h: float | None,
) -> SimulationResult:
    if settings.needs_predictions and not scales:
        raise BadUsage(
            f"simulate: {settings.needs_predictions} needs predicted run times and there is no predictor; expected "
            "--predictor champion, oracle or constant, or a policy that needs none, as fifo"
        )
    if SHARED in settings.slowdown_models and not all(pool.measured):
        raise BadUsage(
            f"simulate: the use of {pool.measured.count(False)} of {len(pool.jobs)} jobs is unknown, which --truth "
            f"{SHARED} needs; use --truth unchanged, or drawn arrivals of measured jobs"
        )
    given = advice(pool, scales)
    models = settings.slowdown_models if any(pool.measured) else AS_RECORDED
    arms = shared_arms(pool, gangs, given, settings, predictor) if SHARED in models else None
    jobs = sum(len(each.picks) for each in arrivals) * len(models) * len(given)
    if settings.engine == "auto" and pays(effort_s(jobs, len(settings.cluster.machines), settings.discipline)):
        settings = replace(settings, engine="compiled")
    common: Row = {
        "trace": trace_of(pool.jobs),
        "policy": str(settings.discipline.policy),
        "placement": str(settings.discipline.placement),
        "assumed_device_mem_gib": pool.assumed_device_mem_gib,
        "rate_per_h": rate_per_h,
    }
    rows: list[Row] = []
    requested: dict[tuple[int, str], _Base] = {}
    for run in paired_runs(pool, gangs, given, models, arrivals, settings, arms):
        # `paired_runs` yields the arm without shrinking first for every set of arrivals and slowdown model.
        base = requested.setdefault((id(run.arrivals), run.slowdown_model), _Base(run.metrics, run.energy))
        rows.append(_row(run, base, common, settings.site))
        if keep is not None:
            keep(run)
    waited = [row["wait_at_least_mean_s"] for row in rows]
    if settings.sharing == "devices" and rows and not any(waited):
        notes = [*notes, NO_JOB_WAITED]
    sized = {arm: answers for arm, answers in given.items() if arm != REQUESTED}
    return SimulationResult(
        rows=rows,
        reclaimed=reclaimed_rows(pool, sized),
        notes=[*settings.notes(), *type_notes(gangs, settings), *notes, *prediction_notes(given, settings)],
    )


class _Base(NamedTuple):
    """Metrics and energy of the arm `requested`, with which the other arms are compared."""

    metrics: Metrics
    energy: EnergyAccount | None


def _row(run: Run, base: _Base, common: Row, site: Site | None) -> Row:
    figures = {**asdict(run.metrics), **gains(run.metrics, base.metrics)}
    if run.fragmented_gpus is not None:
        figures["fragmented_gpus"] = run.fragmented_gpus
    where: Row = {
        "arm": run.arm,
        "truth": run.slowdown_model,
        "devices": run.arrivals.devices,
        "seed": run.arrivals.seed,
    }
    if site is not None and run.energy is not None and base.energy is not None:
        where |= {} if site.grid is None else {"zone": site.grid.zone, "pue": site.grid.pue}
        figures |= energy_figures(run.energy, run.metrics, base.energy, base.metrics, grid=site.grid is not None)
    return {**where, **common, **{name: finite(value) for name, value in figures.items()}}


def _drawn(pool: Pool, settings: SimulationSettings) -> tuple[list[Arrivals], list[str]]:
    """Draw the arrivals of each replication from all jobs, and from those of known GPU memory if some are unknown."""
    notes = [f"drawn arrivals: {settings.rate_per_h:g} jobs/h for {settings.horizon_s / SECONDS_PER_HOUR:g} h"]
    arrivals: list[Arrivals] = []
    known = np.array(pool.known, dtype=np.bool_)
    for devices, chosen in ((ALL, np.ones_like(known)), *(() if known.all() else ((KNOWN, known),))):
        members, mix = np.flatnonzero(chosen), settings.mix
        kinds = [pool.jobs[row].job.task_type for row in members.tolist()]
        lacking = ", ".join(sorted(kind for kind, weight in (mix or {}).items() if weight > 0.0 and kind not in kinds))
        if lacking and devices == ALL:
            raise BadUsage(f"simulate: the pool holds no {lacking} job; leave it out of the mix")
        if lacking:
            notes.append(f"devices={devices}: it holds no {lacking} job; left out of the mix")
        mix = None if mix is None else {kind: weight for kind, weight in mix.items() if kind in kinds}
        if not kinds or (mix is not None and not any(mix.values())):
            notes.append(f"devices={devices}: not run: no job is left")
            continue
        for seed in range(settings.seed, settings.seed + settings.replications):
            rng, horizon_s = np.random.default_rng(seed), settings.horizon_s
            draws = poisson_draws(kinds, rate_per_h=settings.rate_per_h, horizon_s=horizon_s, rng=rng, mix=mix)
            arrivals.append(Arrivals(devices=devices, seed=seed, at_s=draws.at_s, picks=members[draws.picks]))
    if not known.all():
        notes.append(f"{assumed_note(pool)}; devices={KNOWN} leaves them out")
    return arrivals, notes


def _check_capacity(gangs: Gangs, settings: SimulationSettings) -> None:
    """Raise BadUsage if jobs request a resource whose capacity the cluster does not state."""
    requested = np.asarray(gangs.request_units.any(axis=0))
    lacking = [name for name in settings.cluster.unstated if requested[RESOURCES.index(name)]]
    if lacking:
        raise BadUsage(
            f"simulate: the jobs request {' and '.join(lacking)}, which {settings.cluster.source} does not state; "
            "describe the machines in a file: --cluster-from FILE.toml"
        )
