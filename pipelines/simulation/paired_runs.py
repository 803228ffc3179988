"""Simulate and measure every arm under every slowdown model, all with the same arrivals."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pipelines.simulation.advice import REQUESTED, Advice, Sized
from pipelines.simulation.energy.account import EnergyAccount
from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.engine.simulator import simulate as run_cluster
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.measures.metrics import Metrics, Uses, summarise
from pipelines.simulation.measures.series import mean_fragmented_gpus
from pipelines.simulation.settings import SimulationSettings, workload_target
from pipelines.simulation.shared.inputs import SHARED, Load, load_of
from pipelines.simulation.workloads import Gangs, Starts, arriving, as_requested, predicted_times, starts_under, uses_of
from scheduler_core.types import FloatArray, IntArray

__all__ = ["Arrivals", "Run", "paired_runs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """The arrivals under which every arm runs: job `picks[i]` of the pool arrives at `at_s[i]` (n,)."""

    devices: str
    seed: int
    at_s: FloatArray
    picks: IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A finished simulation of one arm under one slowdown model, with its metrics.

    `fragmented_gpus` is the mean number of fragmented GPUs, see `_fragmented_gpus`; None if GPUs are pooled. `energy`
    is None without a site.
    """

    arm: str
    slowdown_model: str
    arrivals: Arrivals
    schedule: Schedule
    uses: Uses
    metrics: Metrics
    fragmented_gpus: float | None = None
    energy: EnergyAccount | None = None


Keep = Callable[[Run], None]
"""A function that is called with every run before the run is dropped from memory."""


def paired_runs(
    pool: Pool,
    gangs: Gangs,
    advice: Advice,
    models: Sequence[str],
    arrivals: Sequence[Arrivals],
    settings: SimulationSettings,
    shared_arms: Mapping[str, Sized] | None = None,
) -> Iterator[Run]:
    """Yield a run for each set of arrivals, slowdown model and arm; first `requested`, then the arms of `advice`.

    A job's run time is computed once per arm and model, however often the job arrives. The arm `requested` is simulated
    only once and yielded for every model, because at the full request all models give the recorded run. The slowdown
    model `shared` has the arms `shared_arms`, simulated by its own engine; their first is `requested`.
    """
    answers, sized = advice.get(REQUESTED), [arm for arm in advice if arm != REQUESTED]
    as_recorded = as_requested(gangs, None if answers is None else predicted_times(answers))
    starts = {
        (arm, model): starts_under(model, pool.jobs, gangs, advice[arm])
        for model in models
        for arm in sized
        if model != SHARED
    }
    uses = uses_of(pool.frame, gangs, pool.measured)
    load = load_of(pool.jobs, gangs) if shared_arms else None
    for each in arrivals:
        run = partial(_run, gangs=gangs, uses=uses, arrivals=each, settings=settings)
        requested: Run | None = None
        for model in models:
            if model == SHARED and shared_arms and load is not None:
                for arm, reserved in shared_arms.items():
                    yield _run_shared(arm, reserved, load, gangs, uses, each, settings)
                continue
            requested = requested or run(REQUESTED, model, as_recorded)
            yield replace(requested, slowdown_model=model)
            yield from (run(arm, model, starts[arm, model]) for arm in sized)


def _run(
    arm: str,
    model: str,
    starts: Starts,
    *,
    gangs: Gangs,
    uses: Uses,
    arrivals: Arrivals,
    settings: SimulationSettings,
) -> Run:
    workload = arriving(gangs, starts, arrivals.at_s, arrivals.picks)
    # The seed makes random placements differ between replications.
    schedule = run_cluster(
        workload,
        settings.cluster.machines,
        replace(settings.discipline, seed=arrivals.seed),
        horizon_s=settings.horizon_s,
        engine=settings.engine,
    )
    drawn = Uses(mean=uses.mean[arrivals.picks])
    energy, fragmented_gpus = None, None
    if settings.site is not None:
        energy = settings.site.account(schedule, drawn, from_s=settings.warm_up_s)
    if settings.sharing == "devices":
        fragmented_gpus = _fragmented_gpus(schedule, settings)
    return Run(
        arm=arm,
        slowdown_model=model,
        arrivals=arrivals,
        schedule=schedule,
        uses=drawn,
        metrics=summarise(schedule, uses=drawn, warm_up_s=settings.warm_up_s),
        fragmented_gpus=fragmented_gpus,
        energy=energy,
    )


def _run_shared(
    arm: str, sized: Sized, load: Load, gangs: Gangs, uses: Uses, arrivals: Arrivals, settings: SimulationSettings
) -> Run:
    # Imported here, because it loads compiled code, or compiles it for up to a minute.
    from pipelines.simulation.shared.run import simulate_shared

    ran = simulate_shared(
        arriving(gangs, sized.starts, arrivals.at_s, arrivals.picks),
        load.picked(arrivals.picks),
        settings.cluster.machines,
        sized.reserving.picked(arrivals.picks),
        variation=settings.shared.varies,
        discipline=settings.discipline,
        horizon_s=settings.horizon_s,
        seed=arrivals.seed,
    )
    drawn = Uses(mean=uses.mean[arrivals.picks], speed=ran.speed)
    return Run(
        arm=arm,
        slowdown_model=SHARED,
        arrivals=arrivals,
        schedule=ran.schedule,
        uses=drawn,
        metrics=summarise(ran.schedule, uses=drawn, warm_up_s=settings.warm_up_s),
        # This engine records no devices, so fragmentation is unknown.
        fragmented_gpus=None if settings.sharing == "pooled" else math.nan,
    )


def _fragmented_gpus(schedule: Schedule, settings: SimulationSettings) -> float:
    """Return the mean number of GPUs that are fragmented for the run's jobs, from the warm-up to the horizon.

    Without a horizon the mean ends at the last arrival, because later a few long runs may go on in an almost empty
    cluster, where placements make no difference.
    """
    target = workload_target(schedule.workload, typed=settings.discipline.match_gpu_type)
    last_s = float(schedule.workload.arrive_s[-1]) if len(schedule.workload) else 0.0
    endless = math.isinf(settings.horizon_s) and last_s > settings.warm_up_s
    return mean_fragmented_gpus(schedule, target, settings.warm_up_s, last_s if endless else schedule.end_s)
