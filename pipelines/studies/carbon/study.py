"""Carbon study: mean completion time of elastic jobs at equal energy, and carbon at equal completion time on grids."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from pipelines.studies.carbon.jobs import NODE_GPUS, ArrivingJobs, Measured, drawn
from pipelines.studies.carbon.months import ARMS as PRICED_ARMS
from pipelines.studies.carbon.months import MONTHS, MOST_SEEDS, Front, Months, compared, least_mean, saving_rows
from pipelines.studies.carbon.months import PRICES_S_PER_KWH as BOUND_PRICES
from pipelines.studies.carbon.simulation import (
    ARMS,
    BASELINES,
    BOUND,
    PRICES_S_PER_KWH,
    TAUT,
    TWO_STAGES,
    Arm,
    Cluster,
    simulate,
)
from pipelines.studies.compare import ARM, compare, mean
from pipelines.studies.energy import month_of, recorded_hours
from pipelines.studies.study import (
    SEED,
    Context,
    Findings,
    Row,
    Study,
    energy_option,
    option,
    seed_option,
    seeds_option,
)
from scheduler_core.planning.carbon import allocate
from scheduler_core.planning.elastic import BudgetRule
from scheduler_core.planning.hourly import JOULES_PER_KWH

USUAL_PER_H: Final = 20.0
"""Usual number of jobs per hour on 64 GPUs: 160 in 8 hours, as in Pollux (OSDI 2021)."""

LOADS: Final = (0.5, 1.0, 2.0)
"""Numbers of jobs per hour as multiples of the usual one."""

DRAWN_JOBS, LONG_JOBS = 160, 400
"""Default numbers of jobs of a run: at a load; on real grids."""

USUAL_NODES: Final = 8
ZONES: Final = ("DE-LU", "US-CAL-CISO")

PERIOD_S: Final = 900.0
SHARES: Final = (0.15, 0.25, 0.4, 0.6, 1.0, math.inf)
"""Budgets as fractions of the energy of all GPUs at the highest frequency (mean power of the measured workloads), by
the rule to completion of the jobs' energy with their requested GPUs at that frequency."""

BAR: Final = 1.5
"""Target: minimum ratio of each baseline's mean completion time to that of a judged arm at equal energy."""

RATIOS: Final = ("shorter", "ceiling")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Options of the carbon study."""

    energy: Path | None = energy_option()
    budget: BudgetRule = option(
        "period", help="What a budget limits: a period's emissions (ours), or those until the jobs end (the patent's)."
    )
    zones: tuple[str, ...] = option(
        ZONES, name="--zone", help="Zone of a real grid (may be repeated).", shown="DE-LU and US-CAL-CISO"
    )
    jobs: int | None = option(None, help="Jobs a run.", minimum=2, maximum=100_000, shown="160, on real grids 400")
    nodes: int = option(USUAL_NODES, help=f"Nodes of {NODE_GPUS} GPUs.", minimum=1, maximum=1000)
    prices: tuple[float, ...] = option(
        PRICES_S_PER_KWH,
        name="--prices",
        help="Price of energy for taut, in seconds of run time a kWh (may be repeated).",
        minimum=0.0,
        maximum=1e9,
        shown="0 to 1e6",
    )
    seeds: int = seeds_option(10)
    seed: int = seed_option(200)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The runs of one load: what jobs are drawn from, their number and rate, the cluster, and prices."""

    measured: Measured
    jobs: int
    jobs_per_h: float
    cluster: Cluster
    prices: tuple[float, ...]

    def __call__(self, arm: Arm | None, seed: int) -> list[Row]:
        """Return a row for each budget or price of an arm, or for each point of the lower bound."""
        rng = np.random.default_rng([seed, round(1000 * self.jobs_per_h)])
        jobs = drawn(self.measured, rng, jobs=self.jobs, jobs_per_h=self.jobs_per_h)
        held_s = float(jobs.requested @ (jobs.steps / jobs.steps_per_s[np.arange(len(jobs)), jobs.requested]))
        if arm is None:
            points = zip(BOUND_PRICES.tolist(), *least_mean(jobs, round_s=self.cluster.period_s), strict=True)
            return [
                {"share": math.inf, "price_s_per_kwh": price, "kwh": float(kwh), "mean_jct_s": float(s)}
                for price, kwh, s in points
            ]
        full_s = held_s if self.cluster.rule == "to-completion" else self.cluster.gpus * self.cluster.period_s
        full_kwh = full_s * self.measured.full_w / JOULES_PER_KWH
        return [
            {
                "share": share,
                "price_s_per_kwh": price,
                **self._figures(arm, jobs, share * full_kwh, price),
            }
            for share in (SHARES if self.cluster.rule in arm.rules else (math.inf,))
            for price in (self.prices if arm.at_prices else (None,))
        ]

    def _figures(self, arm: Arm, jobs: ArrivingJobs, budget_kwh: float, price: float | None) -> Row:
        """Return the results of a simulation; times and energy (of GPUs while they run jobs) are NaN if a job waits."""
        planner = arm.planner if price is None else partial(allocate, price_s_per_kwh=price)
        found = simulate(jobs, self.cluster, budget_kwh, planner, as_requested=arm.as_requested)
        return {
            "mean_jct_s": float(found.jct_s.mean()),
            "kwh": math.nan if np.isnan(found.jct_s).any() else float(found.kwh.sum()),
        }


