"""Tables of the shrinking studies, from the rows of runs: gains beside those claimed, levels, harm, and the goal."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from pipelines.models.splits import leak_key
from pipelines.simulation.advice import ORACLE, REQUESTED, Advice
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.measures.metrics import STRETCHED_ABOVE
from pipelines.simulation.workloads import gangs_of, starts_under
from pipelines.studies.compare import ARM, Values, paired
from pipelines.studies.intervals import NOTHING, Interval, clopper_pearson, mean, ratio
from pipelines.studies.shrinking.runs import PLACE, populations
from pipelines.studies.study import Row

PERCENT: Final = 100.0
TOLERANCE: Final = 1.0 / 3.0
TRUTH: Final = "contention"
"""The slowdown model under which the goal and harm are judged."""


class Figure(NamedTuple):
    """A metric: its column in the rows of runs, the gain that Yang, Hong and Tang claim, and whether it is a share.

    They claim it at 70 jobs/h, under FIFO and with their mix 5:15:15:65. Gains of shares are given in percentage points
    as well.
    """

    column: str
    paper_gain_pct: float | None = None
    share: bool = False


FIGURES: Final = {
    "deployed": Figure("deployed", 25.3),
    "completion_rate": Figure("complete_rate", 15.2, share=True),
    "gpu_allocated": Figure("gpu_allocated_frac", 7.2, share=True),
    "mem_allocated": Figure("mem_allocated_frac", 8.0, share=True),
    "cpu_allocated": Figure("cpu_allocated_frac", -2.0, share=True),
    "cpu_request": Figure("cpu_request_cores", -28.5),
    "completed": Figure("completed"),
    "gpu_used": Figure("gpu_used_frac", share=True),
    "mem_used": Figure("mem_used_frac", share=True),
    "cpu_used": Figure("cpu_used_frac", share=True),
}
"""Metrics by name. Yang, Hong and Tang measure utilisation as the allocated share; we add the used share."""

PAPER_CPU_MET_H: Final = 2.0
"""Hour at which the baseline of Yang, Hong and Tang has allocated all CPU."""

LEAST_OF_ORACLE, MOST_KILLED, MOST_STRETCH_P99 = 0.5, 0, 1.05
"""The goal: share of the oracle's gain in finished jobs, jobs killed in all seeds, p99 of stretch."""

LEVELS: Final = (
    "submitted", "never_fits", "deployed", "completed", "complete_rate", "cpu_allocated_frac", "cpu_used_frac",
    "mem_allocated_frac", "mem_used_frac", "gpu_allocated_frac", "gpu_used_frac", "cpu_request_cores", "killed",
    "stretched_share", "stretch_p99", "wait_mean_s",
)  # fmt: skip
HARM: Final = ("killed", "stretched_share", "stretch_p99", "stretch_mean", "wait_mean_s", "killed_gpu_h")
HELD: Final = ("cpu_allocated_frac", "mem_allocated_frac", "gpu_allocated_frac")


def claim_rows(runs: pl.DataFrame) -> list[Row]:
    """Return one row per metric, arm (except `requested`) and place: the gain over `requested`.

    Columns: `requested` and `found` are the means over seeds of the baseline and of the arm. `gain_pct` is the relative
    gain, `gain_points` the gain in percentage points, and `of_oracle` the gain divided by the oracle's; each has a 95 %
    interval, paired by seed. `paper_gain_pct` is the claimed gain, which may be relative or in points, so `relative`
    and `points` compare it with both of our gains; `within_third`: the relative gain misses it by at most a third.
    """
    return [
        {**place, "seeds": len(arms[REQUESTED]["completed"]), "figure": name, "arm": arm, **_claim(figure, arm, arms)}
        for place, arms in paired(runs, PLACE)
        for name, figure in FIGURES.items()
        if figure.column in arms[REQUESTED]
        for arm in arms
        if arm != REQUESTED
    ]


def _claim(figure: Figure, arm: str, arms: Values) -> Row:
    base, own = arms[REQUESTED][figure.column], arms[arm][figure.column]
    relative = gain_of(arms, arm, figure.column)
    points = mean(own - base).scaled(PERCENT) if figure.share else NOTHING
    return {
        "paper_gain_pct": figure.paper_gain_pct,
        "requested": float(np.mean(base)),
        "found": float(np.mean(own)),
        **relative.columns("gain_pct"),
        **points.columns("gain_points"),
        **share_of_oracle(arms, arm, figure.column).columns("of_oracle"),
        "within_third": None
        if (stated := figure.paper_gain_pct) is None
        else abs(relative.value - stated) <= abs(stated) * TOLERANCE,
        "relative": _beside_claim(figure.paper_gain_pct, relative),
        "points": _beside_claim(figure.paper_gain_pct, points),
    }


def _beside_claim(stated: float | None, ours: Interval) -> str | None:
    """Return whether our interval lies above or below the claimed gain or contains it; None without a claim."""
    if stated is None or np.isnan([ours.low, ours.high]).any():
        return None
    if ours.low > stated:
        return "above"
    return "below" if ours.high < stated else "within"


def bottleneck_rows(runs: pl.DataFrame) -> list[Row]:
    """Return the hour at which each arm had allocated 95 % of the CPU, next to the published baseline's hour."""
    rows = level_rows(runs, ("cpu_met_h",))
    return [
        {name: row[name] for name in (*PLACE, "seeds", ARM)}
        | {"paper_h": PAPER_CPU_MET_H if row[ARM] == REQUESTED else None}
        | {name: value for name, value in row.items() if name.startswith("cpu_met_h")}
        for row in rows
    ]


