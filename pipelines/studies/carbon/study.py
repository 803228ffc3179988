"""Carbon study: mean completion time of elastic jobs at equal energy, against baselines and a lower bound."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from pipelines.studies.carbon.arms import ARMS, BASELINES, BOUND, PRICES_S_PER_KWH, TAUT, TWO_STAGES, Arm
from pipelines.studies.carbon.curves import PRICES_S_PER_KWH as BOUND_PRICES
from pipelines.studies.carbon.curves import Front, compared, least_mean
from pipelines.studies.carbon.jobs import NODE_GPUS, ArrivingJobs, Measured, drawn
from pipelines.studies.carbon.simulation import G_PER_KWH, Cluster, simulate
from pipelines.studies.compare import ARM, compare
from pipelines.studies.intervals import mean
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
from scheduler_core.planning.carbon.jobs import BudgetRule
from scheduler_core.planning.power import JOULES_PER_KWH

USUAL_PER_H: Final = 20.0
"""Usual number of jobs per hour on 64 GPUs: 160 in 8 hours, as in Pollux (OSDI 2021)."""

LOADS: Final = (0.5, 1.0, 2.0)
"""Numbers of jobs per hour as multiples of the usual one."""

USUAL_NODES: Final = 8
PERIOD_S: Final = 900.0
SHARES: Final = (0.15, 0.25, 0.4, 0.6, 1.0, math.inf)
"""Budgets as fractions of the energy of all GPUs at the highest frequency (mean power of the measured workloads), by
the rule to completion of the jobs' energy with their requested GPUs at that frequency."""

BAR: Final = 1.5
"""Target: minimum ratio of each baseline's mean completion time to that of a judged arm at equal energy."""

RATIOS: Final = ("shorter", "shorter_at_their_least", "shorter_at_their_most", "ceiling")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Options of the carbon study."""

    energy: Path | None = energy_option()
    budget: BudgetRule = option(
        "period", help="What a budget limits: a period's emissions (ours), or those until the jobs end (the patent's)."
    )
    jobs: int = option(160, help="Jobs a run.", minimum=2, maximum=100_000)
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
    """The runs of one load: what jobs are drawn from, and the cluster."""

    measured: Measured
    jobs: int
    jobs_per_h: float
    prices: tuple[float, ...]
    cluster: Cluster

    def __call__(self, arm: Arm | None, seed: int) -> list[Row]:
        """Return a row for each budget or price of an arm, or for each point of the lower bound."""
        rng = np.random.default_rng([seed, round(1000 * self.jobs_per_h)])
        jobs = drawn(self.measured, rng, jobs=self.jobs, jobs_per_h=self.jobs_per_h)
        held_s = float(jobs.requested @ (jobs.steps / jobs.steps_per_s[np.arange(len(jobs)), jobs.requested]))
        load = held_s / (self.cluster.gpus * max(float(jobs.submit_s[-1] - jobs.submit_s[0]), 1.0))
        if arm is None:
            points = zip(BOUND_PRICES.tolist(), *least_mean(jobs, round_s=self.cluster.period_s), strict=True)
            return [
                {"load": load, "share": math.inf, "price_s_per_kwh": price, "kwh": float(kwh), "mean_jct_s": float(s)}
                for price, kwh, s in points
            ]
        full_s = held_s if self.cluster.rule == "to-completion" else self.cluster.gpus * self.cluster.period_s
        full_g = full_s * self.measured.full_w / JOULES_PER_KWH * G_PER_KWH
        return [
            {"load": load, "share": share, "price_s_per_kwh": price, **self._figures(arm, jobs, share * full_g, price)}
            for share in (SHARES if arm.keeps(self.cluster.rule) else (math.inf,))
            for price in (self.prices if arm.at_prices else (None,))
        ]

    def _figures(self, arm: Arm, jobs: ArrivingJobs, budget_g: float, price: float | None) -> Row:
        """Return the results of a simulation; times and energy (of GPUs while they run jobs) are NaN if a job waits."""
        found = simulate(jobs, self.cluster, budget_g, arm.at(price), as_requested=arm.as_requested)
        unfinished = int(np.isnan(found.jct_s).sum())
        return {
            "mean_jct_s": float(found.jct_s.mean()),
            "kwh": math.nan if unfinished else float(found.kwh.sum()),
            "changes_a_job": float(found.changes.mean()),
            "over_budget_pct": 100.0 * found.over_budget,
            "over_planned_pct": 100.0 * found.over_planned,
            "unfinished": unfinished,
        }


def run_study(config: Config, context: Context) -> Findings:
    """Simulate every arm with the same drawn jobs at every load."""
    measured = Measured.of(config.energy or context.energy)
    cluster = Cluster(gpus=config.nodes * NODE_GPUS, period_s=PERIOD_S, rule=config.budget)
    frames = []
    for load in LOADS:
        per_h = load * USUAL_PER_H * config.nodes / USUAL_NODES
        runs = Runs(measured=measured, jobs=config.jobs, jobs_per_h=per_h, prices=config.prices, cluster=cluster)
        seeds = range(config.seed, config.seed + config.seeds)
        frame = compare(ARMS, seeds, runs, engine=context.engine)
        frames.append(
            frame.select(pl.lit(f"{load:g}x").alias("setting"), pl.all()).with_columns(
                pl.col("price_s_per_kwh").cast(pl.Float64)
            )
        )
        context.talk(f"{load:g}x: {config.seeds} seeds simulated")
    return findings(pl.concat(frames), config)


def findings(runs: pl.DataFrame, config: Config) -> Findings:
    """Return tables and notes of the runs."""
    ratios = ratio_rows(runs)
    summary = summary_rows(ratios)
    return Findings(
        study="carbon",
        trace="measured",
        claims=claim_rows(summary),
        tables={
            "at equal energy": summary,
            "budgets": budget_rows(runs, config.budget),
            "curves": curve_rows(runs),
        },
        frames={"runs": runs, "compared": ratios},
        notes=_notes(runs, config),
    )


def ratio_rows(runs: pl.DataFrame) -> pl.DataFrame:
    """Return by how many times the judged arms are shorter than each other arm at equal energy.

    There is a row per setting, seed and two arms, and per seed with all loads one of their mean. `ceiling` is the ratio
    of the other arm's mean time to the lower bound at the same energies.
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
            figures = (found.mean, found.tightest, found.loosest, found.ceiling)
            key = {"setting": setting, SEED: seed, "ours": ours, ARM: arm}
            rows.append({**key, **dict(zip(RATIOS, figures, strict=True))})
    frame = pl.DataFrame(rows)
    loads = frame["setting"].unique(maintain_order=True).to_list()
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


