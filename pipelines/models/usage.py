"""Train quantile models of CPU, GPU, peak memory and peak GPU memory per instance, for traces that measure use.

Requests are never shrunk below the predicted quantiles, so the models are judged by coverage. No file is written here.
Called by `pipelines.models.retrain` and the shrinking study.
"""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Final

import numpy as np
import polars as pl

from features.history import History
from features.vocabulary import Status
from modelserve.bundle.population import Population
from pipelines.errors import TrainingError
from pipelines.models import boosting, metrics
from pipelines.models.boosting import Columns, Matrix
from pipelines.models.evaluate import default_until
from pipelines.models.examples import (
    By,
    Examples,
    Histories,
    contract_of,
    encoded,
    examples_of,
    fingerprint,
    support_of,
    task_types,
)
from pipelines.models.fitted import LEAST_TRAINED
from pipelines.models.importance import Importance, permuted
from pipelines.models.judging import MODEL
from pipelines.models.metrics import FloatArray
from pipelines.models.model import TrainedModel
from pipelines.models.peaks import Peak, UsageRecipe, alike_of, fit_peak, learnable, log1p_use
from pipelines.models.splits import time_later

__all__ = ["train_usage"]

MEASURED_COLUMN: Final = {
    "cpu_cores": "used_cpu_cores",
    "mem_gib": "mem_max_gib",
    "gpus": "used_gpus",
    "gpu_mem_gib": "gpu_mem_max_gib",
}
"""Column of the `usage` table that measures each target: mean use for CPU and GPU, peak use for the memories."""

USAGE_EVALUATION_SCHEMA: Final[dict[str, type[pl.DataType]]] = {
    "model": pl.String,
    "trace": pl.String,
    "task_type": pl.String,
    "split": pl.String,
    "target": pl.String,
    "n": pl.Int64,
    "level": pl.Float64,
    "coverage": pl.Float64,
    "pinball": pl.Float64,
    "over": pl.Float64,
}
"""Columns of a usage evaluation, one row per target.

`coverage` is the share of held-out rows whose use is at most the prediction. `pinball` is the pinball loss of log1p use
at the quantile `level`. `over` is the sum of the predictions divided by the sum of the uses: the cost of the coverage.
"""


_REPEATS: Final = 3
"""Number of shuffles per feature; small, because each shuffle runs the booster of every target."""


def train_usage(
    jobs: pl.DataFrame,
    usage: pl.DataFrame,
    *,
    trace: str,
    by: By = "kind",
    until: datetime | None = None,
    types: Sequence[str] | None = None,
    recipe: UsageRecipe | None = None,
    seed: int = 0,
    nthread: int = 1,
    histories: Histories | None = None,
) -> list[TrainedModel]:
    """Train the usage model of every task type with at least `LEAST_TRAINED` measured jobs that ended before the cut.

    A job's use is known only when it ends. So jobs that ended after the cut are neither trained on nor in the served
    history. The memory of a job that was killed for memory is a lower bound. Use differs by role, so `role` is a
    feature. A target measured in too few jobs gets no booster. Each model also contains upper bounds of the use of
    similar jobs (`peaks.alike_of`); requests are not shrunk below them.

    Parameters
    ----------
    jobs, usage
        Canonical tables of one trace.
    by, until, types, histories
        As in `runtime.train_runtime`.

    Raises
    ------
    TrainingError
        No type has enough measured jobs.
    """
    recipe = recipe or UsageRecipe()
    until = until or default_until(jobs)
    histories = histories or Histories.of(jobs, usage, until)
    whole, served = histories.whole, histories.served
    models = []
    for task_type in types or task_types(jobs, by):
        examples = examples_of(jobs, usage, task_type, by=by, history=whole, names=recipe.features)
        model = _train_type(examples, recipe, trace=trace, until=until, history=served, seed=seed, nthread=nthread)
        if model is not None:
            models.append(model)
    if not models:
        raise TrainingError(
            f"no task type of {trace} has {LEAST_TRAINED} measured jobs that ended before {until.isoformat()}: "
            "usage models need jobs with measured use; move --until later, or bring more jobs"
        )
    return models


