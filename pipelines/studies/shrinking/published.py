"""Tables 1 to 3, section 2.1 and equation 13 of Yang, Hong and Tang beside the same of a pool of jobs."""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
import xgboost as xgb
from scipy.optimize import linprog
from scipy.sparse import block_diag, hstack, identity, vstack
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import PredefinedSplit, cross_val_predict

from pipelines.models.splits import group_folds, leak_key
from pipelines.simulation.advice import Advice
from pipelines.simulation.engine.workload import SECONDS_PER_HOUR
from pipelines.simulation.job_pool import Pool, one_instance_each
from pipelines.simulation.paired_runs import paired_runs
from pipelines.simulation.workloads import gangs_of
from pipelines.studies.compare import ARM, mean, ratio
from pipelines.studies.shrinking.five_features import features_of
from pipelines.studies.shrinking.runs import Plan
from pipelines.studies.study import Row
from scheduler_core.cluster import Machine, paper_machines
from scheduler_core.types import FloatArray

PUBLISHED: Final = Path(__file__).resolve().parents[3] / "data" / "published" / "paper.toml"

TABLE_3: Final = {
    ("xgboost", "ctr"): (0.16, 0.13), ("xgboost", "cv"): (1.45, 0.15), ("xgboost", "nlp"): (0.75, 0.11),
    ("random_forest", "ctr"): (0.17, 0.14), ("random_forest", "cv"): (1.46, 0.16),
    ("random_forest", "nlp"): (1.01, 0.15),
}  # fmt: skip
"""Published MAE (its unit is not stated; hours fit) and WMAPE, by model and task type (CTR, ResNet, NMT)."""

STAND_IN: Final = {"cv": "ResNet", "nlp": "NMT", "gnn": "GraphLearn", "ctr": "CTR"}
"""Workload in the mixes of Yang, Hong and Tang by task type of the pool."""


def _published(table: str) -> Iterator[dict[str, Any]]:
    """Yield the published rows of a table, as `data/published/paper.toml` states them."""
    rows = tomllib.loads(PUBLISHED.read_text(encoding="utf-8"))["rows"]
    return (row for row in rows if table in row["source"])


def table_1(pool: Pool) -> list[Row]:
    """Return the mean use of every task type in cores, GPUs in percent, and GiB, beside Table 1."""
    rows: list[Row] = []
    for row in _published("Table 1"):
        kind, measure = row["where"]["task_type"], row["where"]["measure"]
        own = pool.frame.filter(pl.col("task_type") == kind)
        scale = 100.0 if measure == "used_gpus" else 1.0
        found = own[measure].mean() if len(own) else None
        rows.append(
            {"task_type": kind, "paper_type": STAND_IN[kind], "workloads": _workloads(own), "jobs": len(own)}
            | {"measure": measure, "paper": float(row["published"]["mean"].rstrip(" %"))}
            | {"found": None if found is None else scale * float(str(found))}
        )
    return rows


def _workloads(jobs: pl.DataFrame) -> str:
    """Return the workloads behind a task type with their numbers of jobs, the most frequent first."""
    counts = jobs["workload"].drop_nulls().value_counts(sort=True).sort("count", "workload", descending=[True, False])
    return ", ".join(f"{count} {name}" for name, count in counts.iter_rows())


def table_2(jobs: pl.DataFrame, machines: pl.DataFrame, trace: str) -> list[Row]:
    """Return Table 2, and for the studied trace the GPUs of its machines and the days from first to last submission."""
    own = {"GPUs": float(machines["gpus"].fill_null(0).sum()) if len(machines) else None}
    times = jobs["submit_ts"].drop_nulls()
    own["days"] = (times.max() - times.min()).total_seconds() / 86400.0 if len(times) else None  # type: ignore[operator,union-attr]  # moments
    return [
        {"of": (of := str(row["of"]).partition("_")[0]), "what": (what := row["source"].partition("(")[2].rstrip(")"))}
        | {"paper": next(iter(row["published"].values()))}
        | {"found": own.get(what.partition(",")[0]) if trace.startswith(of) else None}
        for row in _published("Table 2")
    ]


