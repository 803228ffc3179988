"""Tables of the carbon experiment: arms against each other at equal energy, with intervals over seeds, and the bars.

Pure functions on rows of runs. Called by the carbon experiment.
"""

from typing import Final

import numpy as np
import polars as pl

from pipelines.energy.carbon.arms import ABLATION, BASELINES, PRICED, TAUT, VARIANTS
from pipelines.energy.carbon.curves import Front, compared
from pipelines.experiments.intervals import mean
from pipelines.fgd.findings import Row

BAR: Final = 1.5
"""How many times shorter than each baseline's the mean completion time shall be, on average."""

JUDGED: Final = (TAUT, PRICED)
"""Whose mean completion times are held to the bar: the source's procedure, and ours with a price on energy."""

COUNTED: Final = {"busy": "kwh", "busy and idle": "kwh_with_idle"}
"""What energy is compared at, by what it counts."""


def compared_rows(runs: pl.DataFrame) -> list[Row]:
    """Return how many times shorter a judged arm's mean time is, by setting, seed, counted energy, and other arm.

    `ceiling` is the same for jobs that each run as if alone, whatever energy that takes: no scheduler can do better.
    """
    rows: list[Row] = []
    for (setting, seed), of_seed in runs.group_by("setting", "seed", maintain_order=True):
        alone_s = float(of_seed["alone_jct_s"][0])
        for counted, column in COUNTED.items():
            fronts = {
                str(arm): front(points, column) for (arm,), points in of_seed.group_by("arm", maintain_order=True)
            }
            for ours, arm in ((ours, arm) for ours in JUDGED if ours in fronts for arm in fronts if arm != ours):
                found = compared(fronts[ours], fronts[arm])
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
                        "ceiling": found.theirs_s / alone_s,
                    }
                )
    return rows


def front(points: pl.DataFrame, column: str, time: str = "mean_jct_s") -> Front:
    """Return the curve of one arm's points."""
    return Front.of(points[column].to_numpy(), points[time].to_numpy())


def summed_up(rows: list[Row]) -> list[Row]:
    """Return a row per setting, counted energy and arm: means over the seeds that can be compared, with intervals."""
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
    """Hold the means to the bar, for each setting and baseline; energy of busy GPUs is what the bar counts."""
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
                "verdict": "met" if float(str(row["shorter"])) >= BAR else "missed",
            }
        )
    return rows


def ablation_rows(summary: list[Row]) -> list[Row]:
    """Return how much shorter both stages' mean time is than one stage's, and than our variants', at equal energy."""
    return [row for row in summary if row["ours"] == TAUT and row["arm"] in (*ABLATION, *VARIANTS)]


def curve_rows(runs: pl.DataFrame) -> pl.DataFrame:
    """Return means over seeds by setting, arm and budget, of budgets under which all jobs ended in every seed."""
    figures = ("mean_jct_s", "kwh", "kwh_with_idle", "changes_a_job", "over_budget_pct", "load")
    keys = ("setting", "arm", "share", "price_s_per_kwh")
    whole = runs.filter(pl.col("mean_jct_s").is_finite().all().over(keys))
    return whole.group_by(keys, maintain_order=True).agg(
        *(pl.col(name).mean() for name in figures), seeds=pl.col("seed").n_unique()
    )


def overshoot_pct(runs: pl.DataFrame, arm: str = TAUT) -> float:
    """Return the most that a period's true emissions of an arm were above its budget, in percent of it."""
    most = runs.filter(pl.col("arm") == arm)["over_budget_pct"].max()
    return float(np.asarray(most if most is not None else 0.0))
