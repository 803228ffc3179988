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
from pipelines.studies.shrinking.cases import PAPER
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
from pipelines.studies.shrinking.comparison import binding_truths, gained_in_all, largest_in
from pipelines.studies.shrinking.goal import goal_rows, harm_rows, row_harm_rows
from pipelines.studies.shrinking.runs import Outcomes
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

GAINED: Final = ("deployed", "completed")
"""Metrics (names in `claims.FIGURES`) in which the claims about mixes and policies are judged."""

COMPARED: Final = ("deployed", "completed", "completion_rate", "gpu_used", "cpu_used", "mem_used")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The pool of jobs, recommendations, arms and runs that tables are made from."""

    pool: Pool
    advice: Advice
    arms: Mapping[str, Arm]
    outcomes: Outcomes


Table = Callable[[Seen], list[Row]]


def at_paper_load(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the runs at 70 jobs/h, or at the highest load if 70 jobs/h was not simulated."""
    loads = runs["rate_per_h"].unique().sort().to_list()
    return runs.filter(pl.col("rate_per_h") == (PAPER_RATE_PER_H if PAPER_RATE_PER_H in loads else loads[-1]))


def largest_with_most_ctr(seen: Seen) -> list[Row]:
    """Judge for each slowdown model and arm the claim that the gain is largest in the mix with most CTR jobs."""
    return largest_in(seen.outcomes.runs, GAINED, across="mix", of=PAPER, claim="gain largest with most CTR")


def under_every_policy(seen: Seen) -> list[Row]:
    """Judge for each slowdown model and arm the claim that jobs are gained under every queue policy."""
    return gained_in_all(seen.outcomes.runs, GAINED, across="policy", of="fifo", claim="gain under all policies")


def claims_by_truth(seen: Seen) -> list[Row]:
    """Compare our gains with the gains that Yang, Hong and Tang claim; name the slowdown model with the least gain."""
    runs = at_paper_load(seen.outcomes.runs)
    return binding_truths(runs, claim_rows(runs))


def binding(seen: Seen) -> list[Row]:
    """Return which resources waiting jobs lack at 70 jobs/h, and for what reasons unused requests are not shrunk."""
    return binding_rows(harm_rows(at_paper_load(seen.outcomes.runs)), slack_rows(seen.pool, seen.advice))


def parts(seen: Seen) -> list[Row]:
    """Return one row for every arm: its description, its gains, and the jobs it kills or slows down.

    `completed_beside_shrunk` is how many more jobs finish than in the arm `shrunk`, with an interval paired by seed.
    """
    rows: list[Row] = []
    for place in seen.outcomes.runs.select(PLACE).unique(maintain_order=True).rows(named=True):
        arms = paired(seen.outcomes.runs, **place)
        for arm, figures in arms.items():
            row: Row = {**place, "seeds": len(figures["killed"]), "arm": arm, "what": _what(seen.arms, arm)}
            for column in ("deployed", "completed"):
                gained, of_oracle = gain_of(arms, arm, column).scaled(PERCENT), share_of_oracle(arms, arm, column)
                row |= {column: mean(figures[column]).value}
                row |= {f"{column}_gain_pct": gained.value, f"{column}_gain_pct_lo": gained.low}
                row |= {f"{column}_gain_pct_hi": gained.high}
                row |= {f"{column}_of_oracle": of_oracle.value, f"{column}_of_oracle_lo": of_oracle.low}
                row |= {f"{column}_of_oracle_hi": of_oracle.high}
            beside = mean(figures["completed"] - arms[SHRUNK]["completed"])
            row |= {"completed_beside_shrunk": beside.value}
            row |= {"completed_beside_shrunk_lo": beside.low, "completed_beside_shrunk_hi": beside.high}
            for column in ("killed", "stretched_share", "stretch_p99", "stretch_mean"):
                found = mean(figures[column])
                row |= {column: found.value, f"{column}_lo": found.low, f"{column}_hi": found.high}
            rows.append(row)
    return rows


def _what(arms: Mapping[str, Arm], arm: str) -> str:
    return "every job at its request" if arm == REQUESTED else arms[arm].what


_HARM: Final[Mapping[str, Table]] = {
    "harm": lambda seen: harm_rows(at_paper_load(seen.outcomes.runs)),
    "jobs_harmed": lambda seen: row_harm_rows(seen.pool, seen.advice),
}

LOAD_TABLES: Final[Mapping[str, Table]] = {
    "claim": claims_by_truth,
    "bottleneck": lambda seen: bottleneck_rows(at_paper_load(seen.outcomes.runs)),
    **_HARM,
    "goal": lambda seen: goal_rows(at_paper_load(seen.outcomes.runs), SHRUNK),
    "binding": binding,
    "slack": lambda seen: slack_rows(seen.pool, seen.advice),
    "load": lambda seen: level_rows(seen.outcomes.runs, LEVELS),
}
_GAIN: Final[Mapping[str, Table]] = {"gain": lambda seen: claim_rows(seen.outcomes.runs, COMPARED), **_HARM}
MIX_TABLES: Final[Mapping[str, Table]] = {"claim": largest_with_most_ctr, **_GAIN}
POLICY_TABLES: Final[Mapping[str, Table]] = {"claim": under_every_policy, **_GAIN}
ABLATION_TABLES: Final[Mapping[str, Table]] = {
    "part": parts,
    "binding": binding,
    "jobs_harmed": lambda seen: row_harm_rows(seen.pool, seen.advice),
}