def table_3(pool: Pool, *, folds: int, seed: int, threads: int) -> list[Row]:
    """Return MAE in hours and WMAPE of XGBoost and of a random forest with the five features, beside Table 3.

    Each job is predicted out of fold: in a split by groups no model saw the job's group; in a random one recurring jobs
    are on both sides. Both learn log run time with their libraries' defaults.
    """
    kinds, hours = pool.frame["task_type"].to_numpy(), np.array([each.measured.run_s for each in pool.jobs]) / 3600.0
    features, by_group = features_of(pool), np.zeros(len(hours), dtype=np.int64)
    for number, fold in enumerate(group_folds(pool.frame, folds=folds, seed=seed)):
        by_group[fold.test] = number
    splits = {"group": by_group, "random": np.random.default_rng(seed).permutation(len(hours)) % folds}
    models = {
        "xgboost": xgb.XGBRegressor(n_jobs=threads, random_state=seed),
        "random_forest": RandomForestRegressor(n_jobs=threads, random_state=seed),
    }
    rows: list[Row] = []
    for (name, kind), (mae, wmape) in TABLE_3.items():
        for split, fold_of in splits.items():
            mine = np.flatnonzero(kinds == kind)
            if len(np.unique(fold_of[mine])) < 2:
                continue
            logs = cross_val_predict(
                models[name], features[mine], np.log(hours[mine]), cv=PredefinedSplit(fold_of[mine])
            )
            error = np.abs(np.exp(logs) - hours[mine])
            rows.append(
                {"model": name, "task_type": kind, "paper_type": STAND_IN[kind], "split": split, "jobs": len(mine)}
                | {"paper_mae": mae, "mae_h": float(error.mean())}
                | {"paper_wmape": wmape, "wmape": float(error.sum() / hours[mine].sum())}
            )
    return rows


def classes(pool: Pool) -> list[Row]:
    """Return the number of job groups that are GPU-, CPU- and memory-intensive, by task type (section 2.1).

    A group is named after the resource of which its jobs on average use the largest share of one machine of the
    paper's cluster; the section states no rule.
    """
    machine = paper_machines()[0]
    shares = {
        "cpu": pl.col("used_cpu_cores") / machine.cpu_cores,
        "memory": pl.col("mem_avg_gib") / machine.mem_gib,
        "gpu": pl.col("used_gpus") / machine.gpus,
    }
    groups = (
        pool.frame.with_columns(key=leak_key(pool.frame), **shares)
        .group_by("task_type", "key", maintain_order=True)
        .agg(pl.col(list(shares)).mean())
    )
    names = np.array(list(shares))
    amounts: FloatArray = groups.select(list(shares)).to_numpy()
    intensive = names[amounts.argmax(axis=1)]
    kinds = groups["task_type"].to_numpy()
    return [
        {"task_type": kind, "groups": int((kinds == kind).sum())}
        | {f"{name}_intensive": int(((kinds == kind) & (intensive == name)).sum()) for name in names.tolist()}
        for kind in STAND_IN
        if (kinds == kind).any()
    ]


QUEUE_H: Final = 2.0
"""Hours of arrivals that wait in the round, which starts on empty machines."""

START_S: Final = 1e-3
"""Seconds for which the round is simulated: only its starts count."""


def most_placed(demands: FloatArray, machines: Sequence[Machine]) -> float:
    """Return an upper bound of the sum of x_ij of equation 13: the optimum with jobs that may be split, rounded down.

    `demands` (n, 3) are the requests of single-instance jobs; every p_j is 1. A job is placed once at most, and no
    machine gives more than it has.
    """
    capacity = np.array([[each.cpu_cores, each.mem_gib, each.gpus] for each in machines], dtype=np.float64).ravel()
    once = hstack([identity(len(demands), format="csr")] * len(machines))
    taken = vstack([block_diag([demands.T] * len(machines)), once], format="csr")
    limits = np.concatenate([capacity, np.ones(len(demands))])
    gain = -np.ones(len(demands) * len(machines))
    found = linprog(gain, A_ub=taken, b_ub=limits, bounds=(0.0, 1.0), method="highs")
    return float(np.floor(1e-6 - np.asarray(found.fun, dtype=np.float64)))


def round_rows(plan: Plan, advice: Advice, seeds: Sequence[int]) -> list[Row]:
    """Return for each arm the jobs that a greedy round (FIFO, best fit) places, and the bound of equation 13.

    `of_bound` is their ratio with its interval over seeds; the share of the optimum is at least as large.
    """
    pool, machines = one_instance_each(plan.pool), plan.settings.cluster.machines
    gangs, began = gangs_of(pool.frame), replace(plan.settings, horizon_s=START_S)
    queued = replace(plan, settings=replace(plan.settings, horizon_s=QUEUE_H * SECONDS_PER_HOUR))
    placed: dict[str, list[float]] = {arm: [] for arm in advice}
    best: dict[str, list[float]] = {arm: [] for arm in advice}
    waiting: list[int] = []
    for arrivals in (arrivals for seed in seeds for _, _, arrivals in queued.cases(seed)):
        waiting.append(len(arrivals.picks))
        at_once = replace(arrivals, at_s=np.zeros(len(arrivals.picks)))
        for run in paired_runs(pool, gangs, advice, ("unchanged",), [at_once], began):
            if run.arm in advice:
                placed[run.arm].append(run.metrics.deployed)
                demands = np.array([advice[run.arm][row].target.row() for row in arrivals.picks.tolist()])
                best[run.arm].append(most_placed(demands, machines))
    rows: list[Row] = []
    for arm, bounds in best.items():
        row: Row = {ARM: arm, "waiting": float(np.mean(waiting)), **mean(placed[arm]).columns("placed")}
        rows.append(row | mean(bounds).columns("bound") | ratio(placed[arm], bounds).columns("of_bound"))
    return rows
