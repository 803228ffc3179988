"""Run a simulation from the options of `taut simulate`: read the jobs, make the settings, simulate, return rows.

The options are declared in `pipelines.cli.simulation_options`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from pipelines.cli.metering import Metering
from pipelines.cli.options import GuardOption, local_cut, opened, place_of
from pipelines.cli.predictors import AdviceContext, advisers
from pipelines.cli.progress import compiling
from pipelines.cli.remote import SETS_SURE_RUNS
from pipelines.cli.reserving import Reserving
from pipelines.cli.simulation_options import Advising, Failing, Jobs, Load, Output, Rules, TruthOption
from pipelines.errors import BadUsage
from pipelines.lake.lake import Lake
from pipelines.simulation.cluster_file import ClusterSpec, cluster_file, outage_file, paper_cluster, recorded_cluster
from pipelines.simulation.conclusion import conclusion
from pipelines.simulation.engine.simulator import PAPER_HORIZON_S
from pipelines.simulation.engine.workload import NO_OUTAGES, SECONDS_PER_HOUR, Outages
from pipelines.simulation.job_pool import Pool, job_pool, one_instance_each, recorded_pool, submissions
from pipelines.simulation.results_folder import fresh_folder, keeping, write_rows
from pipelines.simulation.rows import Row, averaged
from pipelines.simulation.settings import PAPER_RATE_PER_H, Aiming, OutageRate, SimulationSettings
from pipelines.simulation.simulate import simulate, simulate_recorded
from scheduler_core.errors import BadInput
from scheduler_core.placement import sharing_of
from scheduler_core.queueing import Discipline
from scheduler_core.shrink import SURE_RUNS, ShrinkPolicy

MTTR_H: Final = 1.0
"""Default of --mttr-h: mean hours until a failed machine is up again."""


def simulated(
    jobs: Jobs,
    load: Load,
    rules: Rules,
    advising: Advising,
    reserving: Reserving,
    failing: Failing,
    metering: Metering,
    output: Output,
    *,
    say: Callable[[str], None],
) -> tuple[list[Row], str]:
    """Simulate as the options say; write runs to `output.out` if given, print notes, return rows and a conclusion."""
    recorded = _is_recorded(load)
    discipline = discipline_of(rules)
    policy = _shrink_policy(advising)
    kept = None if output.out is None else fresh_folder(output.out)
    with opened(jobs.lake, jobs.trace) as (source, trace):
        pool, job_notes = _pool(source, trace, jobs, recorded=recorded)
        if load.arrivals == "instances":
            pool, job_notes = one_instance_each(pool), [*job_notes, "each arrival is one instance of a measured job"]
        cluster = _cluster(source, trace, jobs.cluster, rules.cluster_from, recorded=recorded)
    truths = advising.truth or [each for each in TruthOption if each is not TruthOption.SHARED]
    first_ts = pool.jobs[0].job.submit_ts if recorded else None
    settings = SimulationSettings(
        rate_per_h=load.rate or PAPER_RATE_PER_H,
        mix=_weights(load.mix or []),
        horizon_s=_horizon_s(load, recorded=recorded),
        warm_up_s=load.warm_up_h * SECONDS_PER_HOUR,
        seed=output.seed,
        replications=load.replications or 1,
        cluster=cluster,
        discipline=discipline,
        aiming=Aiming(target=rules.target, popularity=rules.popularity),
        outages=_outages(failing, cluster),
        slowdown_models=[each.value for each in truths],
        shared=reserving.settings(shared=TruthOption.SHARED in truths),
        guards=[each.value for each in advising.guard or [GuardOption.USAGE]],
        shrink_policy=policy,
        site=metering.site(cluster, first_ts),
    )
    usual = "champion" if any(pool.measured) or settings.needs_predictions else "none"
    context = AdviceContext(
        pool=pool,
        settings=settings,
        place=place_of(jobs.lake),
        offline=advising.offline,
        token_file=advising.token_file,
    )
    found = advisers(advising.predictor or usual, context)
    notes = [*job_notes, *found.notes, *metering.notes()]
    keep = None if kept is None else keeping(kept, pool, settings, [*settings.notes(), *notes])
    run = simulate_recorded if recorded else simulate
    with compiling() if TruthOption.SHARED in truths else nullcontext():
        result = run(pool, found.scales, settings, predictor=found.predictor, keep=keep)
    notes = [*notes, *result.notes]
    if kept is not None:
        notes.append(f"written: {write_rows(kept, result.rows, notes)}")
    for note in notes:
        say(note)
    rows = averaged(result.rows) if settings.replications > 1 else result.rows
    return rows, conclusion(result.rows)


def discipline_of(rules: Rules) -> Discipline:
    """Return the discipline (queue policy, placement and related rules) that the options describe."""
    try:
        discipline = Discipline(
            policy=rules.policy,
            placement=rules.placement,
            sharing=rules.sharing,
            aging=rules.aging,
            overtakes=rules.overtakes,
            backfill=rules.backfill,
            preempt=rules.preempt,
            restart_cost_s=rules.restart_cost_s,
            quantum_s=rules.quantum_s,
            match_gpu_type=rules.match_gpu_type,
        )
        discipline.preempts()
        sharing_of(discipline.placement, discipline.sharing)
    except BadInput as error:
        raise BadUsage(str(error)) from error
    return discipline


def _is_recorded(load: Load) -> bool:
    """Return whether arrivals are recorded; if so, raise BadUsage for options of drawn arrivals."""
    recorded = load.arrivals == "recorded"
    drawn = {"rate": load.rate, "mix": load.mix, "replications": load.replications}
    given = [f"--{name}" for name, value in drawn.items() if value]
    if recorded and given:
        raise BadUsage(f"found {', '.join(given)} with --arrivals recorded; expected drawn arrivals with it")
    return recorded


def _horizon_s(load: Load, *, recorded: bool) -> float:
    """Return the end of the simulation; by default a simulation of recorded arrivals ends when all jobs have ended."""
    if load.hours is not None:
        return load.hours * SECONDS_PER_HOUR
    return math.inf if recorded else PAPER_HORIZON_S


def _shrink_policy(advising: Advising) -> ShrinkPolicy:
    """Return the parameters of Algorithm 1, except the guard, which differs between arms."""
    if advising.sure_runs is not None and (advising.predictor or "").startswith(("http://", "https://")):
        raise BadUsage(f"found --sure-runs with a service, {SETS_SURE_RUNS}")
    sure_runs = SURE_RUNS if advising.sure_runs is None else advising.sure_runs
    return ShrinkPolicy(theta=advising.theta, alpha0=advising.alpha0, sure_runs=sure_runs)


def _outages(failing: Failing, cluster: ClusterSpec) -> Outages | OutageRate:
    """Return the outages of the file if given, else the rate of outages, else no outages."""
    if failing.outages is not None and failing.mtbf_h is not None:
        raise BadUsage("found both --outages and --mtbf-h, expected one of them")
    if failing.mttr_h is not None and failing.mtbf_h is None:
        raise BadUsage("found --mttr-h without --mtbf-h, expected both or neither")
    if failing.outages is not None:
        return outage_file(failing.outages, cluster.machines)
    if failing.mtbf_h is None:
        return NO_OUTAGES
    return OutageRate(mtbf_h=failing.mtbf_h, mttr_h=MTTR_H if failing.mttr_h is None else failing.mttr_h)


def _pool(source: Lake, trace: str, jobs: Jobs, *, recorded: bool) -> tuple[Pool, list[str]]:
    """Return the pool of jobs to simulate, and notes on it."""
    table, usage = (source.table(name, trace, jobs.cluster).collect() for name in ("jobs", "usage"))
    zone = source.manifest(trace).zone
    since, until = local_cut(jobs.since, zone), local_cut(jobs.until, zone)
    found = submissions(table, since=since, until=until, vc=jobs.vc)
    return (recorded_pool(found.jobs, usage), found.notes()) if recorded else (job_pool(found.jobs, usage), [])


def _cluster(source: Lake, trace: str, cluster: str | None, machines: str | None, *, recorded: bool) -> ClusterSpec:
    """Return the machines in the experiments of Yang, Hong and Tang, the machines of the trace, or those in a file."""
    named = ("machines" if recorded else "paper") if machines is None else machines
    if not named:
        raise BadUsage("--cluster-from '': found no name, expected paper, machines, or a TOML file of machines")
    if named == "paper":
        return paper_cluster()
    if named == "machines":
        return recorded_cluster(source.table("machines", trace, cluster).collect(), trace)
    return cluster_file(Path(named))


def _weights(mix: Sequence[str]) -> Mapping[str, float] | None:
    """Parse entries such as `ctr=65` to weights by task type; None without entries."""
    weights = {}
    for entry in mix:
        name, _, weight = entry.partition("=")
        try:
            weights[name] = float(weight)
        except ValueError:
            raise BadUsage(f"--mix {entry}: expected a task type and its weight, as ctr=65") from None
        if not (name and 0.0 <= weights[name] < math.inf):
            raise BadUsage(f"--mix {entry}: expected a task type and a weight of at least 0, as ctr=65")
    if weights and not sum(weights.values()):
        raise BadUsage("--mix: found no weight above 0; expected at least one")
    return weights or None
