"""Train one run-time model per task type of a trace, and judge it on the jobs submitted after the training cut."""

from dataclasses import asdict
from typing import Final

import numpy as np
import polars as pl

from modelserve.bundle.card import FITTED, RESPONSE, RUNTIME_TARGET
from modelserve.bundle.combination import Combination, forecasts_of
from modelserve.bundle.served import QUANTILE_NAMES
from pipelines.errors import TrainingError
from pipelines.models import boosting, metrics
from pipelines.models.boosting import Matrix
from pipelines.models.evaluate import enough, learning_curves, outcome, table
from pipelines.models.examples import Examples, IntArray, Setting, fingerprint, sized_rows, support_of
from pipelines.models.fitted import FEATURES, UNTRAINED, Fitted, combination_at, fit_runtime
from pipelines.models.importance import (
    REPEATS,
    Importance,
    Spread,
    gain_shares,
    important_resources,
    permuted,
    permuted_requests,
    sample_of,
)
from pipelines.models.judging import COMBINED, EVALUATION_SCHEMA, judge
from pipelines.models.metrics import QUANTILES, FloatArray, Forecast
from pipelines.models.model import TrainedModel
from pipelines.models.recipes import Recipe
from pipelines.models.response import response_of
from pipelines.models.splits import time_later

__all__ = ["train_runtime"]

NO_COLUMNS: Final = "run times of ended jobs answer alone, without columns to permute"
"""Why a model has no importances."""
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
    if enough(split):
        result = outcome(setting, examples, split, recipe)
        fitted = result.fitted
        evaluation = table(setting, examples, [split], [result])
    else:
        fitted = fit_runtime(examples, split, recipe, until=until, seed=seed, nthread=nthread)
        evaluation = pl.DataFrame(schema=EVALUATION_SCHEMA)
    verdict = judge("runtime", evaluation)
    answer = verdict.answer
    only = {COMBINED: None, "history": UNTRAINED}.get(answer, (answer,))
    combination = combination_at(examples, fitted, until, only=only)
    trees = not FITTED.isdisjoint(combination.members)
    importances, requests = _importances(examples, fitted, combination, seed=seed)
    response, booster, sure = response_of(examples, setting.whole, fitted.trained, seed=seed, nthread=nthread)
    if not response.trusted:  # a forecast that is not proven holds no request back
        sure = important_resources(requests, importances) if verdict.proven else ()
    leads = {f"response_{name}": getattr(response, name) for name in ("lead", "lead_lo", "lead_hi")}
    trained = examples.jobs[fitted.trained]
    return TrainedModel(
        name=f"runtime.{setting.trace}.{task_type}",
        kind="runtime",
        trace=setting.trace,
        task_type=task_type,
        contract=fitted.contract,
        # If the trees do not answer, they must not change requests either.
        boosters={
            RUNTIME_TARGET: fitted.booster if trees else boosting.constant(fitted.columns, quantiles=QUANTILES),
            **({} if booster is None else {RESPONSE: booster}),
        },
        quantiles=QUANTILES,
        offsets=dict.fromkeys(QUANTILE_NAMES.values(), 0.0),
        combination=combination,
        forest=fitted.forest if "forest" in combination.members else None,
        typical_s=fitted.typical_s,
        history=setting.whole,
        relative=True,
        importances=importances,
        important=sure,
        response=response,
        no_importances=None if importances else NO_COLUMNS,
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
        metrics={
            **metrics_of(evaluation, answer),
            **{f"importance_{resource}": spread.mean for resource, spread in requests.items()},
            **{name: value for name, value in leads.items() if value is not None},
        },
        evaluation=evaluation,
        curves=learning_curves(examples, fitted, split.test if enough(split) else split.test[:0]),
        until=until,
        rows=len(fitted.trained),
        data_fingerprint=fingerprint(trained),
    )


def metrics_of(evaluation: pl.DataFrame, answer: str = COMBINED) -> dict[str, float]:
    """Return the metrics of the answer that serves, by column name; empty if nothing was judged."""
    own = evaluation.filter(pl.col("model") == answer).to_dicts()
    if not own:
        return {}
    return {name: float(value) for name, value in own[0].items() if name not in NOT_METRICS and value is not None}


def _importances(
    examples: Examples, fitted: Fitted, combination: Combination, *, seed: int
) -> tuple[list[Importance], dict[str, Spread]]:
    """Measure permutation importance of the forecast that serves, by feature and by resource; empty without columns.

    The rows are judged rows without parameter servers. Without judged rows, they are the early-stopping rows, although
    the final fit was trained on these. The weights of the members are those at the cut.
    """
    members, forest = combination.members, fitted.forest
    if FITTED.isdisjoint(members):
        return [], {}
    later = fitted.split.test if len(fitted.split.test) else fitted.split.stop
    rows = sample_of(sized_rows(examples.jobs, later), seed=seed)
    reference, history, log_y = examples.reference[rows], examples.history[rows], examples.log_y[rows]
    sample, names = fitted.matrix[rows], fitted.columns.names
    gains = gain_shares([fitted.booster]) if "xgboost" in members else None
    used, by_booster = set(gains or ()), boosting.walked(fitted.booster)
    by_forest = forest.forest if forest is not None and "forest" in members else None
    if by_forest is not None:
        trees = by_forest.forest
        used |= {names[i] for i in np.unique(trees.feature[trees.left >= 0])}

    def score(matrix: Matrix, of: IntArray) -> tuple[FloatArray, FloatArray]:
        forecasts = forecasts_of(
            members,
            xgboost=by_booster(matrix) + reference[of],
            forest=None if by_forest is None else by_forest.rows(matrix) + reference[of, :1],
            reference_log_s=reference[of],
            history_log_s=history[of],
        )
        p50, p90 = combination.combined(forecasts).T
        return metrics.primary_rows(log_y[of], Forecast(p50=p50, p90=p90)), p50

    importances = permuted(sample, fitted.columns, score, used=used, gains=gains, seed=seed)
    frame, jobs = examples.features[rows], examples.jobs[rows]
    return importances, permuted_requests(frame, jobs, fitted.contract, score, seed=seed)
