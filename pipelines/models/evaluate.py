"""Evaluate a run-time model, its members and history baselines on one split, for `taut evaluate` and the gate.

The metrics and intervals are computed in `judging`. Called by `pipelines.cli`, `pipelines.models.runtime` and
`usage`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl

from features.history import History
from pipelines.engine.engine import Engine, Local
from pipelines.errors import TrainingError
from pipelines.models.baselines import applicable, history_forecasts
from pipelines.models.examples import By, Examples, Watch, examples_of, task_types
from pipelines.models.fitted import Fitted, Recipe, combined, fit_runtime, untrained
from pipelines.models.judging import COMBINED, EVALUATION_SCHEMA, Judged, compare
from pipelines.models.metrics import Forecast, primary_rows
from pipelines.models.splits import Split, SplitName, finished, group_folds, random_split, time_later

__all__ = ["evaluate", "first_jobs"]

LEAST_SPLIT: Final = 60
"""Minimum number of ended jobs of a task type for a random split or folds of groups."""

LATER_SHARE: Final = 0.2
"""Share of the submissions, the latest ones, that is held out for judging if no cut is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one split: the fitted model, and the forecasts of the test rows by the name of the answer."""

    fitted: Fitted
    forecasts: dict[str, Forecast]


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
    seed: int = 0,
    nthread: int = 1,
    engine: Engine | None = None,
    watch: Watch = iter,
) -> pl.DataFrame:
    """Evaluate the model, its members and every baseline on one split of one trace, task type by task type.

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
    engine
        Evaluates the types, each in `nthread` threads.
    watch
        Iterates over the types; a caller shows progress with it.

    Returns
    -------
    table
        One row per model and type, columns `judging.EVALUATION_SCHEMA`.

    Raises
    ------
    TrainingError
        No type has enough rows to train and to judge.
    """
    until = until or since or default_until(jobs)
    case = Case(
        jobs=jobs,
        usage=usage,
        trace=trace,
        split=split,
        by=by,
        until=until,
        since=since,
        recipe=recipe or Recipe(),
        folds=folds,
        repeats=repeats,
        seed=seed,
        nthread=nthread,
    )
    kinds = task_types(jobs, by, types)
    judged = (engine or Local()).run(_evaluated, case, kinds)
    tables = [each for _, each in zip(watch(kinds), judged, strict=True) if each is not None]
    if not tables:
        raise TrainingError(
            f"no task type of {trace} has a training job and a judged job under the split {split} with the cut "
            f"{until.isoformat()}: move the cut, or ingest more jobs"
        )
    return pl.concat(tables)


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the task types of one evaluation share: the arguments of `evaluate`. Its history is built once a process."""

    jobs: pl.DataFrame
    usage: pl.DataFrame | None
    trace: str
    split: SplitName
    by: By
    until: datetime
    since: datetime | None
    recipe: Recipe
    folds: int
    repeats: int
    seed: int
    nthread: int

    @cached_property
    def history(self) -> History:
        """Return the history of the whole trace."""
        return History.of(self.jobs, self.usage)


def _evaluated(case: Case, task_type: str) -> pl.DataFrame | None:
    """Return the table of one task type; None without enough rows to train and to judge."""
    recipe = case.recipe
    examples = examples_of(
        case.jobs,
        case.usage,
        task_type,
        by=case.by,
        history=case.history,
        names=recipe.features,
        relative=recipe.relative,
    )
    splits = _splits(
        examples.jobs,
        case.split,
        until=case.until,
        since=case.since,
        folds=case.folds,
        repeats=case.repeats,
        seed=case.seed,
    )
    if not splits or not all(enough(s) for s in splits):
        return None
    cut = case.until if case.split == "time" else None
    outcomes = [outcome(examples, s, recipe, until=cut, seed=case.seed, nthread=case.nthread) for s in splits]
    return table(examples, splits, outcomes, trace=case.trace, seed=case.seed)


def first_jobs(jobs: pl.DataFrame, count: int) -> tuple[float, float]:
    """Return the mean pinball loss of the first `count` jobs, forecast one by one without a trained model.

    The first value is that of the combination of the history's forecasts, the second that of `recent_20`. Only jobs
    that ended before a submission are known to either. Jobs without a run time are not judged.
    """
    first = jobs.sort("submit_ts", "job_id").head(count)
    history = History.of(first)
    [task_type] = task_types(first, "kind")[:1]
    examples = examples_of(first, None, task_type, by="kind", history=history, names="submit", relative=True)
    ours, recent = untrained(examples), history_forecasts(examples.jobs, ["recent_20"])["recent_20"]
    known = np.flatnonzero(~np.isnan(examples.log_y))
    losses = [float(np.mean(primary_rows(examples.log_y[known], each.take(known)))) for each in (ours, recent)]
    return losses[0], losses[1]


def default_until(jobs: pl.DataFrame) -> datetime:
    """Return the cut that leaves the latest fifth of the submissions for judging."""
    cut = jobs["submit_ts"].quantile(1.0 - LATER_SHARE, interpolation="nearest")
    if not isinstance(cut, datetime):
        raise TrainingError("found no job: expected at least one with a submission time; ingest a trace first")
    return cut


def enough(split: Split) -> bool:
    """Return whether a split has a training row and a judged row."""
    return len(split.train) > 0 and len(split.test) > 0


def outcome(
    examples: Examples, split: Split, recipe: Recipe, *, until: datetime | None, seed: int, nthread: int
) -> Outcome:
    """Fit the model on one split, and forecast the test rows with it, each member and every history baseline."""
    fitted = fit_runtime(examples, split, recipe, until=until, seed=seed, nthread=nthread)
    forecasts = {COMBINED: combined(examples, fitted)}
    forecasts |= {name: fitted.of_member(name, split.test) for name in fitted.start.members}
    answers = history_forecasts(examples.jobs, applicable(examples.jobs))
    forecasts |= {name: answer.take(split.test) for name, answer in answers.items()}
    return Outcome(fitted=fitted, forecasts=forecasts)


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
    # A fold with few rows has no trees, so only the answers of all folds are compared.
    names = [name for name in outcomes[0].forecasts if all(name in each.forecasts for each in outcomes)]
    stacked = {name: _stack([o.forecasts[name] for o in outcomes]) for name in names}
    return compare(judged, stacked, seed=seed)


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
    if jobs.select(finished().sum()).item() < LEAST_SPLIT:
        return []
    if name == "random":
        return [random_split(jobs, seed=seed)]
    return [split for r in range(repeats) for split in group_folds(jobs, folds=folds, seed=seed + r)]


def _stack(forecasts: Sequence[Forecast]) -> Forecast:
    return Forecast(p50=np.concatenate([f.p50 for f in forecasts]), p90=np.concatenate([f.p90 for f in forecasts]))
