"""Evaluate XGBoost, random forests and history baselines on one split, for `taut evaluate` and the promotion gate.

The metrics and intervals are computed in `judging`. Called by `pipelines.cli`, `pipelines.models.runtime` and
`usage`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np
import polars as pl

from features.history import History
from pipelines.errors import TrainingError
from pipelines.models.baselines import applicable, forest_forecast, history_forecasts
from pipelines.models.boosting import Rows
from pipelines.models.examples import By, Examples, encoded, examples_of, task_types
from pipelines.models.fitted import Fitted, Recipe, calibrated, fit_runtime, static_calibrated
from pipelines.models.judging import EVALUATION_SCHEMA, MODEL, Judged, compare
from pipelines.models.metrics import Forecast
from pipelines.models.splits import Split, SplitName, finished, group_folds, random_split, time_later

__all__ = ["evaluate"]

FOREST: Final = "random_forest"
FOREST_RELATIVE: Final = "random_forest_relative"
"""Names of the two forests: on plain features, and on run times relative to the same references as XGBoost."""

LEAST_TRAINED: Final = 60
"""Minimum number of training rows below which no model of a task type is trained."""

LATER_SHARE: Final = 0.2
"""Share of the submissions, the latest ones, that is held out for judging if no cut is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one split: the fitted model, and the forecasts of the test rows by model and baseline name.

    `static` is the model's forecast with a static instead of an adaptive offset (time-later split only).
    """

    fitted: Fitted
    forecasts: dict[str, Forecast]
    static: Forecast | None


def evaluate(
    jobs: pl.DataFrame,
    usage: pl.DataFrame | None = None,
    *,
    trace: str,
    split: SplitName = "time",
    by: By = "kind",
    until: datetime | None = None,
    since: datetime | None = None,
    types: Sequence[str] | None = None,
    recipe: Recipe | None = None,
    folds: int = 5,
    repeats: int = 3,
    forest: bool = True,
    seed: int = 0,
    nthread: int = 1,
) -> pl.DataFrame:
    """Evaluate XGBoost and every baseline on one split of one trace, task type by task type.

    The model is fitted as in `train_runtime`: equal rows, cut, recipe, seed and threads give equal trees.

    Parameters
    ----------
    jobs, usage
        Canonical tables of the trace.
    split
        `time` (cut at `until`), `group` (`folds` folds that share no group, drawn `repeats` times) or `random`.
    until, since
        For the time-later split: the training cut, and the first submission time of judged jobs. If one is missing
        it equals the other; if both are, they are `default_until`.
    types
        Task types to evaluate; by default all with enough rows.

    Returns
    -------
    table
        One row per model and type, columns `judging.EVALUATION_SCHEMA`.

    Raises
    ------
    TrainingError
        No type has enough rows to train and to judge.
    """
    recipe = recipe or Recipe()
    until = until or since or default_until(jobs)
    history = History.of(jobs, usage)
    tables = []
    for task_type in types or task_types(jobs, by):
        examples = examples_of(
            jobs, usage, task_type, by=by, history=history, names=recipe.features, relative=recipe.relative
        )
        splits = _splits(examples.jobs, split, until=until, since=since, folds=folds, repeats=repeats, seed=seed)
        if all(enough(s) for s in splits) and splits:
            cut = until if split == "time" else None
            outcomes = [
                outcome(examples, s, recipe, until=cut, forest=forest, seed=seed, nthread=nthread) for s in splits
            ]
            tables.append(table(examples, splits, outcomes, trace=trace, seed=seed))
    if not tables:
        raise TrainingError(
            f"no task type of {trace} has {LEAST_TRAINED} training jobs and one judged job under the split {split} "
            f"with the cut {until.isoformat()}: move the cut, or ingest more jobs"
        )
    return pl.concat(tables)


def default_until(jobs: pl.DataFrame) -> datetime:
    """Return the cut that leaves the latest fifth of the submissions for judging."""
    cut = jobs["submit_ts"].quantile(1.0 - LATER_SHARE, interpolation="nearest")
    if not isinstance(cut, datetime):
        raise TrainingError("found no job: expected at least one with a submission time; ingest a trace first")
    return cut


def enough(split: Split) -> bool:
    """Return whether a split has enough training rows, and rows for fitting, for early stopping and for judging."""
    return len(split.train) >= LEAST_TRAINED and len(split.stop) > 0 and len(split.fit) > 0 and len(split.test) > 0


def outcome(
    examples: Examples,
    split: Split,
    recipe: Recipe,
    *,
    until: datetime | None,
    forest: bool = True,
    seed: int,
    nthread: int,
) -> Outcome:
    """Fit the model on one split, and forecast the test rows with the model and every baseline."""
    fitted = fit_runtime(examples, split, recipe, until=until, seed=seed, nthread=nthread)
    forecasts = {MODEL: calibrated(examples, fitted, recipe)}
    if forest:
        forecasts |= _forests(examples, fitted, relative=recipe.relative, seed=seed, nthread=nthread)
    answers = history_forecasts(examples.jobs, applicable(examples.jobs))
    forecasts |= {name: answer.take(split.test) for name, answer in answers.items()}
    static = static_calibrated(examples, fitted) if split.name == "time" else None
    return Outcome(fitted=fitted, forecasts=forecasts, static=static)


def _forests(examples: Examples, fitted: Fitted, *, relative: bool, seed: int, nthread: int) -> dict[str, Forecast]:
    """Forecast with a forest on plain features; with `relative`, also with one on run times minus their references."""
    train, test = fitted.split.train, fitted.split.test
    plain, _ = encoded(examples.plain, fitted.contract)
    rows = Rows(matrix=plain[train], target=examples.log_y[train])
    found = {FOREST: forest_forecast(rows, plain[test], seed=seed, nthread=nthread)}
    if relative:
        against = examples.reference[:, 0]
        rows = Rows(matrix=fitted.matrix[train], target=examples.log_y[train] - against[train])
        answer = forest_forecast(rows, fitted.matrix[test], seed=seed, nthread=nthread)
        found[FOREST_RELATIVE] = answer.shifted(against[test])
    return found


def table(
    examples: Examples, splits: Sequence[Split], outcomes: Sequence[Outcome], *, trace: str, seed: int
) -> pl.DataFrame:
    """Compare the forecasts of all splits together. A job judged in several splits counts once in the column `n`."""
    tests = np.concatenate([s.test for s in splits])
    judged = Judged(
        trace=trace,
        task_type=examples.task_type,
        split=splits[0].name,
        submit_ts=examples.jobs["submit_ts"][tests],
        run_s=examples.run_s[tests],
        n=len(np.unique(tests)),
    )
    stacked = {name: _stack([o.forecasts[name] for o in outcomes]) for name in outcomes[0].forecasts}
    static = outcomes[0].static if len(outcomes) == 1 else None
    return compare(judged, stacked, seed=seed, static=static)


def empty_table() -> pl.DataFrame:
    """Return an evaluation table without rows."""
    return pl.DataFrame(schema=EVALUATION_SCHEMA)


def _splits(
    jobs: pl.DataFrame,
    name: SplitName,
    *,
    until: datetime,
    since: datetime | None,
    folds: int,
    repeats: int,
    seed: int,
) -> list[Split]:
    if name == "time":
        return [time_later(jobs, until=until, since=since)]
    if jobs.select(finished().sum()).item() < LEAST_TRAINED:
        return []
    if name == "random":
        return [random_split(jobs, seed=seed)]
    return [split for r in range(repeats) for split in group_folds(jobs, folds=folds, seed=seed + r)]


def _stack(forecasts: Sequence[Forecast]) -> Forecast:
    return Forecast(p50=np.concatenate([f.p50 for f in forecasts]), p90=np.concatenate([f.p90 for f in forecasts]))
