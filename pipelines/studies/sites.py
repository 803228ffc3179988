"""Study of sites: every policy on the same weeks of October to December, in four regimes, with paired intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, get_args

import numpy as np
import polars as pl

from pipelines.models.sites.judging import FEASIBLE, RULES, bounds_of, judged
from pipelines.models.sites.mappo import played, trained_agents
from pipelines.models.sites.recorded import PERIODS, batch, pool_of
from pipelines.models.sites.training import trained_scorer, usd_of
from pipelines.simulation.sites.weeks import REGIMES, Weeks, places_of
from pipelines.studies.compare import NOTHING, Interval, mean
from pipelines.studies.study import (
    Context,
    Findings,
    Row,
    Study,
    cluster_option,
    option,
    seed_option,
    seeds_option,
    trace_option,
)
from scheduler_core.planning.sites import policy
from scheduler_core.types import FloatArray

Regime = Literal["B-loose", "B-tight", "C-loose", "A"]
GREEDY, SCORER, MAPPO = "greedy", "scorer", "mappo"
BARS: Final = ("B-loose", "B-tight")
GOAL_GAP: Final = 0.4
CLAIM: Final = 0.286
"""The source's gain in utility, over a baseline of its own."""
BOUNDED: Final = "1 the clairvoyant bound (Lagrangian dual); feasible: the best schedule found, or a policy's if better"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Options of the study of sites."""

    trace: str | None = trace_option()
    cluster: str | None = cluster_option()
    grid: Path | None = option(
        None, help="Folder of hourly series, one subfolder a zone.", shown="grid below TAUT_ENERGY"
    )
    zones: tuple[str, ...] = option(
        (), name="--zone", help="Zone of a site (repeat it, 2 to 8).", shown="six zones, 320 GPUs"
    )
    year: int | None = option(
        None, help="Year of the series to use.", minimum=1900, maximum=2200, shown="the year of the files"
    )
    regimes: tuple[Regime, ...] = option(
        get_args(Regime), name="--regime", help="Worth of GPU time and slack (may be repeated).", shown="all of them"
    )
    load: float = option(0.9, help="GPU time that arrives, over all there is.", minimum=0.05, maximum=3.0)
    agent_seeds: int = option(
        2, help="Training seeds of the neural agents, in the first regime; 0 leaves them out.", minimum=0, maximum=100
    )
    seeds: int = seeds_option(10)
    seed: int = seed_option()


def run(config: Config, context: Context) -> Findings:
    """Train and tune on earlier months and other job weeks, then judge every policy with the bounds."""
    places = places_of(config.grid or context.energy / "grid", config.zones, year=config.year)
    trace = context.trace(config.trace)
    pool, note = pool_of(context.lake().table("jobs", trace, config.cluster).collect())
    begin = datetime.fromtimestamp(min(each.grid.price.start_s for each in places if each.grid.price), UTC)
    rows: list[Row] = []
    notes = [
        f"{trace}: {note}",
        f"weeks of jobs are drawn on the grids of {begin:%Y}: training on January to August and the first 60 % of the "
        "recorded weeks, tuning on September and the next 20 %, judging on October to December and the last 20 %",
        f"utility: 0 if no job runs, {BOUNDED}",
        "policies see predicted run times, and forecasts by the same hour of the day before",
        f"sites: {'; '.join(map(str, places))}; sizes, PUE, data volume, egress price and origins are ours",
        "intervals are over weeks, paired; a trained policy is the mean of its training seeds in each week",
    ]
    for number, regime in enumerate(config.regimes):
        terms = REGIMES[regime]
        train, tune, judge = (
            batch(places, pool, terms, PERIODS[name], seed=config.seed, load=config.load, draws=draws)
            for name, draws in (("train", 1), ("tune", 4), ("judge", 1))
        )
        bounds = bounds_of(judge, config.seed)
        context.talk(f"{regime}: {len(bounds)} weeks bounded")
        policies = {name: policy(name) for name in RULES}
        found = [*judged(places, judge, policies, bounds)]
        for seed in range(config.seed, config.seed + config.seeds):
            scorer = trained_scorer(train, tune, seed)
            found += [
                {**row, "seed": seed, "tuning_usd": float(usd_of(tune, scorer).mean())}
                for row in judged(places, judge, {SCORER: scorer}, ())
            ]
        found.append({"policy": GREEDY, "tuning_usd": float(usd_of(tune, policies[GREEDY]).mean())})
        context.talk(f"{regime}: {config.seeds} scorers trained")
        if number == 0:
            found += _agents(train, tune, judge, config)
        for row in found:
            if "week" in row:
                row["utility"] = float(str(row["utility_usd"])) / bounds[int(str(row["week"]))].bound_usd
            rows.append({"regime": regime, **row})
    runs = pl.DataFrame(rows, infer_schema_length=None)
    return findings(runs, trace, notes)


def _agents(train: Weeks, tune: Weeks, judge: Weeks, config: Config) -> list[Row]:
    """Return a row per training seed and week of the agents."""
    return [
        {"policy": MAPPO, "seed": seed, "week": week, "utility_usd": usd}
        for seed in range(config.seed, config.seed + config.agent_seeds)
        for week, usd in enumerate(played(judge, trained_agents(train, tune, seed)).tolist())
    ]


def findings(runs: pl.DataFrame, trace: str, notes: Sequence[str]) -> Findings:
    """Return tables and claims of the runs."""
    regimes = runs["regime"].unique(maintain_order=True).to_list()
    names = [name for name in runs["policy"].unique(maintain_order=True) if name != FEASIBLE]
    utility, claims = [], []
    for regime in regimes:
        weekly = {name: _weekly(runs, regime, name) for name in [*names, FEASIBLE]}
        weekly = {name: found for name, found in weekly.items() if len(found)}
        weekly[FEASIBLE] = np.max(np.stack(list(weekly.values())), axis=0)
        gap = float((weekly[FEASIBLE] - weekly[GREEDY]).mean())
        for name, found in weekly.items():
            utility.append(_against(regime, name, weekly, found, gap))
        claims += _claims(runs, regime, weekly, gap)
    return Findings(
        study="sites",
        trace=trace,
        claims=claims,
        tables={"utility": utility},
        frames={"runs": runs},
        notes=notes,
    )


def _weekly(runs: pl.DataFrame, regime: str, name: str) -> FloatArray:
    """Return the utility of a policy in each week, the mean over training seeds."""
    rows = runs.filter(pl.col("regime") == regime, pl.col("policy") == name, pl.col("week").is_not_null())
    found = rows.group_by("week").agg(pl.col("utility").mean()).sort("week")["utility"]
    return found.cast(pl.Float64).fill_null(float("nan")).to_numpy()


def _against(regime: str, name: str, weekly: dict[str, FloatArray], found: FloatArray, gap: float) -> Row:
    level, over, gain = mean(found), mean(found - weekly[GREEDY]), mean(weekly[SCORER] - found)
    return {
        "regime": regime,
        "policy": name,
        **level.columns("utility"),
        **over.columns("over_greedy"),
        "of_gap": over.value / gap,
        "scorer_gain_pct": 100.0 * gain.value / level.value if level.value > 0.0 else float("nan"),
    }


def _claims(runs: pl.DataFrame, regime: str, weekly: dict[str, FloatArray], gap: float) -> list[Row]:
    scorer = weekly[SCORER]
    over, share = mean(scorer - weekly[GREEDY]), mean(scorer - weekly[GREEDY]).scaled(1.0 / gap)
    own = runs.filter(pl.col("regime") == regime, pl.col("tuning_usd").is_not_null())
    tuned = own.group_by("policy", maintain_order=True).agg(pl.col("tuning_usd").mean())
    best = max(tuned.rows(), key=lambda row: row[1])[0]
    claims: dict[str, tuple[Interval, bool | None]] = {
        "learnt above greedy with forecast": (over, over.low > 0.0 if regime != "A" else None),
        f"share of the gap to the best feasible, at least {GOAL_GAP}": (share, share.value >= GOAL_GAP),
        f"best on the tuning month: {best}": (NOTHING, None),
    }
    rows: list[Row] = [
        {"regime": regime, "claim": claim, **found.columns("value"), **({} if holds is None else {"holds": holds})}
        for claim, (found, holds) in claims.items()
        if "share of the gap" not in claim or regime in BARS
    ]
    least_loaded = float(weekly["least_loaded"].mean())
    gain = float(scorer.mean()) / least_loaded - 1.0 if least_loaded > 0.0 else float("nan")
    return [*rows, {"regime": regime, "claim": f"gain over least loaded (source: {CLAIM})", "value": gain}]


SITES: Final = Study(name="sites", config=Config, run=run, takes=("lake",))
