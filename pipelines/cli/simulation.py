"""`taut simulate`: options for what matters most, and the run. A settings file has the rest.

Imported only when it is called.
"""

import math
from contextlib import nullcontext
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path

import numpy as np

from pipelines.cli.commands import options_from
from pipelines.cli.opening import champions
from pipelines.cli.options import FORM, OFFLINE, Format, InLake, Place, emit, local_cut, say
from pipelines.cli.progress import compiling
from pipelines.cli.simulation_settings import OPTIONS, Settings, read_settings
from pipelines.errors import BadUsage
from pipelines.lake.lake import Lake
from pipelines.options import option
from pipelines.simulation.advice import ConstantPredictor, oracle_of, scales_of
from pipelines.simulation.cluster_file import ClusterSpec, cluster_file, paper_cluster, recorded_cluster
from pipelines.simulation.energy.grid_columns import moment_of
from pipelines.simulation.energy.grid_files import zone_files
from pipelines.simulation.energy.power_file import power_file
from pipelines.simulation.energy.site import Site, power_notes, start_on
from pipelines.simulation.engine.simulator import PAPER_HORIZON_S
from pipelines.simulation.engine.workload import SECONDS_PER_HOUR
from pipelines.simulation.job_pool import Pool, job_pool, one_instance_each, recorded_pool, submissions
from pipelines.simulation.results_folder import fresh_folder, keeping, write_rows
from pipelines.simulation.rows import Row, averaged, conclusion, shown
from pipelines.simulation.settings import PAPER_RATE_PER_H, SimulationSettings
from pipelines.simulation.shared.inputs import SHARED, SharedSettings
from pipelines.simulation.simulate import simulate as simulate_drawn
from pipelines.simulation.simulate import simulate_recorded
from scheduler_core.errors import BadInput
from scheduler_core.placement import sharing_of
from scheduler_core.queueing import Discipline
from scheduler_core.reserve import ReservePolicy
from scheduler_core.shrink import SURE_RUNS, ShrinkPolicy
from scheduler_core.types import Predictor, Request

Given = options_from(Settings, OPTIONS)


def simulate(
    where: InLake,
    given: Given,  # type: ignore[valid-type]  # a class made here
    settings: Path | None = option(
        None, "TOML file of these and further settings (docs/simulate.md). Options override it."
    ),
    offline: bool = OFFLINE,
    out: Path | None = option(None, "New folder for every run's summary, event log and series."),
    form: Format = FORM,
) -> None:
    """Simulate a trace's jobs on a cluster, with and without shrinking, under the same arrivals.

    Jobs are drawn from those that were measured, or arrive as the trace recorded them.
    """
    rows, sentence = simulated(read_settings(settings, asdict(given)), where, offline=offline, out=out)
    emit(shown(rows) if form == "table" else rows, form)
    say(sentence)


def simulated(chosen: Settings, where: InLake, *, offline: bool, out: Path | None) -> tuple[list[Row], str]:
    """Simulate; write runs to `out` if given, print notes, return rows and a conclusion."""
    discipline, policy = discipline_of(chosen), _shrink_policy(chosen)
    kept = None if out is None else fresh_folder(out)
    with where.opened() as (source, name):
        pool, job_notes = _pool(source, name, chosen)
        if chosen.arrivals == "instances":
            pool, job_notes = one_instance_each(pool), [*job_notes, "each arrival is one instance of a measured job"]
        cluster = _cluster(source, name, chosen)
    settings = SimulationSettings(
        rate_per_h=chosen.rate or PAPER_RATE_PER_H,
        mix=chosen.mix or None,
        horizon_s=_horizon_s(chosen),
        warm_up_s=chosen.warm_up_h * SECONDS_PER_HOUR,
        seed=chosen.seed,
        replications=chosen.replications or 1,
        cluster=cluster,
        discipline=discipline,
        slowdown_models=chosen.truth,
        shared=_shared(chosen),
        guards=chosen.guard,
        shrink_policy=policy,
        site=_site(chosen, cluster, pool.jobs[0].job.submit_ts if chosen.recorded else None),
    )
    usual = "champion" if any(pool.measured) or settings.needs_predictions else "none"
    predictor, found = _predictor(chosen.predictor or usual, pool, where.place(), offline=offline)
    scales = {} if predictor is None else scales_of(predictor, pool, settings)
    notes = [*job_notes, *found]
    keep = None if kept is None else keeping(kept, pool, settings, [*settings.notes(), *notes])
    run = simulate_recorded if chosen.recorded else simulate_drawn
    with compiling() if SHARED in chosen.truth else nullcontext():
        result = run(pool, scales, settings, predictor=predictor, keep=keep)
    notes += result.notes
    notes += [] if kept is None else [f"written: {write_rows(kept, result.rows, notes)}"]
    for note in notes:
        say(note)
    rows = averaged(result.rows) if settings.replications > 1 else result.rows
    return rows, conclusion(result.rows)


