"""`taut simulate`: a trace's jobs on a cluster, with and without shrinking, drawn or as recorded.

No logic beyond reading options and writing rows. Called by `pipelines.cli`, which registers the command.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from pipelines.cli import simulation_options as options
from pipelines.cli.options import Cluster, Format, FormatOption, Lake, Offline, Seed, Trace, emit, say

if TYPE_CHECKING:
    from datetime import datetime

    from pipelines.cluster_file import ClusterSpec
    from pipelines.job_pool import Pool
    from pipelines.lake import Lake as LakeOfTables
    from pipelines.simulation_settings import OutageRate, SimulationSettings
    from scheduler_core.workload import Outages

HOURS: Final = 12.0
RATE_PER_H: Final = 70.0
MTTR_H: Final = 1.0


def simulate(  # one parameter for each option
    lake: Lake = None,
    trace: Trace = None,
    cluster: Cluster = None,
    vc: options.Vc = None,
    since: options.Since = None,
    until: options.Until = None,
    arrivals: options.Arrivals = options.ArrivalsOption.DRAWN,
    rate: options.Rate = None,
    mix: options.Mix = None,
    replications: options.Replications = None,
    hours: options.Hours = None,
    warm_up_h: options.WarmUpH = 0.0,
    cluster_from: options.ClusterFrom = None,
    match_gpu_type: options.MatchGpuType = False,
    policy: options.Policy = options.QueueOption.FIFO,
    placement: options.PlacementChoice = options.PlacementOption.BEST_FIT,
    aging: options.Aging = 0.0,
    overtakes: options.Overtakes = None,
    backfill: options.Backfill = options.BackfillOption.NONE,
    preempt: options.Preempt = None,
    checkpoint_s: options.CheckpointS = 0.0,
    quantum_s: options.QuantumS = 600.0,
    predictor: options.Predictor = None,
    offline: Offline = False,
    theta: options.Theta = 0.05,
    guard: options.Guards = None,
    truth: options.Truths = None,
    mtbf_h: options.MtbfH = None,
    mttr_h: options.MttrH = None,
    outages: options.OutageFile = None,
    seed: Seed = 0,
    out: options.Out = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Simulate a trace's jobs on a cluster, with and without shrinking, under the same arrivals.

    Jobs are drawn from those that were measured, or arrive as the trace recorded them.
    """
    from pipelines.cli.opening import local_cut, opened, place_of
    from pipelines.cli.predictors import Asked, advisers
    from pipelines.simulate import simulate as draw
    from pipelines.simulate import simulate_recorded
    from pipelines.simulation_folder import fresh_folder, keeping, write_rows
    from pipelines.simulation_rows import averaged, shown
    from pipelines.simulation_settings import SimulationSettings
    from scheduler_core.discipline import Discipline
    from scheduler_core.shrink import ShrinkPolicy

    recorded = arrivals is options.ArrivalsOption.RECORDED
    _check_kind(recorded, rate=rate, mix=mix, replications=replications)
    kept = None if out is None else fresh_folder(out)
    with opened(lake, trace) as (source, name):
        window = (local_cut(since, name), local_cut(until, name), vc)
        pool, job_notes = _pool(source, name, cluster, window, recorded=recorded)
        machines = _cluster(cluster_from or ("machines" if recorded else "paper"), source, name, cluster)
    settings = SimulationSettings(
        rate_per_h=rate or RATE_PER_H,
        mix=_weights(mix),
        horizon_s=3600.0 * (hours or (math.inf if recorded else HOURS)),
        warm_up_s=3600.0 * warm_up_h,
        seed=seed,
        replications=replications or 1,
        cluster=machines,
        discipline=Discipline(
            policy=policy.value,
            placement=placement.value,
            aging=aging,
            overtakes=overtakes,
            backfill=backfill.value,
            preempt=preempt,
            checkpoint_s=checkpoint_s,
            quantum_s=quantum_s,
            match_gpu_type=match_gpu_type,
        ),
        outages=_outages(outages, mtbf_h, mttr_h, machines),
        truths=[each.value for each in truth or options.TruthOption],
        guards=[each.value for each in guard or [options.GuardOption.USAGE]],
        shrink_policy=ShrinkPolicy(theta=theta),
    )
    who = advisers(
        predictor or _usual_predictor(pool, settings),
        Asked(pool=pool, settings=settings, place=place_of(lake), offline=offline),
    )
    notes = [*job_notes, *who.notes]
    keep = None if kept is None else keeping(kept, pool, settings, [*settings.notes(), *notes])
    result = (simulate_recorded if recorded else draw)(pool, who.scales, settings, keep=keep)
    notes = [*notes, *result.notes]
    for note in notes:
        say(note)
    rows = averaged(result.rows) if settings.replications > 1 else result.rows
    if kept is not None:
        say(f"written: {write_rows(kept, result.rows, notes)}")
    emit(shown(rows) if form is Format.TABLE else rows, form)


