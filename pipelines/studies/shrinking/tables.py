"""The tables of each design by name, with the functions that make their rows from the runs.

Rows of claims and goals are computed in `claims` and `goal`; rows of slack (requests beyond use) here. Called by
`designs`.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from pipelines.simulation.advice import ORACLE, REQUESTED, SHRUNK, Advice
from pipelines.simulation.engine.workload import SECONDS_PER_HOUR
from pipelines.simulation.job_pool import Pool
from pipelines.simulation.settings import PAPER_RATE_PER_H
from pipelines.studies.intervals import mean
from pipelines.studies.shrinking.arms import Arm
from pipelines.studies.shrinking.cases import populations, weights_of
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
from pipelines.studies.shrinking.goal import BINDS_FROM, TRUTH, goal_rows, harm_rows, row_harm_rows
from pipelines.studies.shrinking.runs import SHORT
from pipelines.studies.study import Row
from scheduler_core.types import RESOURCES, FloatArray, Reason, Recommendation

UNIT: Final = {"cpu_cores": "core-hours", "mem_gib": "GiB-hours", "gpus": "GPU-hours"}


def slack_rows(pool: Pool, advice: Advice) -> list[Row]:
    """Return resource-hours: one row per population, arm, task type, resource and reason of the recommendation.

    The hours are averages per arriving job of the mix 5:15:15:65 of Yang, Hong and Tang. Columns: `requested` is the
    request times instances times run time; `needed` is the same with the oracle's target instead of the request, and
    `given` with the arm's target. `left_share` is `given` minus `needed`, divided by the total slack of the resource.
    """
    rows: list[Row] = []
    for (gnn, devices), members in populations(pool).items():
        weights = _weights(pool, members.tolist(), gnn)
        requested, needed = (_resource_h(pool, advice[arm]) * weights[:, None] for arm in (REQUESTED, ORACLE))
        slack = (requested - needed).sum(axis=0)
        for arm, answers in advice.items():
            if arm in (REQUESTED, ORACLE):
                continue
            given = _resource_h(pool, answers) * weights[:, None]
            sums: dict[tuple[str, int, str], FloatArray] = defaultdict(lambda: np.zeros(4))
            for row in members.tolist():
                kind = pool.jobs[row].job.task_type
                for at, resource in enumerate(RESOURCES):
                    reason = str(answers[row].reasons.get(resource, "none"))
                    sums[kind, at, reason] += [1.0, requested[row, at], needed[row, at], given[row, at]]
            for (kind, at, reason), (jobs, asked, need, got) in sorted(sums.items()):
                rows.append(
                    {
                        "gnn": gnn,
                        "devices": devices,
                        "arm": arm,
                        "task_type": kind,
                        "resource": RESOURCES[at],
                        "unit": UNIT[RESOURCES[at]],
                        "reason": reason,
                        "jobs": int(jobs),
                        "requested": asked,
                        "needed": need,
                        "given": got,
                        "left_share": (got - need) / slack[at] if slack[at] > 0.0 else float("nan"),
                    }
                )
    return rows


def _weights(pool: Pool, members: list[int], gnn: str) -> FloatArray:
    """Return the probability of each job of the pool (n,) to be drawn in the mix 5:15:15:65; 0 for non-members."""
    kinds = [pool.jobs[row].job.task_type for row in members]
    mix = {kind: weight for kind, weight in weights_of(gnn).items() if kind in kinds}
    weights = np.zeros(len(pool.jobs))
    for row, kind in zip(members, kinds, strict=True):
        weights[row] = mix[kind] / sum(mix.values()) / kinds.count(kind)
    return weights


def _resource_h(pool: Pool, answers: Sequence[Recommendation]) -> FloatArray:
    """Return resource-hours of each job (n, 3): recommended size times instances times recorded run time."""
    targets = np.array([answer.target.row() for answer in answers], dtype=np.float64)
    hours = [entry.measured.run_s / SECONDS_PER_HOUR * entry.job.instances for entry in pool.jobs]
    return np.asarray(targets * np.array(hours)[:, None], dtype=np.float64)


def binding_rows(harm: Sequence[Row], slack: Sequence[Row]) -> list[Row]:
    """Return one row per population, arm and resource under contention: the jobs that lack it, and the slack left.

    Columns: `lacked_share` is the share of waiting jobs that lack the resource; `binds` tells whether it is at least
    half. `left_share` is the share of the slack that the arm leaves. `left_by` is the reason of recommendations that
    leaves most slack, `left_by_share` the share that it leaves, and `left_by_type` the task type with most of that.
    `floor_share` is the share left because of floors above the use.
    """
    left: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in slack:
        left[row["gnn"], row["devices"], row["arm"], row["resource"]].append(row)
    rows: list[Row] = []
    for place in (row for row in harm if row["truth"] == TRUTH):
        for resource, short in SHORT.items():
            if kept := left.get((place["gnn"], place["devices"], place["arm"], resource)):
                lacked = _number(place[f"{short}_lacked_share"])
                said = {name: place[name] for name in ("gnn", "devices", "truth", "arm")}
                found = {"resource": resource, "lacked_share": lacked, "binds": lacked >= BINDS_FROM}
                rows.append({**said, **found, **_left(kept)})
    return rows


def _left(kept: Sequence[Row]) -> Row:
    by_reason: dict[str, float] = defaultdict(float)
    for row in kept:
        by_reason[str(row["reason"])] += _number(row["left_share"])
    reason = max(by_reason, key=lambda name: by_reason[name])
    most = max((row for row in kept if row["reason"] == reason), key=lambda row: _number(row["left_share"]))
    return {
        "left_share": sum(by_reason.values()),
        "left_by": reason,
        "left_by_share": by_reason[reason],
        "left_by_type": most["task_type"],
        "floor_share": by_reason.get(Reason.FLOOR, 0.0),
    }


def _number(value: object) -> float:
    return float(str(value))


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