def discipline_of(chosen: Settings) -> Discipline:
    """Return the discipline (queue policy, placement and related rules) that the settings describe."""
    names = "policy placement sharing aging overtakes backfill preempt restart_cost_s quantum_s match_gpu_type"
    try:
        discipline = Discipline(**{name: getattr(chosen, name) for name in names.split()})
        discipline.preempts()
        sharing_of(discipline.placement, discipline.sharing)
    except BadInput as error:
        raise BadUsage(str(error)) from error
    return discipline


def _horizon_s(chosen: Settings) -> float:
    """Return the end of the simulation; by default a simulation of recorded arrivals ends when all jobs have ended."""
    if chosen.hours is not None:
        return chosen.hours * SECONDS_PER_HOUR
    return math.inf if chosen.recorded else PAPER_HORIZON_S


def _shrink_policy(chosen: Settings) -> ShrinkPolicy:
    """Return the parameters of Algorithm 1, except the guard, which differs between arms."""
    sure_runs = SURE_RUNS if chosen.sure_runs is None else chosen.sure_runs
    return ShrinkPolicy(theta=chosen.theta, alpha0=chosen.alpha0, sure_runs=sure_runs)


def _shared(chosen: Settings) -> SharedSettings:
    """Return the settings of the slowdown model `shared`."""
    given = {
        "z": chosen.z,
        "probation_s": None if chosen.probation_min is None else 60.0 * chosen.probation_min,
    }
    policy = replace(ReservePolicy(), **{name: value for name, value in given.items() if value is not None})
    return SharedSettings(policy=policy, variation=chosen.variation or "default")


def _site(chosen: Settings, cluster: ClusterSpec, first_ts: float | None) -> Site | None:
    """Return power and grid of the cluster; None without `grid` and `power`.

    `first_ts` is the Unix time of the first recorded submission, None for drawn arrivals.
    """
    if chosen.grid is None and chosen.power is None:
        return None
    table = power_file(chosen.power)
    notes = power_notes(table, cluster.machines)
    if chosen.grid is None:
        return Site(table=table, start_ts=first_ts or 0.0, notes=tuple(notes))
    files = zone_files(chosen.grid, chosen.zone)
    grid = files.grid(table.pue if chosen.pue is None else chosen.pue)
    moment = None if chosen.grid_start is None else moment_of(chosen.grid_start, "grid_start")
    start_ts, start_note = start_on(grid, moment, first_ts)
    notes += [*files.notes, f"PUE {grid.pue:g}: in carbon and cost, not in kWh", start_note]
    return Site(table=table, grid=grid, start_ts=start_ts, notes=tuple(notes))


def _pool(source: Lake, trace: str, chosen: Settings) -> tuple[Pool, list[str]]:
    """Return the pool of jobs to simulate, and notes on it."""
    table, usage = (source.table(name, trace, chosen.cluster).collect() for name in ("jobs", "usage"))
    zone = source.manifest(trace).zone
    since, until = local_cut(chosen.since, zone), local_cut(chosen.until, zone)
    found = submissions(table, since=since, until=until, vc=chosen.vc)
    return (recorded_pool(found.jobs, usage), found.notes()) if chosen.recorded else (job_pool(found.jobs, usage), [])


def _cluster(source: Lake, trace: str, chosen: Settings) -> ClusterSpec:
    """Return the machines in the experiments of Yang, Hong and Tang, the machines of the trace, or those in a file."""
    named = chosen.cluster_from or ("machines" if chosen.recorded else "paper")
    if named == "paper":
        return paper_cluster()
    if named == "machines":
        return recorded_cluster(source.table("machines", trace, chosen.cluster).collect(), trace)
    return cluster_file(Path(named))


def _predictor(name: str, pool: Pool, place: Place, *, offline: bool) -> tuple[Predictor | None, tuple[str, ...]]:
    """Return a predictor by its name, None for `none`, and notes on it."""
    if name == "champion":
        found = champions(place, offline=offline)
        return found, _cut_notes(pool, max(bundle.card.until for bundle in found.bundles.values()))
    if name == "oracle":
        return oracle_of(pool), ("predictor oracle: run times and peak use are the recorded ones",)
    if name == "constant":
        run_s = float(np.median([entry.measured.run_s for entry in pool.jobs]))
        note = f"predictor constant: {run_s:g} s and no use for every job; requests shrink to the first candidate"
        return ConstantPredictor(run_s=run_s, peak=Request(cpu_cores=0.0, mem_gib=0.0, gpus=0.0)), (note,)
    return None, ()


def _cut_notes(pool: Pool, until: datetime) -> tuple[str, ...]:
    """Return a note on how many jobs were submitted before `until`, the end of the models' training data, if any."""
    early = sum(entry.job.submit_ts < until.timestamp() for entry in pool.jobs)
    if not early:
        return ()
    return (
        f"{early} of {len(pool.jobs)} jobs were submitted before the training cut ({until:%Y-%m-%d %H:%M} UTC); "
        "the models may have been trained on them; --since takes later ones only",
    )
