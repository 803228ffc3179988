"""Every arm under every truth and the same arrivals: the columns of each run put together, run, and measured.

Which arrivals and whose advice is decided in `simulate`. Called by it and by the experiments.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pipelines.simulation.advice import REQUESTED, Advice
from pipelines.simulation.aiming import workload_target
from pipelines.simulation.energy.accounting import EnergyAccount
from pipelines.simulation.energy.site import AT_ONCE
from pipelines.simulation.energy.slack import as_submitted, held_back
from pipelines.simulation.engine.arrivals import SECONDS_PER_HOUR
from pipelines.simulation.engine.outages import draw_outages
from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.engine.simulator import simulate as run_cluster
from pipelines.simulation.engine.workload import Outages, Workload
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.measures.fragmentation_course import mean_fragmented_gpus
from pipelines.simulation.measures.metrics import Metrics, Uses, summarise
from pipelines.simulation.simulation_settings import SimulationSettings
from pipelines.simulation.workloads import Gangs, Starts, arriving, as_requested, predicted_times, starts_under, uses_of
from scheduler_core.target import TargetWorkload
from scheduler_core.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """What every arm is run under: job `picks[i]` of the pool arrives at `at_s[i]`, while machines are away."""

    devices: str
    seed: int
    at_s: FloatArray
    picks: IntArray
    outages: Outages


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One arm under one truth, run; `uses` are those of the workload's jobs.

    `target` is what fragmentation is measured against where GPUs are shared by devices: all jobs of the run at their
    requests, whatever a placement aims at; `fragmented_gpus` is its mean, see `_fragmented_gpus`. Else both are None.
    `shift` is how jobs were let into the queue, `energy` what the run came to where a site is told.
    """

    arm: str
    truth: str
    arrivals: Arrivals
    schedule: Schedule
    uses: Uses
    metrics: Metrics
    target: TargetWorkload | None = None
    fragmented_gpus: float | None = None
    shift: str = AT_ONCE
    energy: EnergyAccount | None = None


Keep = Callable[[Run], None]
"""Is shown every run before it is forgotten."""


def paired_runs(
    pool: Pool,
    gangs: Gangs,
    advice: Advice,
    truths: Sequence[str],
    arrivals: Sequence[Arrivals],
    settings: SimulationSettings,
) -> Iterator[Run]:
    """Run, for each set of arrivals and each truth, the arm `requested` and those of `advice`, in that order.

    What becomes of a job is settled once for each arm and truth, however often it arrives. At the full request every
    truth is the recorded run: `requested` is run once, and answers for all of them. Where jobs may be held, each is run
    under every shift of the site, at once first.
    """
    shifts = (AT_ONCE,) if settings.site is None else settings.site.shifts
    starts = _starts(pool, gangs, advice, truths)
    uses = uses_of(pool.frame, gangs, pool.measured)
    for each in arrivals:
        run = partial(_run, gangs=gangs, uses=uses, arrivals=each, settings=settings)
        requested = [run(REQUESTED, truths[0], starts[REQUESTED, truths[0]], shift) for shift in shifts]
        for truth in truths:
            for arm in dict.fromkeys([REQUESTED, *advice]):
                if arm == REQUESTED:
                    yield from (replace(each, truth=truth) for each in requested)
                else:
                    yield from (run(arm, truth, starts[arm, truth], shift) for shift in shifts)


def outages_until(settings: SimulationSettings, until_s: float, seed: int) -> Outages:
    """Return when machines are away: as told, or drawn for the time until `until_s` by a seed of their own."""
    rate = settings.outages
    if isinstance(rate, Outages):
        return rate
    # A stream of their own: with or without outages, the same seed draws the same arrivals.
    rng = np.random.default_rng([seed, 1])
    return draw_outages(
        len(settings.cluster.machines),
        between_s=rate.mtbf_h * SECONDS_PER_HOUR,
        repair_s=rate.mttr_h * SECONDS_PER_HOUR,
        horizon_s=until_s,
        rng=rng,
    )


def _starts(pool: Pool, gangs: Gangs, advice: Advice, truths: Sequence[str]) -> Mapping[tuple[str, str], Starts]:
    answers = advice.get(REQUESTED)
    requested = as_requested(gangs, None if answers is None else predicted_times(answers))
    starts = {(REQUESTED, truth): requested for truth in truths}
    for arm, given in advice.items():
        if arm != REQUESTED:
            starts |= {(arm, truth): starts_under(truth, pool.jobs, gangs, given) for truth in truths}
    return starts


def _run(
    arm: str,
    truth: str,
    starts: Starts,
    shift: str,
    *,
    gangs: Gangs,
    uses: Uses,
    arrivals: Arrivals,
    settings: SimulationSettings,
) -> Run:
    workload = arriving(gangs, starts, arrivals.at_s, arrivals.picks)
    schedule = _schedule(workload, arrivals, settings, shift)
    drawn = Uses(mean=uses.mean[arrivals.picks])
    metrics = summarise(schedule, uses=drawn, warm_up_s=settings.warm_up_s)
    run = Run(arm=arm, truth=truth, arrivals=arrivals, schedule=schedule, uses=drawn, metrics=metrics, shift=shift)
    if settings.site is not None:
        energy = settings.site.account(schedule, drawn, from_s=settings.warm_up_s, outages=arrivals.outages)
        run = replace(run, energy=energy)
    if settings.sharing == "pooled":
        return run
    ran = schedule.workload
    target = workload_target(ran, ran.request_units, typed=settings.discipline.match_gpu_type)
    return replace(run, target=target, fragmented_gpus=_fragmented_gpus(schedule, target, settings))


def _schedule(workload: Workload, arrivals: Arrivals, settings: SimulationSettings, shift: str) -> Schedule:
    """Run the cluster; jobs that were held come late, and are told from their submission again."""
    held, order = workload, None
    if settings.site is not None and shift != AT_ONCE:
        held, order = held_back(workload, settings.site.released_s(workload, shift))
    # Placements that draw have a stream of their own in every replication.
    discipline = replace(settings.discipline, seed=arrivals.seed)
    schedule = run_cluster(
        held,
        settings.cluster.machines,
        replace(discipline, placement=settings.aiming.placement(discipline, held)),
        horizon_s=settings.horizon_s,
        outages=arrivals.outages,
        engine=settings.engine,
    )
    return schedule if order is None else as_submitted(schedule, workload.arrive_s, order)


def _fragmented_gpus(schedule: Schedule, target: TargetWorkload, settings: SimulationSettings) -> float:
    """Return the mean from the end of the warm-up to the horizon, or to the last arrival where there is none.

    Without a horizon a few long runs may go on for long on an empty cluster: their time says nothing of placements.
    """
    last_s = float(schedule.workload.arrive_s[-1]) if len(schedule.workload) else 0.0
    endless = math.isinf(settings.horizon_s) and last_s > settings.warm_up_s
    return mean_fragmented_gpus(schedule, target, settings.warm_up_s, last_s if endless else schedule.end_s)
