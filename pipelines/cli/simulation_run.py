"""What `taut simulate` was asked, put together: jobs, cluster, order, outages, advice; and the rows that come of it.

No option is declared here. Called by `pipelines.cli.simulation`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pipelines.cli.energy_run import Metering
from pipelines.cli.opening import local_cut, opened, place_of
from pipelines.cli.options import GuardOption
from pipelines.cli.predictors import Asked, advisers
from pipelines.cli.remote import SETS_SURE_RUNS
from pipelines.cli.simulation_options import TruthOption
from pipelines.errors import BadUsage
from pipelines.lake.lake import Lake
from pipelines.simulation.aiming import Aiming
from pipelines.simulation.cluster_file import ClusterSpec, cluster_file, outage_file, paper_cluster, recorded_cluster
from pipelines.simulation.engine.arrivals import SECONDS_PER_HOUR
from pipelines.simulation.engine.simulator import PAPER_HORIZON_S
from pipelines.simulation.engine.workload import NO_OUTAGES, Outages
from pipelines.simulation.job_pool import Pool, job_pool, recorded_pool
from pipelines.simulation.results_folder import fresh_folder
from pipelines.simulation.simulate import simulate, simulate_recorded
from pipelines.simulation.simulation_folder import keeping, write_rows
from pipelines.simulation.simulation_rows import Row, averaged
from pipelines.simulation.simulation_settings import PAPER_RATE_PER_H, OutageRate, SimulationSettings
from pipelines.simulation.submissions import submissions
from scheduler_core.discipline import Discipline
from scheduler_core.errors import BadInput
from scheduler_core.placement import sharing_of
from scheduler_core.preemption import preempts
from scheduler_core.shrink import SURE_RUNS, ShrinkPolicy

MTTR_H: Final = 1.0
"""Mean hours until a failed machine is back, where only failures are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Which jobs of which lake, and on whose machines; None takes all, or the usual."""

    lake: Path | None
    trace: str | None
    cluster: str | None
    vc: str | None
    since: datetime | None
    until: datetime | None
    machines: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How the jobs arrive, and for how long."""

    rate: float | None
    mix: Sequence[str] | None
    replications: int | None
    hours: float | None
    warm_up_h: float
    recorded: bool

    def __post_init__(self) -> None:
        drawn = {"rate": self.rate, "mix": self.mix, "replications": self.replications}
        given = [f"--{name}" for name, value in drawn.items() if value]
        # Refused rather than left unheard.
        if self.recorded and given:
            raise BadUsage(f"found {', '.join(given)} beside --arrivals recorded; expected it with drawn ones only")

    @property
    def horizon_s(self) -> float:
        """Return the end of the simulation: recorded jobs run until all is done."""
        if self.hours is not None:
            return self.hours * SECONDS_PER_HOUR
        return math.inf if self.recorded else PAPER_HORIZON_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """When machines are away: as a file tells, or at a rate."""

    outages: Path | None
    mtbf_h: float | None
    mttr_h: float | None

    def __post_init__(self) -> None:
        if self.outages is not None and self.mtbf_h is not None:
            raise BadUsage("found both --outages and --mtbf-h, expected one of them")
        if self.mttr_h is not None and self.mtbf_h is None:
            raise BadUsage("found --mttr-h without --mtbf-h, expected both or neither")

    def of(self, cluster: ClusterSpec) -> Outages | OutageRate:
        """Return the outages of these machines."""
        if self.outages is not None:
            return outage_file(self.outages, cluster.machines)
        if self.mtbf_h is None:
            return NO_OUTAGES
        return OutageRate(mtbf_h=self.mtbf_h, mttr_h=MTTR_H if self.mttr_h is None else self.mttr_h)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advising:
    """Who shrinks the requests, how far, and what their runs become."""

    predictor: str | None
    token_file: Path | None
    offline: bool
    theta: float
    alpha0: float | None
    sure_runs: int | None
    guards: Sequence[GuardOption] | None
    truths: Sequence[TruthOption] | None

    def __post_init__(self) -> None:
        if self.sure_runs is not None and (self.predictor or "").startswith(("http://", "https://")):
            raise BadUsage(f"found --sure-runs beside a service, {SETS_SURE_RUNS}")

    @property
    def policy(self) -> ShrinkPolicy:
        """Return the parameters of Algorithm 1; the guards are the simulation's own."""
        sure_runs = SURE_RUNS if self.sure_runs is None else self.sure_runs
        return ShrinkPolicy(theta=self.theta, alpha0=self.alpha0, sure_runs=sure_runs)

    def name_for(self, pool: Pool, settings: SimulationSettings) -> str:
        """Return who predicts: as named, else the champions wherever a prediction is looked at."""
        usual = "champion" if any(pool.measured) or settings.needs_predictions else "none"
        return self.predictor or usual


