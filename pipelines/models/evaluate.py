"""Evaluate run-time models: with history baselines on one split, and recipes on cuts inside the training period."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from modelserve.bundle.card import TYPICAL
from pipelines.engine.engine import Engine, Local
from pipelines.errors import TrainingError
from pipelines.models.baselines import applicable, history_forecasts
from pipelines.models.examples import (
    Examples,
    IntArray,
    Setting,
    Watch,
    examples_of,
    fingerprint,
    history_at,
    known_at,
    task_types,
)
from pipelines.models.fitted import FEATURES, LEAST_TRAINED, Fitted, combined, fit_runtime
from pipelines.models.judging import COMBINED, Judged, compare, day_blocks, day_sums
from pipelines.models.metrics import QUANTILES, FloatArray, Forecast, pinball_rows, primary_rows
from pipelines.models.recipes import SPACE, Recipe
from pipelines.models.splits import Split, SplitName, finished, group_folds, time_later

__all__ = ["Evaluation", "Task", "tasks_of"]

LEAST_SPLIT: Final = 60
"""Minimum number of ended jobs of a task type for folds of groups."""

FOLDS: Final = 5
REPEATS: Final = 3
"""Number of folds of groups, and how often they are drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """An evaluation of the model, its members and every baseline on one split of one trace.

    The model is fitted as in `train_runtime`. `split` is `time` (judged jobs are submitted from `since` on, by default
    the cut), or `group` (`FOLDS` folds that share no group, drawn `REPEATS` times).
    """

    setting: Setting
    split: SplitName = "time"
    since: datetime | None = None
    recipe: Recipe = field(default_factory=Recipe)

    def run(
        self, types: Sequence[str] | None = None, *, engine: Engine | None = None, watch: Watch = iter
    ) -> pl.DataFrame:
        """Return one row per model and type, columns `judging.EVALUATION_SCHEMA`.

        `types` are by default all task types; those without enough rows are left out. `engine` evaluates the types.
        `watch` iterates over the types; a caller shows progress with it.
        """
        setting = self.setting
        kinds = task_types(setting.jobs, setting.by, types)
        judged = (engine or Local()).run(_evaluated, self, kinds)
        tables = [each for _, each in zip(watch(kinds), judged, strict=True) if each is not None]
        if not tables:
            raise TrainingError(
                f"no task type of {setting.trace} has a training job and a judged job under the split {self.split} "
                f"with the cut {setting.cut.isoformat()}: move the cut, or ingest more jobs"
            )
        return pl.concat(tables)


def _evaluated(evaluation: Evaluation, task_type: str) -> pl.DataFrame | None:
    """Return the table of one task type; None without enough rows to train and to judge."""
    setting = evaluation.setting
    examples = setting.examples(task_type, FEATURES, relative=True)
    splits = _splits(evaluation, examples.jobs)
    if not splits or not all(enough(s) for s in splits):
        return None
    return table(setting, examples, splits, [outcome(setting, examples, s, evaluation.recipe) for s in splits])


def _splits(evaluation: Evaluation, jobs: pl.DataFrame) -> list[Split]:
    seed = evaluation.setting.seed
    if evaluation.split == "time":
        return [time_later(jobs, until=evaluation.setting.cut, since=evaluation.since)]
    if jobs.select(finished().sum()).item() < LEAST_SPLIT:
        return []
    return [split for r in range(REPEATS) for split in group_folds(jobs, folds=FOLDS, seed=seed + r)]


def enough(split: Split) -> bool:
    """Return whether a split has a training row and a judged row."""
    return len(split.train) > 0 and len(split.test) > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one split: the fitted model, and the forecasts of the test rows by the name of the answer."""

    fitted: Fitted
    forecasts: dict[str, Forecast]


def outcome(setting: Setting, examples: Examples, split: Split, recipe: Recipe) -> Outcome:
    """Fit the model on one split, and forecast the test rows with it, each member and every history baseline."""
    until = setting.cut if split.name == "time" else None
    fitted = fit_runtime(examples, split, recipe, until=until, seed=setting.seed, nthread=setting.threads)
    forecasts = {COMBINED: combined(examples, fitted)}
    forecasts |= {name: fitted.of_member(name, split.test) for name in (*fitted.start.members, TYPICAL)}
    answers = history_forecasts(examples.jobs, applicable(examples.jobs))
    forecasts |= {name: answer.take(split.test) for name, answer in answers.items()}
    return Outcome(fitted=fitted, forecasts=forecasts)


def table(setting: Setting, examples: Examples, splits: Sequence[Split], outcomes: Sequence[Outcome]) -> pl.DataFrame:
    """Compare the forecasts of all splits together. A job judged in several splits counts once in the column `n`."""
    tests = np.concatenate([s.test for s in splits])
    judged = Judged(
        trace=setting.trace,
        task_type=examples.task_type,
        split=splits[0].name,
        submit_ts=examples.jobs["submit_ts"][tests],
        run_s=examples.run_s[tests],
        n=len(np.unique(tests)),
    )
    # A fold with few rows has no trees, so only the answers of all folds are compared.
    names = [name for name in outcomes[0].forecasts if all(name in each.forecasts for each in outcomes)]
    stacked = {name: _stack([o.forecasts[name] for o in outcomes]) for name in names}
    return compare(judged, stacked, seed=setting.seed)


def _stack(forecasts: Sequence[Forecast]) -> Forecast:
    return Forecast(p50=np.concatenate([f.p50 for f in forecasts]), p90=np.concatenate([f.p90 for f in forecasts]))


CUT_SHARES: Final = (0.5, 0.62, 0.74, 0.86)
"""Shares of the ended jobs, in order of submission, at which the inner cuts lie.