def run_study(config: Config, context: Context) -> Findings:
    """Simulate every arm with the same jobs at every load, and on real grids."""
    energy = config.energy or context.energy
    measured, seeds = Measured.of(energy), range(config.seed, config.seed + config.seeds)
    cluster = Cluster(gpus=config.nodes * NODE_GPUS, period_s=PERIOD_S, rule=config.budget)
    grids = {zone: recorded_hours(energy / "grid", zone, "carbon") for zone in dict.fromkeys(config.zones)}
    for series, _ in grids.values():
        for month in MONTHS:
            month_of(series, month)  # before anything is simulated
    settings = {}
    for load in LOADS:
        per_h = load * USUAL_PER_H * config.nodes / USUAL_NODES
        settings[f"{load:g}x"] = Runs(
            measured=measured,
            jobs=config.jobs or DRAWN_JOBS,
            jobs_per_h=per_h,
            cluster=cluster,
            prices=config.prices,
        )
    runs = _compared(settings, seeds, context)
    months = Months(
        measured=measured,
        cluster=cluster,
        jobs=config.jobs or LONG_JOBS,
        prices=tuple(price for price in config.prices if price > 0.0),  # 0 has no counterpart among the budgets
        grids={zone: series for zone, (series, _) in grids.items()},
    )
    on_grids = compare(PRICED_ARMS, seeds[:MOST_SEEDS], months, engine=context.engine, talk=context.talk)
    found = findings(runs, config, [note for _, notes in grids.values() for note in notes])
    return replace(
        found,
        tables={**found.tables, "carbon at equal completion time": saving_rows(on_grids)},
        frames={**found.frames, "months": on_grids},
    )


def _compared(settings: dict[str, Runs], seeds: range, context: Context) -> pl.DataFrame:
    frames = []
    for name, of in settings.items():
        price = pl.col("price_s_per_kwh").cast(pl.Float64)
        runs = compare(ARMS, seeds, of, engine=context.engine)
        frames.append(runs.select(pl.lit(name).alias("setting"), pl.all()).with_columns(price))
        context.talk(f"{name}: {len(seeds)} seeds simulated")
    return pl.concat(frames)


def findings(runs: pl.DataFrame, config: Config, notes: Sequence[str] = ()) -> Findings:
    """Return tables and notes of the runs."""
    ratios = ratio_rows(runs)
    summary = summary_rows(ratios)
    about = (
        f"{config.seeds} seeds from {config.seed}, 95 % intervals; {config.nodes * NODE_GPUS} GPUs; assumptions and "
        "other results: docs/studies/carbon.md",
    )
    return Findings(
        study="carbon",
        trace="measured",
        claims=claim_rows(summary),
        tables={"at equal energy": summary},
        frames={"runs": runs, "compared": ratios},
        notes=(*about, *notes),
    )


def ratio_rows(runs: pl.DataFrame) -> pl.DataFrame:
    """Return by how many times the judged arms are shorter than each other arm at equal energy.

    There is a row per setting, seed and two arms, and if there are all loads, one of their mean per seed. `ceiling` is
    the ratio of the other arm's mean time to the lower bound at the same energies.
    """
    rows: list[Row] = []
    for (setting, seed), of_seed in runs.group_by("setting", SEED, maintain_order=True):
        fronts = {
            str(arm): Front.of(points["kwh"].to_numpy(), points["mean_jct_s"].to_numpy())
            for (arm,), points in of_seed.group_by(ARM, maintain_order=True)
        }
        bound = fronts.pop(BOUND)
        for ours, arm in ((ours, arm) for ours in (TAUT, TWO_STAGES) for arm in fronts if arm != ours):
            found = compared(fronts[ours], fronts[arm], bound)
            key = {"setting": setting, SEED: seed, "ours": ours, ARM: arm}
            rows.append({**key, **dict(zip(RATIOS, found, strict=True))})
    frame = pl.DataFrame(rows)
    loads = frame["setting"].unique(maintain_order=True).to_list()
    if len(loads) < len(LOADS):
        return frame
    means = frame.group_by(SEED, "ours", ARM, maintain_order=True).agg(pl.col(RATIOS).mean())
    whole = means.select(pl.lit(f"mean of {', '.join(loads)}").alias("setting"), pl.all())
    return pl.concat([frame, whole.select(frame.columns)])


def summary_rows(ratios: pl.DataFrame) -> list[Row]:
    """Return a row per setting and pair of arms: mean ratios over the seeds that could be compared, with intervals."""
    rows: list[Row] = []
    keys = ("setting", "ours", ARM)
    for key, members in ratios.group_by(keys, maintain_order=True):
        known = members.filter(pl.col("shorter").is_finite())
        row: Row = {**dict(zip(keys, key, strict=True)), "seeds": len(known), "of": len(members)}
        for name in RATIOS:
            row |= mean(known[name].to_numpy()).columns(name)
        rows.append(row)
    return rows


def claim_rows(summary: Sequence[Row]) -> list[Row]:
    """Return a claim for each setting and baseline: the mean ratio at equal energy is at least `BAR`."""
    return [
        {
            "setting": row["setting"],
            "claim": f"{row['ours']}: mean JCT at equal kWh against {row[ARM]}",
            "bar": f"at least {BAR:g} times shorter",
            **{name: row[name] for name in ("shorter", "shorter_lo", "shorter_hi", "ceiling")},
            "verdict": _verdict(float(str(row["shorter"])), float(str(row["ceiling"]))),
        }
        for row in summary
        if row[ARM] in BASELINES
    ]


def _verdict(shorter: float, ceiling: float) -> str:
    if shorter >= BAR:
        return "met"
    return "missed" if ceiling >= BAR else "missed; no scheduler reaches it"


CARBON: Final = Study(name="carbon", config=Config, run=run_study, takes=("engine",))
