"""The goal of shrinking under the slowdown model `contention`, whether it is met, and the kills of every arm.

The goal bounds the share of the oracle's gain, the killed jobs, and the p99 of stretch (run time divided by recorded
run time). Pure functions of the rows of runs and of recommendations; nothing is simulated here. Called by `tables`.
"""

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from pipelines.models.splits import leak_key
from pipelines.simulation.advice import REQUESTED, Advice
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.measures.metrics import STRETCHED_ABOVE
from pipelines.simulation.workloads import gangs_of, starts_under
from pipelines.studies.intervals import clopper_pearson, mean
from pipelines.studies.shrinking.cases import populations
from pipelines.studies.shrinking.claims import PLACE, paired, share_of_oracle
from pipelines.studies.shrinking.runs import SHORT
from pipelines.studies.study import Row
from scheduler_core.types import FloatArray

LEAST_OF_ORACLE: Final = 0.5
MOST_KILLED: Final = 0
MOST_STRETCH_P99: Final = 1.05
TRUTH: Final = "contention"

BINDS_FROM: Final = 0.5
"""Share of the waiting jobs that must lack a resource for it to count as a bottleneck."""


def goal_rows(runs: pl.DataFrame, arm: str) -> list[Row]:
    """Return three rows for an arm in each set of paired runs under contention, one for each part of the goal.

    Columns: `asked` is the bound. `found` is the mean over seeds with its interval, or for kills the sum over seeds.
    `met` tells whether `found` is within the bound; its interval may exceed it.
    """
    rows: list[Row] = []
    for place in _places(runs.filter(pl.col("truth") == TRUTH)):
        arms = paired(runs, **place)
        seeds = {"seeds": len(arms[arm]["completed"])}
        gained = share_of_oracle(arms, arm, "completed")
        killed = arms[arm]["killed"]
        stretch = mean(arms[arm]["stretch_p99"])
        rows += [
            {**place, **seeds, "arm": arm, "demand": "share of the oracle's gain in finished jobs, at least"}
            | {"asked": LEAST_OF_ORACLE, **gained.columns("found"), "met": gained.value >= LEAST_OF_ORACLE},
            {**place, **seeds, "arm": arm, "demand": "jobs killed in all seeds, at most"}
            | {"asked": MOST_KILLED, "found": float(killed.sum()), "met": bool(killed.sum() <= MOST_KILLED)},
            {**place, **seeds, "arm": arm, "demand": "p99 of stretch, at most"}
            | {"asked": MOST_STRETCH_P99, **stretch.columns("found"), "met": stretch.value <= MOST_STRETCH_P99},
        ]
    return rows


def harm_rows(runs: pl.DataFrame) -> list[Row]:
    """Return one row per set of paired runs and arm: kills, stretch, and the resources that waiting jobs lacked.

    Columns: `*_lacked_share` is the share of waiting jobs that could not start even if all other resources were free.
    `bottleneck` joins the resources that at least half of the waiting jobs lacked, most lacked first: `cpu+gpu`.
    """
    rows: list[Row] = []
    for place in _places(runs):
        arms = paired(runs, **place)
        for arm, figures in arms.items():
            held = {
                f"{name}_allocated_frac": float(np.mean(figures[f"{name}_allocated_frac"])) for name in SHORT.values()
            }
            lacked = {name: _mean_known(figures.get(f"{name}_lacked_share")) for name in SHORT.values()}
            row: Row = {
                **place,
                "seeds": len(figures["killed"]),
                "arm": arm,
                "killed_sum": float(figures["killed"].sum()),
            }
            for column in ("killed", "stretched_share", "stretch_p99", "stretch_mean", "wait_mean_s", "killed_gpu_h"):
                row |= mean(figures[column]).columns(column)
            shares = {f"{name}_lacked_share": share for name, share in lacked.items()}
            rows.append({**row, "bottleneck": bottleneck_of(lacked), **shares, **held})
    return rows


def row_harm_rows(pool: Pool, advice: Advice) -> list[Row]:
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
            killed = clopper_pearson(int(dies.sum()), len(members))
            groups, losing = len(np.unique(group[members])), len(np.unique(group[members[dies]]))
            users = pool.frame["user"].gather(members).value_counts()["count"]
            lives = members[~dies]
            slowed = clopper_pearson(int((stretch[lives] > STRETCHED_ABOVE).sum()), len(members))
            rows.append(
                {
                    "gnn": gnn,
                    "devices": devices,
                    "truth": TRUTH,
                    "arm": arm,
                    "jobs": len(members),
                    "killed": int(dies.sum()),
                    "killed_share": killed.value,
                    "killed_lo": killed.low,
                    "killed_hi": killed.high,
                    "groups": groups,
                    "groups_killed": losing,
                    "groups_killed_hi": clopper_pearson(losing, groups).high,
                    "largest_user_share": int(users.max() or 0) / len(members) if len(members) else math.nan,  # type: ignore[arg-type]  # a count
                    "stretched_share": slowed.value,
                    "stretched_lo": slowed.low,
                    "stretched_hi": slowed.high,
                    "stretch_max": float(stretch[lives].max()) if len(lives) else float("nan"),
                }
            )
    return rows


def bottleneck_of(lacked: Mapping[str, float]) -> str:
    """Return the resources that at least half of the waiting jobs lack, most lacked first, or `none`.

    >>> bottleneck_of({"cpu": 0.7, "mem": 0.0, "gpu": 0.9})
    'gpu+cpu'
    """
    binding = [name for name, share in lacked.items() if share >= BINDS_FROM]
    return "+".join(sorted(binding, key=lambda name: -lacked[name])) or "none"


def _mean_known(shares: FloatArray | None) -> float:
    """Return the mean over the seeds in which some job waited; NaN if none did."""
    if shares is None or np.isnan(shares).all():
        return math.nan
    return float(np.nanmean(shares))


def _places(runs: pl.DataFrame) -> list[Row]:
    return runs.select(PLACE).unique(maintain_order=True).rows(named=True)