The search sees the jobs after all cuts but the last. The jobs after the last cut check its result, because the best of
many trials looks too good on the jobs by which it was chosen.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """One inner cut: the split, whose judged jobs were submitted from the cut to the next cut."""

    cut: datetime
    split: Split


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The run-time model to tune: its examples as known at the training cut, and its inner cuts.

    The search sees `folds`; its result is checked on `check`. `study` names the search by the model and a fingerprint
    of the jobs, the cut, the seed and the search space: a search goes on only if all are equal.
    """

    model: str
    study: str
    examples: Examples
    folds: tuple[Fold, ...]
    check: Fold
    seed: int
    nthread: int

    @property
    def judged(self) -> int:
        """Return the number of judged jobs that the search sees."""
        return sum(len(fold.split.test) for fold in self.folds)

    def fold_loss(self, recipe: Recipe, fold: Fold) -> FloatArray:
        """Fit a recipe before a cut, and return the pinball loss of each judged job (n,), the mean of p50 and p90."""
        fitted = fit_runtime(self.examples, fold.split, recipe, until=fold.cut, seed=self.seed, nthread=self.nthread)
        return primary_rows(self.examples.log_y[fold.split.test], combined(self.examples, fitted))

    def daily(self, folds: Sequence[Fold], losses: FloatArray) -> FloatArray:
        """Return the sum of the losses (n,) of the judged jobs of some folds on each day (days,)."""
        rows = np.concatenate([fold.split.test for fold in folds])
        return day_sums(day_blocks(self.examples.jobs["submit_ts"][rows]), losses)

    def counts(self, folds: Sequence[Fold]) -> FloatArray:
        """Return the number of judged jobs of some folds on each day (days,)."""
        return self.daily(folds, np.ones(sum(len(fold.split.test) for fold in folds)))


def tasks_of(setting: Setting, types: Sequence[str] | None) -> list[Task]:
    """Return the run-time models of a trace that have enough jobs to be tuned, most jobs first."""
    until, trace = setting.cut, setting.trace
    known = known_at(setting.jobs, until)
    history = history_at(setting.jobs, setting.usage, until)
    made_of = repr((fingerprint(known), until, setting.by, setting.seed, SPACE, CUT_SHARES, Recipe()))
    digest = hashlib.sha256(made_of.encode()).hexdigest()[:12]
    tasks = []
    for each in task_types(known, setting.by, types):
        examples = examples_of(known, None, each, by=setting.by, history=history, names=FEATURES, relative=True)
        folds = inner_folds(examples.jobs, until)
        if folds and all(enough(fold.split) and len(fold.split.train) >= LEAST_TRAINED for fold in folds):
            name = f"runtime.{trace}.{each}"
            tasks.append(
                Task(
                    model=name,
                    study=f"{name}-{digest}",
                    examples=examples,
                    folds=tuple(folds[:-1]),
                    check=folds[-1],
                    seed=setting.seed,
                    nthread=setting.threads,
                )
            )
    if not tasks:
        raise TrainingError(
            f"no task type of {trace} has enough jobs before {until.isoformat()} for {len(CUT_SHARES)} inner cuts: "
            "move --until later, or ingest more jobs"
        )
    return tasks


def inner_folds(jobs: pl.DataFrame, until: datetime) -> list[Fold]:
    """Return the inner cuts of the jobs of one type; the judged jobs of a cut end where the next cut begins."""
    submitted = jobs.filter(finished())["submit_ts"]
    cuts = [submitted.quantile(share, interpolation="nearest") for share in CUT_SHARES]
    folds = []
    for cut, end in pairwise(each for each in (*cuts, until) if isinstance(each, datetime)):
        split = time_later(jobs, until=cut)
        before = (jobs["submit_ts"] < end).to_numpy()
        folds.append(Fold(cut=cut, split=replace(split, test=split.test[before[split.test]])))
    return folds


MOST_ROWS: Final = 5_000
"""Maximum number of rows behind each point of a learning curve: the latest submitted."""


def learning_curves(examples: Examples, fitted: Fitted, judged: IntArray) -> pl.DataFrame:
    """Return by boosting `round` the pinball loss of the trees up to it.

    `latest_trained` is the loss on the latest training rows, `later` that on the rows `judged`; null without rows.
    """
    curves = {
        "latest_trained": round_losses(examples, fitted, np.intersect1d(fitted.split.stop, fitted.trained)),
        "later": round_losses(examples, fitted, judged),
    }
    return pl.DataFrame({"round": np.arange(1, fitted.rounds + 1), **curves}).fill_nan(None)


def round_losses(examples: Examples, fitted: Fitted, rows: IntArray) -> FloatArray:
    """Return the mean pinball loss of p50 and p90 after each boosting round (rounds,), NaN without rows."""
    rows = rows[-MOST_ROWS:]
    if len(rows) == 0:
        return np.full(fitted.rounds, np.nan)
    matrix = fitted.matrix[rows]

    def outputs(first: int, end: int) -> FloatArray:
        answer = fitted.booster.inplace_predict(matrix, iteration_range=(first, end))
        return np.asarray(answer, dtype=np.float64).reshape(len(rows), -1)

    each = [outputs(number, number + 1) for number in range(fitted.rounds)]
    # Every answer holds the booster's base score once, so the sum of all holds it once per round.
    base = (np.sum(each, axis=0) - outputs(0, fitted.rounds)) / max(fitted.rounds - 1, 1)
    total = examples.reference[rows] + base
    losses = []
    for answer in each:
        total = total + (answer - base)
        both = [pinball_rows(examples.log_y[rows], total[:, i], tau) for i, tau in enumerate(QUANTILES)]
        losses.append(float(np.mean(both)))
    return np.array(losses)
