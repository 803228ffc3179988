"""Train one run-time model per task type of a trace, and judge it on the jobs submitted after the training cut."""

from dataclasses import asdict
from typing import Final

import numpy as np
import polars as pl

from modelserve.bundle.card import RUNTIME_TARGET
from modelserve.bundle.population import Population
from modelserve.bundle.run_times import QUANTILE_NAMES
from pipelines.errors import TrainingError
from pipelines.models import boosting, metrics
from pipelines.models.boosting import Matrix
from pipelines.models.evaluate import enough, outcome, record_of, table
from pipelines.models.examples import Examples, Setting, fingerprint, sized_rows, support_of
from pipelines.models.fitted import FEATURES, Fitted, combination_at, fit_runtime
from pipelines.models.importance import REPEATS, Importance, Spread, important_resources, permuted, permuted_requests
from pipelines.models.judging import COMBINED, EVALUATION_SCHEMA, judge
from pipelines.models.metrics import QUANTILES, FloatArray, Forecast
from pipelines.models.model import TrainedModel
from pipelines.models.recipes import Recipe
from pipelines.models.splits import time_later

__all__ = ["train_runtime"]

NOT_METRICS: Final = frozenset({"model", "trace", "task_type", "split"})


def train_runtime(setting: Setting, task_type: str, recipe: Recipe | None = None) -> TrainedModel:
    """Train and judge the run-time model of one task type, and measure its importances.

    With few jobs that ended before the cut, the model grows no trees and answers from the history.
    """
    recipe, until, seed, nthread = recipe or Recipe(), setting.cut, setting.seed, setting.threads
    examples = setting.examples(task_type, FEATURES, relative=True)
    split = time_later(examples.jobs, until=until)
    if not len(split.train):
        raise TrainingError(
            f"no job of {setting.trace} ended before {until.isoformat()}: move --until later, or ingest more jobs"
        )
    forecasts: dict[str, Forecast] = {}
    if enough(split):
        result = outcome(setting, examples, split, recipe)
        fitted, forecasts = result.fitted, result.forecasts
        evaluation = table(setting, examples, [split], [result])
    else:
        fitted = fit_runtime(examples, split, recipe, until=until, seed=seed, nthread=nthread)
        evaluation = pl.DataFrame(schema=EVALUATION_SCHEMA)
    answer = judge("runtime", evaluation).answer
    combination = combination_at(examples, fitted, until, only=None if answer == COMBINED else (answer,))
    importances, requests = _importances(examples, fitted, seed=seed)
    trained = examples.jobs[fitted.trained]
    return TrainedModel(
        name=f"runtime.{setting.trace}.{task_type}",
        kind="runtime",
        trace=setting.trace,
        task_type=task_type,
        contract=fitted.contract,
        boosters={RUNTIME_TARGET: fitted.booster},
        quantiles=QUANTILES,
        offsets=dict.fromkeys(QUANTILE_NAMES.values(), 0.0),
        combination=combination,
        forest=fitted.forest if "forest" in combination.members else None,
        history=setting.served,
        relative=True,
        importances=importances,
        important=important_resources(requests, importances),
        support=support_of(trained),
        params={
            "features": FEATURES,
            "half_life_days": str(recipe.half_life_days),
            **asdict(recipe.boosting),
            "rounds": fitted.rounds,
            "seed": seed,
            "nthread": nthread,
        },
        resource_importances=[
            {"resource": each, "mean": spread.mean, "std": spread.std, "repeats": REPEATS, "sign": spread.sign}
            for each, spread in requests.items()
        ],
        metrics={**metrics_of(evaluation, answer), **{f"importance_{r}": s.mean for r, s in requests.items()}},
        evaluation=evaluation,
        record=record_of(examples, fitted, forecasts),
        until=until,
        rows=len(fitted.trained),
        data_fingerprint=fingerprint(trained),
        population=Population.of(fitted.matrix[fitted.trained], fitted.contract) if len(fitted.trained) else None,
    )


def metrics_of(evaluation: pl.DataFrame, answer: str = COMBINED) -> dict[str, float]:
    """Return the metrics of the answer that serves, by column name; empty if nothing was judged."""
    own = evaluation.filter(pl.col("model") == answer).to_dicts()
    if not own:
        return {}
    return {name: float(value) for name, value in own[0].items() if name not in NOT_METRICS and value is not None}


def _importances(examples: Examples, fitted: Fitted, *, seed: int) -> tuple[list[Importance], dict[str, Spread]]:
    """Measure permutation importance of XGBoost by feature and by resource, on judged rows without parameter servers.

    If no rows were judged, use the early-stopping rows, although the final fit was trained on them.
    """
    rows = sized_rows(examples.jobs, fitted.split.test if len(fitted.split.test) else fitted.split.stop)
    # Pinball loss depends on differences only, so subtract the reference from targets instead of adding it to outputs.
    target = examples.log_y[rows, None] - examples.reference[rows]

    def predict(matrix: Matrix) -> FloatArray:
        return boosting.predict(fitted.booster, matrix)

    def loss(matrix: Matrix, wanted: FloatArray) -> float:
        answer = predict(matrix)
        pinball = [metrics.pinball_rows(wanted[:, i], answer[:, i], tau) for i, tau in enumerate(QUANTILES)]
        return float(np.mean(pinball))

    importances = permuted(fitted.matrix[rows], target, fitted.columns, [fitted.booster], loss=loss, seed=seed)
    requests = permuted_requests(
        examples.features[rows],
        examples.jobs[rows],
        target,
        fitted.contract,
        loss=loss,
        predict=lambda matrix: predict(matrix)[:, 0],
        seed=seed,
    )
    return importances, requests
