"""Tables of the carbon study: arms compared at equal energy with intervals over seeds, and claims.

Pure functions of the frame of all simulations. Called by `study` and `months`.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

from pipelines.studies.carbon.arms import ABLATION, BASELINES, TAUT, TWO_STAGES, VARIANTS
from pipelines.studies.carbon.curves import BOUND, Front, compared
from pipelines.studies.intervals import mean
from pipelines.studies.study import Row
from scheduler_core.planning.carbon.allocator import BudgetRule

BAR: Final = 1.5
"""Target: minimum ratio of each baseline's mean completion time to that of a judged arm at equal energy."""

JUDGED: Final = (TAUT, TWO_STAGES)
"""Judged arms, which are compared with all others: taut with a price on energy, and the patent's two stages."""

COUNTED: Final = {"busy": "kwh", "busy and idle": "kwh_with_idle"}
"""Column of energy, by the state of the GPUs whose energy it counts."""


def compared_rows(runs: pl.DataFrame) -> list[Row]:
    """Return ratios of other arms' to judged arms' mean times: a row per setting, seed, counted energy and two arms.

    `ceiling` is the ratio of the other arm's mean time to the lower bound at the same energies.
    """
    rows: list[Row] = []
    for (setting, seed), of_seed in runs.group_by("setting", "seed", maintain_order=True):
        for counted, column in COUNTED.items():
            fronts = {
                str(arm): front(points, column) for (arm,), points in of_seed.group_by("arm", maintain_order=True)
            }
            bound = fronts.pop(BOUND)
            for ours, arm in ((ours, arm) for ours in JUDGED if ours in fronts for arm in fronts if arm != ours):
                found = compared(fronts[ours], fronts[arm], bound)
                rows.append(
                    {
                        "setting": setting,
                        "seed": seed,
                        "counted": counted,
                        "ours": ours,
                        "arm": arm,
                        "shorter": found.mean,
                        "shorter_at_their_least": found.tightest,
                        "shorter_at_their_most": found.loosest,
                        "ceiling": found.ceiling,
                    }
                )
    return rows


def over_settings(rows: list[Row], settings: Sequence[str]) -> list[Row]:
    """Return rows of an additional setting: the mean of the given settings, for each seed that has all of them."""
    frame = pl.DataFrame(rows, infer_schema_length=None).filter(pl.col("setting").is_in(settings))
    keys = ("seed", "counted", "ours", "arm")
    figures = ("shorter", "shorter_at_their_least", "shorter_at_their_most", "ceiling")
    means = frame.group_by(keys, maintain_order=True).agg(
        *(pl.col(name).mean() for name in figures), settings=pl.col("setting").n_unique()
    )
    whole = means.filter(pl.col("settings") == len(settings)).drop("settings")
    return whole.select(pl.lit(f"mean of {', '.join(settings)}").alias("setting"), pl.all()).to_dicts()


def front(points: pl.DataFrame, column: str, time: str = "mean_jct_s") -> Front:
    """Return the Pareto-optimal points of one arm."""
    return Front.of(points[column].to_numpy(), points[time].to_numpy())


def summed_up(rows: list[Row]) -> list[Row]:
    """Return a row per setting, counted energy and pair of arms: mean ratios over seeds, with intervals."""
    frame = pl.DataFrame(rows, infer_schema_length=None)
    found: list[Row] = []
    keys = ("setting", "counted", "ours", "arm")
    for key, of_arm in frame.group_by(keys, maintain_order=True):
        known = of_arm.filter(pl.col("shorter").is_finite())
        row: Row = {**dict(zip(keys, key, strict=True)), "seeds": len(known), "of": len(of_arm)}
        for name in ("shorter", "shorter_at_their_least", "shorter_at_their_most", "ceiling"):
            each = mean(known[name].to_numpy())
            row |= {name: each.value, f"{name}_lo": each.low, f"{name}_hi": each.high}
        found.append(row)
    return found


def claim_rows(summary: list[Row]) -> list[Row]:
    """Return a claim for each setting and baseline: the mean ratio at equal energy of busy GPUs is at least `BAR`."""
    rows: list[Row] = []
    for row in summary:
        if row["arm"] not in BASELINES or row["counted"] != "busy":
            continue
        rows.append(
            {
                "setting": row["setting"],
                "claim": f"{row['ours']}: mean JCT at equal kWh against {row['arm']}",
                "bar": f"at least {BAR:g} times shorter",
                **{name: row[name] for name in ("shorter", "shorter_lo", "shorter_hi", "ceiling")},
                "verdict": _verdict(row),
            }
        )
    return rows


def _verdict(row: Row) -> str:
    if float(str(row["shorter"])) >= BAR:
        return "met"
    return "missed" if float(str(row["ceiling"])) >= BAR else "missed; no scheduler reaches it"


def ablation_rows(summary: list[Row]) -> list[Row]:
    """Return the rows that compare single stages, and both variants of two stages, with the judged arms."""
    return [row for row in summary if row["arm"] in (*ABLATION, *VARIANTS)]


def curve_rows(runs: pl.DataFrame) -> pl.DataFrame:
    """Return means over seeds by setting, arm and budget; budgets under which some jobs did not end are left out."""
    figures = ("mean_jct_s", "kwh", "kwh_with_idle", "changes_a_job", "over_budget_pct", "load")
    keys = ("setting", "arm", "share", "price_s_per_kwh")
    whole = runs.filter(pl.col("mean_jct_s").is_finite().all().over(keys))
    return whole.group_by(keys, maintain_order=True).agg(
        *(pl.col(name).mean() for name in figures), seeds=pl.col("seed").n_unique()
    )


def budget_rows(runs: pl.DataFrame, rule: BudgetRule) -> list[Row]:
    """Return how far emissions exceeded the budgets of the patent's two stages, at most over seeds and periods.

    `over_planned_pct` is of planned emissions, `over_budget_pct` of actual ones; `unfinished` counts the jobs of all
    seeds that the budget left without an end. There is a row per setting and finite budget.
    """
    own = runs.filter(pl.col("arm") == TWO_STAGES, pl.col("share").is_finite())
    rows = own.group_by("setting", "share", maintain_order=True).agg(
        pl.col("over_planned_pct", "over_budget_pct").max(),
        pl.col("unfinished").sum(),
        mean_over_budget_pct=pl.col("over_budget_pct").mean(),
        seeds=pl.len(),
    )
    return rows.select(pl.lit(rule).alias("budget"), pl.all()).to_dicts()
