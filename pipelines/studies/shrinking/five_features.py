"""Run-time models with the five features of Yang, Hong and Tang, as a predictor for Algorithm 1 without floors.

Features: requested CPU cores, memory and GPUs, and measured network traffic and GPU memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import polars as pl
import xgboost as xgb

from pipelines.models.importance import LEAST_SHARE, Spread, important_resources
from pipelines.models.splits import group_folds
from pipelines.simulation.job_pool import Pool
from pipelines.studies.shrinking.arms import requests_of
from scheduler_core.types import RESOURCES, FloatArray, IntArray, Job, Knowledge, PeakUse, Predictor, RunTimes

MEASURED: Final = ("net_read_bytes_per_s", "gpu_mem_avg_gib")
"""The two features that no request changes."""

REPEATS: Final = 10
ROUNDS: Final = 100
"""Number of trees: with the other parameters, XGBoost's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiveFeatures:
    """Run-time models of the five features, one per task type and fold, as a predictor for the jobs of a pool.

    `place` maps a job to its row in `measured` (n, 2) and `fold_of` (n,). `spreads` holds, by type and fold, the
    importance of each resource and then of the two measured features, on rows outside the fold. `cut` is the share of
    the total importance above which a resource is important.
    """

    models: Mapping[tuple[str, int], xgb.Booster]
    spreads: Mapping[tuple[str, int], Mapping[str, Spread]]
    place: Mapping[Job, int]
    measured: FloatArray
    fold_of: IntArray
    cut: float = LEAST_SHARE

    @classmethod
    def fitted(cls, pool: Pool, *, folds: int, seed: int, nthread: int = 1) -> Self:
        """Train the models; each predicts the jobs of groups that it was not trained on.

        The target is log run time, because Algorithm 1 compares ratios; the trees are XGBoost's defaults.
        """
        jobs = [entry.job for entry in pool.jobs]
        fold_of = np.zeros(len(jobs), dtype=np.int64)
        for number, split in enumerate(group_folds(pool.frame, folds=folds, seed=seed)):
            fold_of[split.test] = number
        rows = features_of(pool)
        measured = rows[:, len(RESOURCES) :]
        log_s = np.log([entry.measured.run_s for entry in pool.jobs])
        kinds = np.array([job.task_type for job in jobs])
        models: dict[tuple[str, int], xgb.Booster] = {}
        spreads: dict[tuple[str, int], dict[str, Spread]] = {}
        for kind in np.unique(kinds).tolist():
            mine = np.flatnonzero(kinds == kind)
            train = {fold: mine[fold_of[mine] != fold] for fold in range(folds)}
            own = {fold: _trained(rows[at], log_s[at], seed, nthread) for fold, at in train.items() if len(at)}
            held = mine[np.isin(fold_of[mine], list(own))]
            models |= {(kind, fold): model for fold, model in own.items()}
            found = _spreads(own, rows[held], log_s[held], fold_of[held], seed)
            spreads |= {(kind, fold): each for fold, each in found.items()}
        place = {job: at for at, job in enumerate(jobs)}
        return cls(models=models, spreads=spreads, place=place, measured=measured, fold_of=fold_of)

    def run_times(self, jobs: Sequence[Job], rows: IntArray, requests: FloatArray) -> RunTimes:
        """Predict `len(rows)` run times: row i is `jobs[rows[i]]` with `requests[i]` (k, 3); p90 equals p50."""
        places = np.array([self.place[job] for job in jobs], dtype=np.int64)[rows]
        matrix, found = np.column_stack([requests, self.measured[places]]), np.full(len(rows), np.nan)
        kinds, folds = np.array([job.task_type for job in jobs])[rows], self.fold_of[places]
        for (kind, fold), model in self.models.items():
            mine = (kinds == kind) & (folds == fold)
            if mine.any():
                found[mine] = np.exp(model.inplace_predict(matrix[mine]))
        return RunTimes(p50=found, p90=found)

    def peak_use(self, jobs: Sequence[Job]) -> PeakUse:
        """Return unknown use for every job: Yang, Hong and Tang predict no use."""
        unknown = np.full(len(jobs), np.nan)
        none = np.zeros(len(jobs), dtype=np.int64)
        return PeakUse(cpu_cores=unknown, mem_gib=unknown, gpus=unknown, gpu_mem_gib=unknown, runs=none)

    def knowledge(self, jobs: Sequence[Job]) -> list[Knowledge]:
        """Return the resources that are important; no range of requests is known."""
        known = {}
        for key, spreads in self.spreads.items():
            others: list[dict[str, str | float | int | None]] = [
                {"feature": name, "mean": spreads[name].mean} for name in MEASURED
            ]
            own = {name: spreads[name] for name in RESOURCES}
            known[key] = Knowledge(important=frozenset(important_resources(own, others, least_share=self.cut)))
        keys = [(job.task_type, int(self.fold_of[self.place[job]])) for job in jobs]
        return [known.get(key, Knowledge()) for key in keys]


def features_of(pool: Pool) -> FloatArray:
    """Return the five features of every job (n, 5): requested cores, GiB and GPUs, then `MEASURED`."""
    measured = pool.frame.select(pl.col(name).cast(pl.Float64) for name in MEASURED).to_numpy()
    return np.column_stack([requests_of([entry.job for entry in pool.jobs]), measured])


def _trained(rows: FloatArray, log_s: FloatArray, seed: int, nthread: int) -> xgb.Booster:
    parameters = {"objective": "reg:squarederror", "nthread": nthread, "seed": seed}
    return xgb.train(parameters, xgb.DMatrix(rows, label=log_s, nthread=nthread), num_boost_round=ROUNDS)


def _predicted(models: Mapping[int, xgb.Booster], rows: FloatArray, fold_of: IntArray) -> FloatArray:
    """Predict the log run time of every row (n,) by the model of its own fold, which was not trained on it."""
    found = np.full(len(rows), np.nan)
    for fold in np.unique(fold_of).tolist():
        found[fold_of == fold] = models[fold].inplace_predict(rows[fold_of == fold])
    return found


def _spreads(
    models: Mapping[int, xgb.Booster], rows: FloatArray, log_s: FloatArray, fold_of: IntArray, seed: int
) -> dict[int, dict[str, Spread]]:
    """Return, by fold, the importance of every feature: the increase of squared error when it is shuffled.

    The importance for a fold leaves the rows of that fold out.
    """
    rng, base = np.random.default_rng(seed), _predicted(models, rows, fold_of)
    increase = np.empty((rows.shape[1], REPEATS, len(rows)))
    for column in range(rows.shape[1]):
        for repeat in range(REPEATS):
            shuffled = rows.copy()
            shuffled[:, column] = shuffled[rng.permutation(len(rows)), column]
            increase[column, repeat] = (_predicted(models, shuffled, fold_of) - log_s) ** 2 - (base - log_s) ** 2
    found = {}
    for fold in models:
        other = fold_of != fold
        growth = increase[:, :, other].mean(axis=2) if other.any() else np.zeros(increase.shape[:2])
        each = zip((*RESOURCES, *MEASURED), growth, strict=True)
        found[fold] = {name: Spread(mean=float(g.mean()), std=float(g.std())) for name, g in each}
    return found


if TYPE_CHECKING:
    SATISFIES: type[Predictor] = FiveFeatures