def _train_type(
    examples: Examples,
    recipe: UsageRecipe,
    *,
    trace: str,
    until: datetime,
    history: History,
    seed: int,
    nthread: int,
) -> TrainedModel | None:
    split = time_later(examples.jobs, until=until)
    uses = {target: log1p_use(examples.jobs, column) for target, column in MEASURED_COLUMN.items()}
    killed = (examples.jobs["status"] == Status.OOM).fill_null(value=False).to_numpy()
    bounded = {target: killed & (target == "mem_gib") for target in uses}
    measured = np.column_stack([~np.isnan(log1p) for log1p in uses.values()])
    trained = split.train[measured[split.train].any(axis=1)]
    if len(trained) < LEAST_TRAINED:
        return None
    contract = contract_of(examples.features, trained)
    matrix, columns = encoded(examples.features, contract)
    fitted = {
        target: fit_peak(
            examples, split, log1p, bounded[target], matrix, columns, recipe, until=until, seed=seed, nthread=nthread
        )
        for target, log1p in uses.items()
        if learnable(split, np.where(bounded[target], np.nan, log1p), LEAST_TRAINED)
    }
    if not fitted:
        return None
    evaluation = _evaluation(fitted, recipe, trace=trace, task_type=examples.task_type)
    return TrainedModel(
        name=f"usage.{trace}.{examples.task_type}",
        kind="usage",
        trace=trace,
        task_type=examples.task_type,
        contract=contract,
        boosters={target: f.booster for target, f in fitted.items()},
        quantiles=(recipe.level,),
        offsets={target: f.offset for target, f in fitted.items()},
        history=history,
        importances=_importances(fitted, matrix, columns, recipe, seed=seed),
        important=(),
        support=support_of(examples.jobs[trained]),
        alike=alike_of(examples.jobs[trained], MEASURED_COLUMN, recipe.alike),
        params={
            **asdict(recipe.boosting),
            "features": recipe.features,
            "level": recipe.level,
            "rounds": max(f.rounds for f in fitted.values()),
            "seed": seed,
            "nthread": nthread,
        },
        metrics={
            f"{row['target']}_{name}": float(row[name])
            for row in evaluation.to_dicts()
            for name in ("coverage", "pinball", "over")
        },
        evaluation=evaluation,
        until=until,
        rows=len(trained),
        data_fingerprint=fingerprint(examples.jobs[trained]),
        population=Population.of(matrix[trained], contract),
    )


def _evaluation(fitted: dict[str, Peak], recipe: UsageRecipe, *, trace: str, task_type: str) -> pl.DataFrame:
    rows = []
    for target, f in fitted.items():
        used = f.log1p[f.test]
        if len(used) == 0:
            continue
        total = float(np.expm1(used).sum())
        rows.append(
            {
                "model": MODEL,
                "trace": trace,
                "task_type": task_type,
                "split": "time",
                "target": target,
                "n": len(used),
                "level": recipe.level,
                "coverage": float(np.mean(used <= f.answered)),
                "pinball": metrics.pinball(used, f.answered, recipe.level),
                "over": float(np.expm1(f.answered).sum()) / total if total > 0 else float("nan"),
            }
        )
    return pl.DataFrame(rows, schema=USAGE_EVALUATION_SCHEMA)


def _importances(
    fitted: dict[str, Peak], matrix: Matrix, columns: Columns, recipe: UsageRecipe, *, seed: int
) -> list[Importance]:
    """Measure permutation importances on rows with all targets measured.

    The loss is summed over the targets, so no single booster gives the sign: it is null.
    """
    known = ~np.isnan(np.column_stack([f.log1p for f in fitted.values()])).any(axis=1)
    later = np.intersect1d(np.concatenate([f.test for f in fitted.values()]), np.flatnonzero(known))
    rows = later if len(later) else np.flatnonzero(known)
    uses = np.column_stack([f.log1p[rows] for f in fitted.values()])
    boosters = [f.booster for f in fitted.values()]

    def loss(shown: Matrix, wanted: FloatArray) -> float:
        answers = [boosting.predict(booster, shown)[:, 0] for booster in boosters]
        return sum(metrics.pinball(wanted[:, i], answer, recipe.level) for i, answer in enumerate(answers))

    return permuted(matrix[rows], uses, columns, boosters, loss=loss, seed=seed, repeats=_REPEATS)