def curve_rows(runs: pl.DataFrame) -> list[Row]:
    """Return means over seeds by setting, arm and budget; budgets under which some jobs did not end are left out."""
    keys = ("setting", ARM, "share", "price_s_per_kwh")
    whole = runs.filter(pl.col("mean_jct_s").is_finite().all().over(keys))
    return (
        whole.group_by(keys, maintain_order=True)
        .agg(
            pl.col("mean_jct_s", "kwh", "changes_a_job", "over_budget_pct", "load").mean(),
            seeds=pl.col(SEED).n_unique(),
        )
        .to_dicts()
    )


def budget_rows(runs: pl.DataFrame, rule: BudgetRule) -> list[Row]:
    """Return how far emissions exceeded the budgets of the patent's two stages, at most over seeds and periods.

    `over_planned_pct` is of planned emissions, `over_budget_pct` of actual ones; `unfinished` counts the jobs of all
    seeds that the budget left without an end. There is a row per setting and finite budget.
    """
    own = runs.filter(pl.col(ARM) == TWO_STAGES, pl.col("share").is_finite())
    rows = own.group_by("setting", "share", maintain_order=True).agg(
        pl.col("over_planned_pct", "over_budget_pct").max(),
        pl.col("unfinished").sum(),
        mean_over_budget_pct=pl.col("over_budget_pct").mean(),
        seeds=pl.len(),
    )
    return rows.select(pl.lit(rule).alias("budget"), pl.all()).to_dicts()


def _notes(runs: pl.DataFrame, config: Config) -> tuple[str, ...]:
    loads = runs.group_by("setting", maintain_order=True).agg(pl.col("load").mean())
    return (
        f"{config.seeds} seeds from {config.seed}, 95 % intervals; {config.jobs} jobs on {config.nodes * NODE_GPUS} "
        "GPUs; assumptions and other results: docs/studies/carbon.md",
        "load, GPU time at the requested counts over the GPUs' time until the last arrival, mean over seeds: "
        + ", ".join(f"{name} {load:.2f}" for name, load in loads.rows()),
    )


CARBON: Final = Study(name="carbon", config=Config, run=run_study, takes=("engine",))