def _check_kind(recorded: bool, **drawn_only: object) -> None:
    """Refuse options of drawn arrivals beside recorded ones, rather than leave them unheard."""
    from pipelines.errors import BadUsage

    given = [f"--{name}" for name, value in drawn_only.items() if value]
    if recorded and given:
        raise BadUsage(f"found {', '.join(given)} beside --arrivals recorded; expected it with --arrivals drawn only")


def _pool(
    source: "LakeOfTables",
    trace: str,
    cluster: str | None,
    window: "tuple[datetime | None, datetime | None, str | None]",
    *,
    recorded: bool,
) -> "tuple[Pool, list[str]]":
    """Return the jobs to simulate, and what has to be said of them."""
    from pipelines.job_pool import job_pool, recorded_pool
    from pipelines.submissions import submissions

    since, until, vc = window
    jobs, usage = (source.table(table, trace, cluster).collect() for table in ("jobs", "usage"))
    found = submissions(jobs, since=since, until=until, vc=vc)
    return (recorded_pool(found.jobs, usage), found.notes()) if recorded else (job_pool(found.jobs, usage), [])


def _cluster(asked: str, source: "LakeOfTables", trace: str, cluster: str | None) -> "ClusterSpec":
    """Return the machines asked for: the paper's, the trace's, or a file's."""
    from pipelines.cluster_file import cluster_file, paper_cluster, recorded_cluster

    if asked == "paper":
        return paper_cluster()
    if asked == "machines":
        return recorded_cluster(source.table("machines", trace, cluster).collect(), trace)
    return cluster_file(Path(asked))


def _outages(
    file: Path | None, mtbf_h: float | None, mttr_h: float | None, cluster: "ClusterSpec"
) -> "Outages | OutageRate":
    from pipelines.errors import BadUsage
    from pipelines.outage_file import outage_file
    from pipelines.simulation_settings import OutageRate
    from scheduler_core.workload import NO_OUTAGES

    if file is not None and mtbf_h is not None:
        raise BadUsage("found both --outages and --mtbf-h, expected one of them")
    if mttr_h is not None and mtbf_h is None:
        raise BadUsage("found --mttr-h without --mtbf-h, expected both or neither")
    if file is not None:
        return outage_file(file, cluster.machines)
    return NO_OUTAGES if mtbf_h is None else OutageRate(mtbf_h=mtbf_h, mttr_h=MTTR_H if mttr_h is None else mttr_h)


def _usual_predictor(pool: "Pool", settings: "SimulationSettings") -> str:
    """Return who predicts where nobody is named: the champions, wherever a prediction is looked at."""
    return "champion" if any(pool.measured) or settings.needs_predictions else "none"


def _weights(mix: list[str] | None) -> dict[str, float] | None:
    """Read `ctr=65` into weights by task type."""
    from pipelines.errors import BadUsage

    weights = {}
    for entry in mix or []:
        name, _, weight = entry.partition("=")
        try:
            weights[name] = float(weight)
        except ValueError:
            raise BadUsage(f"--mix {entry}: expected a task type and its weight, as ctr=65") from None
        if not (name and 0.0 <= weights[name] < float("inf")):
            raise BadUsage(f"--mix {entry}: expected a task type and a weight of at least 0, as ctr=65")
    if weights and not sum(weights.values()):
        raise BadUsage("--mix: found no weight above 0; expected at least one")
    return weights or None


def register(app: typer.Typer) -> None:
    """Add this file's command to the app."""
    app.command()(simulate)
