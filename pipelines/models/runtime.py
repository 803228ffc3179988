"""Train one run-time model per task type of a trace, and judge it on the jobs submitted after the training cut.

Fitting is in `fitted`, judging in `evaluate`; no file is written here. Called by `pipelines.models.retrain` and the
shrinking study.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final

import numpy as np
import polars as pl

from features.history import History
from modelserve.bundle.card import RUNTIME_TARGET
from modelserve.bundle.population import Population
from modelserve.bundle.run_times import QUANTILE_NAMES
from pipelines.errors import TrainingError
from pipelines.models import boosting, metrics
from pipelines.models.boosting import Matrix
from pipelines.models.evaluate import default_until, empty_table, enough, outcome, table
from pipelines.models.examples import (
    By,
    Examples,
    Histories,
    examples_of,
    fingerprint,
    sized_rows,
    support_of,
    task_types,
)
from pipelines.models.fit_record import FitRecord, record_of
from pipelines.models.fitted import Fitted, Recipe, combination_at, fit_runtime
from pipelines.models.importance import (
    LEAST_SHARE,
    REPEATS,
    Importance,
    Spread,
    important_resources,
    permuted,
    permuted_requests,
)
from pipelines.models.judging import COMBINED, judge
from pipelines.models.metrics import QUANTILES, FloatArray
from pipelines.models.model import TrainedModel
from pipelines.models.splits import time_later

__all__ = ["train_runtime"]

NOT_METRICS: Final = frozenset({"model", "trace", "task_type", "split"})


def train_runtime(
    jobs: pl.DataFrame,
    usage: pl.DataFrame | None = None,
    *,
    trace: str,
    by: By = "kind",
    until: datetime | None = None,
    types: Sequence[str] | None = None,
    recipe: Recipe | None = None,
    least_share: float = LEAST_SHARE,
    seed: int = 0,
    nthread: int = 1,
    histories: Histories | None = None,
) -> list[TrainedModel]:
    """Train the run-time model of every task type with a job that ended before the cut.

    With few such jobs the model grows no trees and answers from the history.

    Parameters
    ----------
    jobs, usage
        Canonical tables of one trace.
    by
        `kind` (task type) or `workload` (raw tag).
    until
        The training cut: the model is trained only on jobs that ended before it, and judged on jobs submitted after
        it. The judged jobs do not influence the model. Default: `evaluate.default_until`.
    least_share
        Minimum share of the total importance from which a resource counts as important.
    histories
        Those of `jobs` and `usage` at the cut, if they are already built.

    Returns
    -------
    models
        One per type, most jobs first.

    Raises
    ------
    TrainingError
        No job ended before the cut.
    """
    recipe = recipe or Recipe()
    until = until or default_until(jobs)
    histories = histories or Histories.of(jobs, usage, until)
    whole, served = histories.whole, histories.served
    models = []
    for task_type in types or task_types(jobs, by):
        examples = examples_of(
            jobs, usage, task_type, by=by, history=whole, names=recipe.features, relative=recipe.relative
        )
        split = time_later(examples.jobs, until=until)
        if not len(split.train):
            continue
        if enough(split):
            result = outcome(examples, split, recipe, until=until, seed=seed, nthread=nthread)
            fitted, evaluation = result.fitted, table(examples, [split], [result], trace=trace, seed=seed)
            record = record_of(examples, fitted, result.forecasts)
        else:
            fitted = fit_runtime(examples, split, recipe, until=until, seed=seed, nthread=nthread)
            evaluation, record = empty_table(), record_of(examples, fitted, {})
        learnt = _Learnt(
            examples=examples,
            fitted=fitted,
            evaluation=evaluation,
            record=record,
            until=until,
            history=served,
        )
        params = _params(recipe, fitted, seed=seed, nthread=nthread)
        models.append(_model(learnt, recipe, params, trace=trace, least_share=least_share, seed=seed))
    if not models:
        raise TrainingError(
            f"no job of {trace} ended before {until.isoformat()}: move --until later, or ingest more jobs"
        )
    return models


@dataclass(frozen=True, slots=True, kw_only=True)
class _Learnt:
    """The fitted model of one task type with its examples, its evaluation and the history at the cut."""

    examples: Examples
    fitted: Fitted
    evaluation: pl.DataFrame
    record: FitRecord
    until: datetime
    history: History


def _model(
    learnt: _Learnt,
    recipe: Recipe,
    params: dict[str, str | float | int],
    *,
    trace: str,
    least_share: float,
    seed: int,
) -> TrainedModel:
    """Measure the importances of a fitted model, and return the trained model with all its metadata."""
    examples, fitted, evaluation = learnt.examples, learnt.fitted, learnt.evaluation
    answer = judge("runtime", evaluation).answer
    only = None if answer == COMBINED else (answer,)
    combination = combination_at(examples, fitted, learnt.until, only=only)
    importances, requests = _importances(examples, fitted, seed=seed)
    return TrainedModel(
        name=f"runtime.{trace}.{examples.task_type}",
        kind="runtime",
        trace=trace,
        task_type=examples.task_type,
        contract=fitted.contract,
        boosters={RUNTIME_TARGET: fitted.booster},
        quantiles=QUANTILES,
        offsets=dict.fromkeys(QUANTILE_NAMES.values(), 0.0),
        combination=combination,
        forest=fitted.forest if "forest" in combination.members else None,
        history=learnt.history,
        relative=recipe.relative,
        importances=importances,
        important=important_resources(requests, importances, least_share=least_share),
        support=support_of(examples.jobs[fitted.trained]),
        params=params,
        resource_importances=[
            {"resource": each, "mean": spread.mean, "std": spread.std, "repeats": REPEATS, "sign": spread.sign}
            for each, spread in requests.items()
        ],
        metrics={**metrics_of(evaluation, answer), **{f"importance_{r}": s.mean for r, s in requests.items()}},
        evaluation=evaluation,
        record=learnt.record,
        until=learnt.until,
        rows=len(fitted.trained),
        data_fingerprint=fingerprint(examples.jobs[fitted.trained]),
        population=Population.of(fitted.matrix[fitted.trained], fitted.contract) if len(fitted.trained) else None,
    )


def metrics_of(evaluation: pl.DataFrame, answer: str = COMBINED) -> dict[str, float]:
    """Return the metrics of the answer that serves, by column name; empty if nothing was judged."""
    own = evaluation.filter(pl.col("model") == answer).to_dicts()
    if not own:
        return {}
    return {name: float(value) for name, value in own[0].items() if name not in NOT_METRICS and value is not None}


def _importances(examples: Examples, fitted: Fitted, *, seed: int) -> tuple[list[Importance], dict[str, Spread]]:
    """Measure permutation importance by feature and by resource, on the judged rows without parameter servers.

    They are those of the XGBoost member. If no rows were judged, use the early-stopping rows, although the final fit
    was trained on them.
    """
    rows = sized_rows(examples.jobs, fitted.split.test if len(fitted.split.test) else fitted.split.stop)
    # Pinball loss depends on differences only, so subtract the reference from targets instead of adding it to outputs.
    target = examples.log_y[rows, None] - examples.reference[rows]

    def loss(matrix: Matrix, wanted: FloatArray) -> float:
        answer = boosting.predict(fitted.booster, matrix)
        pinball = [metrics.pinball_rows(wanted[:, i], answer[:, i], tau) for i, tau in enumerate(QUANTILES)]
        return float(np.mean(pinball))

    importances = permuted(fitted.matrix[rows], target, fitted.columns, [fitted.booster], loss=loss, seed=seed)
    requests = permuted_requests(
        examples.features[rows],
        examples.jobs[rows],
        target,
        fitted.contract,
        loss=loss,
        predict=lambda matrix: boosting.predict(fitted.booster, matrix)[:, 0],
        seed=seed,
    )
    return importances, requests


def _params(recipe: Recipe, fitted: Fitted, *, seed: int, nthread: int) -> dict[str, str | float | int]:
    """Return the parameters to record: the recipe's choices, the trees' under XGBoost's names, rounds and seed."""
    chosen = {k: v if isinstance(v, str | bool) else str(v) for k, v in asdict(recipe).items() if k != "boosting"}
    grown = asdict(recipe.boosting)
    return {**chosen, **grown, "rounds": fitted.rounds, "seed": seed, "nthread": nthread}