def discipline_of(**rules: Any) -> Discipline:  # each as `Discipline` types it
    """Return the rules of a run; such as exclude one another are bad usage."""
    try:
        discipline = Discipline(**rules)
        preempts(discipline)
        sharing_of(discipline.placement, discipline.sharing)
    except BadInput as error:
        raise BadUsage(str(error)) from error
    return discipline


def simulated(
    chosen: Chosen,
    load: Load,
    discipline: Discipline,
    aiming: Aiming,
    failing: Failing,
    advising: Advising,
    metering: Metering,
    *,
    seed: int,
    out: Path | None,
    say: Callable[[str], None],
) -> list[Row]:
    """Simulate what was asked, keep every run in the folder `out`, say the assumptions, and return the rows."""
    kept = None if out is None else fresh_folder(out)
    with opened(chosen.lake, chosen.trace) as (source, trace):
        pool, job_notes = _pool(source, trace, chosen, recorded=load.recorded)
        cluster = _cluster(source, trace, chosen, recorded=load.recorded)
    first_ts = pool.jobs[0].job.submit_ts if load.recorded else None
    settings = SimulationSettings(
        rate_per_h=load.rate or PAPER_RATE_PER_H,
        mix=_weights(load.mix or []),
        horizon_s=load.horizon_s,
        warm_up_s=load.warm_up_h * SECONDS_PER_HOUR,
        seed=seed,
        replications=load.replications or 1,
        cluster=cluster,
        discipline=discipline,
        aiming=aiming,
        outages=failing.of(cluster),
        truths=[each.value for each in advising.truths or TruthOption],
        guards=[each.value for each in advising.guards or [GuardOption.USAGE]],
        shrink_policy=advising.policy,
        site=metering.site(cluster, first_ts),
    )
    asked = Asked(
        pool=pool,
        settings=settings,
        place=place_of(chosen.lake),
        offline=advising.offline,
        token_file=advising.token_file,
    )
    who = advisers(advising.name_for(pool, settings), asked)
    notes = [*job_notes, *who.notes, *metering.notes()]
    keep = None if kept is None else keeping(kept, pool, settings, [*settings.notes(), *notes])
    run = simulate_recorded if load.recorded else simulate
    result = run(pool, who.scales, settings, keep=keep)
    notes = [*notes, *result.notes]
    if kept is not None:
        notes.append(f"written: {write_rows(kept, result.rows, notes)}")
    for note in notes:
        say(note)
    return averaged(result.rows) if settings.replications > 1 else result.rows


def _pool(source: Lake, trace: str, chosen: Chosen, *, recorded: bool) -> tuple[Pool, list[str]]:
    """Return the jobs to simulate, and what has to be said of them."""
    jobs, usage = (source.table(table, trace, chosen.cluster).collect() for table in ("jobs", "usage"))
    zone = source.manifest(trace).zone
    since, until = local_cut(chosen.since, zone), local_cut(chosen.until, zone)
    found = submissions(jobs, since=since, until=until, vc=chosen.vc)
    return (recorded_pool(found.jobs, usage), found.notes()) if recorded else (job_pool(found.jobs, usage), [])


def _cluster(source: Lake, trace: str, chosen: Chosen, *, recorded: bool) -> ClusterSpec:
    """Return the machines asked for: the paper's, the trace's, or a file's."""
    asked = ("machines" if recorded else "paper") if chosen.machines is None else chosen.machines
    if not asked:
        raise BadUsage("--cluster-from '': found no name, expected paper, machines, or a TOML file of machines")
    if asked == "paper":
        return paper_cluster()
    if asked == "machines":
        return recorded_cluster(source.table("machines", trace, chosen.cluster).collect(), trace)
    return cluster_file(Path(asked))


def _weights(mix: Sequence[str]) -> Mapping[str, float] | None:
    """Read `ctr=65` into weights by task type."""
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
