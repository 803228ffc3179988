"""The tables of each design by name, with the functions that make their rows from the runs.

The rows themselves are computed in `claims`, `goal` and `slack`. Called by `designs`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from pipelines.simulation.advice import REQUESTED, SHRUNK, Advice
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.settings import PAPER_RATE_PER_H
from pipelines.studies.intervals import mean
from pipelines.studies.shrinking.arms import Arm
from pipelines.studies.shrinking.claims import (
    PERCENT,
    PLACE,
    bottleneck_rows,
    claim_rows,
    gain_of,
    level_rows,
    paired,
    share_of_oracle,
)
from pipelines.studies.shrinking.comparison import binding_truths
from pipelines.studies.shrinking.goal import goal_rows, harm_rows, row_harm_rows
from pipelines.studies.shrinking.slack import binding_rows, slack_rows
from pipelines.studies.study import Row

LEVELS: Final = (
    "submitted",
    "never_fits",
    "deployed",
    "completed",
    "complete_rate",
    "cpu_allocated_frac",
    "cpu_used_frac",
    "mem_allocated_frac",
    "mem_used_frac",
    "gpu_allocated_frac",
    "gpu_used_frac",
    "cpu_request_cores",
    "killed",
    "stretched_share",
    "stretch_p99",
    "wait_mean_s",
)
"""Columns of the runs whose means over seeds are in the table `load`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The pool of jobs, recommendations, arms and runs that tables are made from."""

    pool: Pool
    advice: Advice
    arms: Mapping[str, Arm]
    runs: pl.DataFrame


Table = Callable[[Seen], list[Row]]


def at_paper_load(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the runs at 70 jobs/h, or at the highest load if 70 jobs/h was not simulated."""
    loads = runs["rate_per_h"].unique().sort().to_list()
    return runs.filter(pl.col("rate_per_h") == (PAPER_RATE_PER_H if PAPER_RATE_PER_H in loads else loads[-1]))


def claims_by_truth(seen: Seen) -> list[Row]:
    """Compare our gains with the gains that Yang, Hong and Tang claim; name the slowdown model with the least gain."""
    runs = at_paper_load(seen.runs)
    return binding_truths(runs, claim_rows(runs))


def binding(seen: Seen) -> list[Row]:
    """Return which resources waiting jobs lack at 70 jobs/h, and for what reasons unused requests are not shrunk."""
    return binding_rows(harm_rows(at_paper_load(seen.runs)), slack_rows(seen.pool, seen.advice))


def parts(seen: Seen) -> list[Row]:
    """Return one row for every arm: its description, its gains, and the jobs it kills or slows down.

    `completed_beside_shrunk` is how many more jobs finish than in the arm `shrunk`, with an interval paired by seed.
    """
    rows: list[Row] = []
    for place in seen.runs.select(PLACE).unique(maintain_order=True).rows(named=True):
        arms = paired(seen.runs, **place)
        for arm, figures in arms.items():
            row: Row = {**place, "seeds": len(figures["killed"]), "arm": arm, "what": _what(seen.arms, arm)}
            for column in ("deployed", "completed"):
                gained, of_oracle = gain_of(arms, arm, column).scaled(PERCENT), share_of_oracle(arms, arm, column)
                row |= {column: mean(figures[column]).value}
                row |= {**gained.columns(f"{column}_gain_pct"), **of_oracle.columns(f"{column}_of_oracle")}
            row |= mean(figures["completed"] - arms[SHRUNK]["completed"]).columns("completed_beside_shrunk")
            for column in ("killed", "stretched_share", "stretch_p99", "stretch_mean"):
                row |= mean(figures[column]).columns(column)
            rows.append(row)
    return rows


def _what(arms: Mapping[str, Arm], arm: str) -> str:
    return "every job at its request" if arm == REQUESTED else arms[arm].what


LOAD_TABLES: Final[Mapping[str, Table]] = {
    "claim": claims_by_truth,
    "bottleneck": lambda seen: bottleneck_rows(at_paper_load(seen.runs)),
    "harm": lambda seen: harm_rows(at_paper_load(seen.runs)),
    "jobs_harmed": lambda seen: row_harm_rows(seen.pool, seen.advice),
    "goal": lambda seen: goal_rows(at_paper_load(seen.runs), SHRUNK),
    "binding": binding,
    "slack": lambda seen: slack_rows(seen.pool, seen.advice),
    "load": lambda seen: level_rows(seen.runs, LEVELS),
}
ABLATION_TABLES: Final[Mapping[str, Table]] = {
    "part": parts,
    "binding": binding,
    "jobs_harmed": lambda seen: row_harm_rows(seen.pool, seen.advice),
}