def level_rows(runs: pl.DataFrame, columns: Sequence[str] = LEVELS) -> list[Row]:
    """Return one row per place and arm: each column's mean over seeds, with its interval."""
    rows: list[Row] = []
    for place, arms in paired(runs, PLACE):
        for arm, values in arms.items():
            row: Row = {**place, "seeds": len(values["completed"]), ARM: arm}
            for column in (column for column in columns if column in values):
                row |= mean(values[column]).columns(column)
            rows.append(row)
    return rows


def gain_of(arms: Values, arm: str, column: str) -> Interval:
    """Return the relative gain of an arm over the arm `requested` in one column, in percent, with its interval."""
    return ratio(arms[arm][column], arms[REQUESTED][column]).scaled(PERCENT, less=1.0)


def share_of_oracle(arms: Values, arm: str, column: str) -> Interval:
    """Return an arm's gain as a share of the oracle's gain; NaN if the interval of the oracle's gain includes zero."""
    if ORACLE not in arms:
        return NOTHING
    base = arms[REQUESTED][column]
    whole = mean(arms[ORACLE][column] - base)
    if not (whole.low > 0.0 or whole.high < 0.0):
        return NOTHING
    return ratio(arms[arm][column] - base, arms[ORACLE][column] - base)


def goal_rows(runs: pl.DataFrame, arm: str) -> list[Row]:
    """Return three rows for an arm in each place under contention, one for each part of the goal.

    Columns: `asked` is the bound. `found` is the mean over seeds with its interval, or for kills the sum over seeds.
    `met` tells whether `found` is within the bound; its interval may exceed it.
    """
    rows: list[Row] = []
    for place, arms in paired(runs.filter(pl.col("truth") == TRUTH), PLACE):
        of = {**place, "seeds": len(arms[arm]["completed"]), ARM: arm}
        gained, killed = share_of_oracle(arms, arm, "completed"), float(arms[arm]["killed"].sum())
        stretch = mean(arms[arm]["stretch_p99"])
        rows += [
            {**of, "demand": "share of the oracle's gain in finished jobs, at least", "asked": LEAST_OF_ORACLE}
            | {**gained.columns("found"), "met": gained.value >= LEAST_OF_ORACLE},
            {**of, "demand": "jobs killed in all seeds, at most", "asked": MOST_KILLED}
            | {"found": killed, "met": killed <= MOST_KILLED},
            {**of, "demand": "p99 of stretch, at most", "asked": MOST_STRETCH_P99}
            | {**stretch.columns("found"), "met": stretch.value <= MOST_STRETCH_P99},
        ]
    return rows


def harm_rows(runs: pl.DataFrame) -> list[Row]:
    """Return one row per place and arm: kills (also summed over seeds), stretch, waits, and what is allocated."""
    rows: list[Row] = []
    for place, arms in paired(runs, PLACE):
        for arm, values in arms.items():
            row: Row = {**place, "seeds": len(values["killed"]), ARM: arm, "killed_sum": float(values["killed"].sum())}
            for column in HARM:
                row |= mean(values[column]).columns(column)
            rows.append(row | {column: float(np.mean(values[column])) for column in HELD})
    return rows


def jobs_harmed_rows(pool: Pool, advice: Advice) -> list[Row]:
    """Return kills and stretch under contention by arm, with each distinct job of the pool counted once.

    `killed_hi` is the upper end of the exact 95 % interval of the share of killed jobs, and assumes independent jobs.
    Jobs of one group are not independent, so `groups_killed_hi` bounds the share of groups in which any job is killed.
    Groups of one user may depend on each other too: `largest_user_share` is the share of jobs of the largest user.
    """
    gangs = gangs_of(pool.frame)
    group = np.unique(leak_key(pool.frame).to_numpy(), return_inverse=True)[1]
    rows: list[Row] = []
    for arm, answers in advice.items():
        if arm == REQUESTED:
            continue
        starts = starts_under(TRUTH, pool.jobs, gangs, answers)
        stretch = starts.granted_run_s / gangs.run_s
        for (gnn, devices), members in populations(pool).items():
            dies = starts.dies[members]
            lives = members[~dies]
            killed = clopper_pearson(int(dies.sum()), len(members))
            groups, losing = len(np.unique(group[members])), len(np.unique(group[members[dies]]))
            slowed = clopper_pearson(int((stretch[lives] > STRETCHED_ABOVE).sum()), len(members))
            users = pool.frame["user"].gather(members).value_counts()["count"].to_list()
            rows.append(
                {"gnn": gnn, "devices": devices, "truth": TRUTH, ARM: arm, "jobs": len(members)}
                | {"killed": int(dies.sum()), "killed_share": killed.value}
                | {"killed_lo": killed.low, "killed_hi": killed.high}
                | {"groups": groups, "groups_killed": losing}
                | {"groups_killed_hi": clopper_pearson(losing, groups).high}
                | {"largest_user_share": max(users) / len(members), "stretched_share": slowed.value}
                | {"stretched_lo": slowed.low, "stretched_hi": slowed.high}
                | {"stretch_max": float(stretch[lives].max()) if len(lives) else math.nan}
            )
    return rows
