"""Cost study: cost of tardiness and energy of jobs with due dates, looking ahead against first-principle methods."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from pipelines.errors import BadUsage
from pipelines.studies.compare import ARM, Interval, compare, mean, ratio
from pipelines.studies.cost.bound import least_usd
from pipelines.studies.cost.simulation import (
    AHEAD,
    BASELINES,
    FASTEST,
    GREEDY,
    STRONGEST,
    Baseline,
    Policy,
    Site,
    decided_greedily,
    looks_ahead,
    simulate,
)
from pipelines.studies.cost.workload import GPUS_ON_A_NODE, Speeds, cluster, speeds_of, stretch, submitted
from pipelines.studies.energy import gavel_throughputs, recorded_hours
from pipelines.studies.recorded import in_a_row, recorded_jobs
from pipelines.studies.study import Context, Findings, Row, Study, energy_option, option, seed_option, seeds_option
from scheduler_core.planning.hourly import HOUR_S, HourlySeries
from scheduler_core.planning.lookahead import ITERATIONS
from scheduler_core.types import FloatArray

PUE: Final = 1.2
RESTART_S: Final = 60.0
PERCENT: Final = 100.0
BOUND: Final = "lower bound"
"""Name of the rows of `bound.least_usd` among those of the policies."""

EXACT, OFF = "exact run times", "run times off"
LOADS: Final = (0.1, 0.3, 0.5, 0.7, 0.9, 1.1)
AT_LOADS: Final = (0.5, 0.9)
"""Range of moderate to high loads, at which claims are tested."""

OFF_BY: Final = 0.1
"""Fraction by which true run times are off in the table of that name, as in ANDREAS."""

LEAST_SAVING_PCT: Final = 30.0
PUBLISHED_SAVING: Final = "30 to 62 % lower, or better"
MOST_OFF_PCT: Final = 13.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Options of the cost study."""

    energy: Path | None = energy_option()
    zone: str = option("DE-LU", name="--zone", help="Zone whose prices apply.")
    loads: tuple[float, ...] = option(
        LOADS,
        name="--load",
        help="Offered load (may be repeated); bars are judged at those of 0.5 to 0.9.",
        minimum=0.05,
        maximum=2.0,
        shown="0.1, 0.3, 0.5, 0.7, 0.9 and 1.1",
    )
    nodes: int = option(2, help="Nodes of each of two types.", minimum=1, maximum=100)
    jobs: int = option(100, help="Jobs a run.", minimum=2, maximum=10_000)
    trace: str | None = option(
        None,
        help="Use the jobs of this trace in the lake, with run times predicted from earlier months.",
        shown="drawn jobs",
    )
    iterations: int = option(
        ITERATIONS, help="Random plans for each decision that looks ahead.", minimum=1, maximum=100_000
    )
    seeds: int = seeds_option(10)
    seed: int = seed_option()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A policy in one of the tables, at one load; None is the lower bound."""

    study: str
    load: float
    name: str
    policy: Policy | None


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """What all runs share: measured speeds, prices, the size of the cluster and of a run, and recorded jobs if any."""

    speeds: Speeds
    price: HourlySeries
    nodes: int
    jobs: int
    recorded: pl.DataFrame | None = None

    def __call__(self, arm: Arm, seed: int) -> Row:
        """Simulate one policy; runs of a seed have the same jobs, prices and nodes."""
        nodes, rng = cluster(self.nodes), np.random.default_rng(seed)
        start_ts = self.price.start_s + HOUR_S * int(rng.integers(len(self.price)))
        off_by = OFF_BY if arm.study == OFF else 0.0
        if self.recorded is None:
            jobs = submitted(self.speeds, nodes, load=arm.load, count=self.jobs, off_by=off_by, rng=rng)
        else:
            taken = in_a_row(self.recorded, self.jobs, rng)
            jobs = stretch(taken, self.speeds, nodes, load=arm.load, off_by=off_by, rng=rng)
        site = Site(nodes=nodes, price=self.price, start_ts=start_ts, pue=PUE, restart_s=RESTART_S)
        of: Row = {"study": arm.study, "load": arm.load, "policy": arm.name}
        if arm.policy is None:
            return {**of, "total_usd": least_usd(jobs, site)}
        return {**of, "total_usd": simulate(jobs, site, arm.policy, np.random.default_rng([seed, 1])).total_usd}


def arms(loads: Sequence[float], at_loads: Sequence[float], iterations: int) -> dict[str, Arm]:
    """Return all policies at the loads, and at the loads of the claims what meets wrong run times and the bound."""
    ahead: dict[str, Policy | None] = {AHEAD: partial(looks_ahead, iterations=iterations)}
    strongest: dict[str, Policy | None] = {STRONGEST: Baseline(order="edf", configuration=FASTEST, preemptive=True)}
    tables: tuple[tuple[str, Sequence[float], Mapping[str, Policy | None]], ...] = (
        (EXACT, loads, ahead | {GREEDY: decided_greedily} | BASELINES),
        (EXACT, at_loads, strongest | {BOUND: None}),
        (OFF, at_loads, ahead | strongest),
    )
    return {
        f"{study}, {load:g}, {name}": Arm(study=study, load=load, name=name, policy=each)
        for study, of_loads, policies in tables
        for load in of_loads
        for name, each in policies.items()
    }


def run(config: Config, context: Context) -> Findings:
    """Simulate every policy with the same jobs and prices, for each load and seed."""
    loads = tuple(dict.fromkeys(config.loads))
    at_loads = tuple(load for load in loads if AT_LOADS[0] <= load <= AT_LOADS[1])
    if not at_loads:
        raise BadUsage(f"--load: found none of {AT_LOADS[0]} to {AT_LOADS[1]}, expected one to judge bars at")
    energy = config.energy or context.energy
    price, _ = recorded_hours(energy / "grid", config.zone, "price")
    of = Runs(speeds_of(gavel_throughputs(energy)), price, config.nodes, config.jobs)
    trace, notes = "gavel", tuple[str, ...]()
    if config.trace is not None:
        trace = context.trace(config.trace)
        jobs, notes = recorded_jobs(context, trace, seed=config.seed, least=config.jobs, most_gpus=GPUS_ON_A_NODE)
        of = replace(of, recorded=jobs)
    seeds = range(config.seed, config.seed + config.seeds)
    runs = compare(arms(loads, at_loads, config.iterations), seeds, of, engine=context.engine, talk=context.talk)
    runs = runs.drop(ARM).rename({"policy": ARM})
    found = findings(runs, at_loads, config)
    if config.trace is not None:
        saved = saving_pct(*(_of(runs, OFF, arm, "total_usd", at_loads) for arm in (AHEAD, STRONGEST)))
        predicted = _saving(f"with predicted run times, mean cost below {STRONGEST}, %", saved)
        found = replace(found, trace=trace, claims=[*found.claims, predicted], notes=(*found.notes, *notes))
    return found


def findings(runs: pl.DataFrame, at_loads: Sequence[float], config: Config) -> Findings:
    """Return tables, claims and notes of the runs."""
    notes = (
        f"{config.seeds} seeds of {config.jobs} jobs; {config.nodes} P100 and {config.nodes} V100 nodes of "
        f"{GPUS_ON_A_NODE} GPUs; hourly prices of {config.zone}; PUE {PUE:g}; nodes without jobs are off; a restart "
        f"takes {RESTART_S:g} s; assumptions and other results: docs/studies/cost.md",
    )
    return Findings(
        study="cost",
        trace="gavel",
        claims=[*claims(runs, at_loads)],
        tables={},
        frames={"runs": runs},
        notes=notes,
    )


def _of(runs: pl.DataFrame, study: str, arm: str, figure: str, loads: Sequence[float]) -> FloatArray:
    """Return one result of a policy for each seed, as the mean over the loads."""
    own = runs.filter(pl.col("study") == study, pl.col("load").is_in(list(loads)), pl.col(ARM) == arm)
    return own.group_by("seed").agg(pl.col(figure).mean()).sort("seed")[figure].cast(pl.Float64).to_numpy()


def saving_pct(ours: FloatArray, theirs: FloatArray) -> Interval:
    """Return by how many percent the mean of `ours` is below the mean of `theirs`, with an interval paired by seed."""
    return ratio(theirs - ours, theirs).scaled(PERCENT)


def claims(runs: pl.DataFrame, at_loads: Sequence[float]) -> Iterator[Row]:
    """Yield a row per claim: `claim, bar, measured, low, high, verdict`, in percent; the mean decides the verdict.

    Claims about the methods of ANDREAS come before those about EDF that preempts.
    """
    at, listed = list(at_loads), ", ".join(f"{load:g}" for load in at_loads)
    ours, strongest = (_of(runs, EXACT, arm, "total_usd", at) for arm in (AHEAD, STRONGEST))
    cells: dict[tuple[float, str], Interval] = {}
    for arm in BASELINES:
        yield _saving(
            f"mean cost below {arm}, % (loads {listed})", saving_pct(ours, _of(runs, EXACT, arm, "total_usd", at))
        )
        for load in at:
            own, theirs = (_of(runs, EXACT, each, "total_usd", [load]) for each in (AHEAD, arm))
            cells[load, arm] = saving_pct(own, theirs)
    (load, arm), least = min(cells.items(), key=lambda cell: cell[1].value)
    yield _saving(f"least of these by load, % ({arm} at {load:g})", least)
    yield _saving(f"mean cost below {STRONGEST}, % (loads {listed})", saving_pct(ours, strongest))
    for loads in (at, *([load] for load in at)):
        bound, theirs = (_of(runs, EXACT, each, "total_usd", loads) for each in (BOUND, STRONGEST))
        found = saving_pct(bound, theirs)
        name = f"any schedule: at most below {STRONGEST}, % (load {', '.join(f'{load:g}' for load in loads)})"
        verdict = "not excluded" if found.value >= LEAST_SAVING_PCT else "out of reach"
        yield {**_saving(name, found), "claim": name, "verdict": verdict}
    for load in at:
        plan, real = (_of(runs, study, AHEAD, "total_usd", [load]) for study in (EXACT, OFF))
        off = PERCENT * np.abs(plan - real) / real
        worst = Interval(value=float(off.max()), low=float("nan"), high=float("nan"))
        for found, which in ((mean(off), "mean"), (worst, "worst run")):
            name = f"realised cost off that of the plan run with predicted times, %, load {load:g}, {which}"
            yield _claim(name, f"under {MOST_OFF_PCT:g}", found, met=found.value < MOST_OFF_PCT)
    found = saving_pct(ours, _of(runs, EXACT, GREEDY, "total_usd", at))
    yield _claim("mean cost below the greedy's, %", "above 0 with its interval", found, met=found.low > 0.0)


def _saving(claim: str, found: Interval) -> Row:
    return _claim(claim, PUBLISHED_SAVING, found, met=found.value >= LEAST_SAVING_PCT)


def _claim(claim: str, bar: str, found: Interval, *, met: bool) -> Row:
    return {
        "claim": f"{AHEAD}: {claim}",
        "bar": bar,
        "measured": found.value,
        "low": found.low,
        "high": found.high,
        "verdict": "met" if met else "missed",
    }


COST: Final = Study(name="cost", config=Config, run=run, takes=("lake", "threads", "engine"))
