"""What a search of recipes needs: cuts inside the training period, the loss of a recipe on them, and the search space.

No job submitted or ended after the training cut is read. Called by `pipelines.models.search` and `taut tune`.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from pipelines.engine.engine import Engine
from pipelines.errors import TrainingError
from pipelines.models.evaluate import default_until, enough
from pipelines.models.examples import By, Examples, examples_of, fingerprint, history_at, known_at, task_types
from pipelines.models.fitted import LEAST_TRAINED, Recipe, combined, fit_runtime
from pipelines.models.judging import Interval, day_blocks, day_draws, day_sums, mean_interval, ratio_interval
from pipelines.models.metrics import FloatArray, primary_rows
from pipelines.models.splits import Split, finished, time_later
from pipelines.models.training_tables import Tables

__all__ = ["Judge", "Task", "judges", "tasks_of"]

CUT_SHARES: Final = (0.5, 0.62, 0.74, 0.86)
"""Shares of the ended jobs, in order of submission, at which the inner cuts lie.

The search sees the jobs after all cuts but the last. Those after the last cut check its result: the best of many trials
looks better than it is on the jobs by which it was chosen.
"""

Value = float | int


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The range of one parameter in the search: its ends, and whether it is searched by its logarithm."""

    low: Value
    high: Value
    log: bool = False


SPACE: Final[Mapping[str, Span]] = {
    "rounds": Span(low=20, high=200, log=True),
    "learning_rate": Span(low=0.02, high=0.3, log=True),
    "num_parallel_tree": Span(low=1, high=4),
    "max_depth": Span(low=3, high=8),
    "min_child_weight": Span(low=1.0, high=500.0, log=True),
    "subsample": Span(low=0.4, high=1.0),
    "colsample_bytree": Span(low=0.15, high=1.0),
    "reg_lambda": Span(low=0.1, high=50.0, log=True),
    "max_bin": Span(low=32, high=256, log=True),
    "half_life_days": Span(low=3.0, high=365.0, log=True),
}
"""The search space: `half_life_days` is of the recipe, the others are of its trees.

Its upper ends keep a model within about ten times the default's nodes, so that serving stays fast.
"""


def recipe_of(values: Mapping[str, Value]) -> Recipe:
    """Return the default recipe with the values of a trial.

    >>> recipe_of(values_of(Recipe())) == Recipe()
    True
    """
    grown = {name: value for name, value in values.items() if name != "half_life_days"}
    base = Recipe()
    return replace(base, half_life_days=values["half_life_days"], boosting=replace(base.boosting, **grown))  # type: ignore[arg-type]  # SPACE names them


def values_of(recipe: Recipe) -> dict[str, Value]:
    """Return a recipe's values of the hyper-parameters that a search varies, by name."""
    every = {"half_life_days": recipe.half_life_days, **asdict(recipe.boosting)}
    return {name: every[name] for name in SPACE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """One inner cut: the split, whose judged jobs were submitted from the cut to the next cut."""

    cut: datetime
    split: Split


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The run-time model to tune: its examples as known at the training cut, and its inner cuts.

    The search sees the cuts in `folds`; its result is checked on `check`. `study` names the search. It holds a
    fingerprint of the jobs, the cut, the seed and the search space: a search goes on only if all are equal.
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

    @property
    def counts(self) -> FloatArray:
        """Return the number of judged jobs of each day (days,)."""
        return day_sums(self._days(), np.ones(self.judged))

    def fold_loss(self, recipe: Recipe, fold: Fold) -> FloatArray:
        """Fit a recipe before a cut, and return the pinball loss of each judged job (n,), the mean of p50 and p90."""
        fitted = fit_runtime(self.examples, fold.split, recipe, until=fold.cut, seed=self.seed, nthread=self.nthread)
        return primary_rows(self.examples.log_y[fold.split.test], combined(self.examples, fitted))

    def daily(self, losses: FloatArray) -> FloatArray:
        """Return the sum of the losses (n,) of all folds on each day (days,)."""
        return day_sums(self._days(), losses)

    def _days(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        rows = np.concatenate([fold.split.test for fold in self.folds])
        return day_blocks(self.examples.jobs["submit_ts"][rows])


CHECK: Final = -1
"""Number of the cut of `Task.check`; those in `Task.folds` have the numbers from 0."""

Judge = Callable[[Sequence[tuple[Recipe, int]]], Iterator[FloatArray]]
"""Function that yields the losses (n,) of recipes on numbered cuts, in order, as `Task.fold_loss` returns them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """The work of one process: a recipe to fit and judge on one cut of the model at place `model`."""

    model: int
    recipe: Recipe
    cut: int

    def __str__(self) -> str:
        """Return the unit as messages name it."""
        return f"model {self.model + 1}, {'the last cut' if self.cut == CHECK else f'cut {self.cut + 1}'}"


def unit_loss(tasks: Sequence[Task], unit: Unit) -> FloatArray:
    """Return the losses of a unit (n,)."""
    [loss] = judged_here(tasks[unit.model], [(unit.recipe, unit.cut)])
    return loss


def judged_here(task: Task, runs: Sequence[tuple[Recipe, int]]) -> Iterator[FloatArray]:
    """Yield the losses of recipes on numbered cuts as a `Judge`, one after another in this process."""
    return (task.fold_loss(recipe, task.check if cut == CHECK else task.folds[cut]) for recipe, cut in runs)


@contextmanager
def judges(engine: Engine, tasks: Sequence[Task]) -> Iterator[list[Judge]]:
    """Yield the `Judge` of every task, which fits and judges on the engine during the block."""
    with engine.opened(unit_loss, tasks) as run:
        yield [partial(_judged_on, run, model) for model in range(len(tasks))]


def _judged_on(
    run: Callable[[Sequence[Unit]], Iterator[FloatArray]], model: int, runs: Sequence[tuple[Recipe, int]]
) -> Iterator[FloatArray]:
    return run([Unit(model=model, recipe=recipe, cut=cut) for recipe, cut in runs])


def tasks_of(
    tables: Tables,
    trace: str,
    *,
    by: By,
    until: datetime | None,
    types: Sequence[str] | None,
    seed: int,
    nthread: int,
) -> list[Task]:
    """Return the run-time models of a trace that have enough jobs to be tuned, most jobs first.

    Raises
    ------
    TrainingError
        No type has enough jobs between the inner cuts.
    """
    until = until or default_until(tables.jobs)
    known, base = known_at(tables.jobs, until), Recipe()
    history = history_at(tables.jobs, tables.measured, until)
    made_of = repr((fingerprint(known), until, by, seed, SPACE, CUT_SHARES, base))
    digest = hashlib.sha256(made_of.encode()).hexdigest()[:12]
    tasks = []
    for each in task_types(known, by, types):
        examples = examples_of(known, None, each, by=by, history=history, names=base.features, relative=base.relative)
        folds = inner_folds(examples.jobs, until)
        if folds and all(enough(fold.split) and len(fold.split.train) >= LEAST_TRAINED for fold in folds):
            name = f"runtime.{trace}.{each}"
            study = f"{name}-{digest}"
            *seen, last = folds
            tasks.append(
                Task(
                    model=name,
                    study=study,
                    examples=examples,
                    folds=tuple(seen),
                    check=last,
                    seed=seed,
                    nthread=nthread,
                )
            )
    if not tasks:
        raise TrainingError(
            f"no task type of {trace} has enough jobs before {until.isoformat()} for {len(CUT_SHARES)} inner cuts: "
            "move --until later, or ingest more jobs"
        )
    return tasks


def inner_folds(jobs: pl.DataFrame, until: datetime) -> tuple[Fold, ...]:
    """Return the inner cuts of the jobs of one type; the judged jobs of a cut end where the next cut begins."""
    submitted = jobs.filter(finished())["submit_ts"]
    cuts = [submitted.quantile(share, interpolation="nearest") for share in CUT_SHARES]
    ends = [each for each in (*cuts, until) if isinstance(each, datetime)]
    folds = []
    for cut, end in pairwise(ends):
        split = time_later(jobs, until=cut)
        before = (jobs["submit_ts"] < end).to_numpy()
        folds.append(Fold(cut=cut, split=replace(split, test=split.test[before[split.test]])))
    return tuple(folds)


def lead_of(task: Task, default: FloatArray, best: FloatArray) -> Interval:
    """Return the mean loss of the default recipe minus that of another, with its 95 % interval over days.

    Both losses are sums by day (days,), on the same jobs.
    """
    days = len(default)
    return ratio_interval(np.arange(days), default - best, task.counts, day_draws(days, seed=task.seed))


def checked_lead(task: Task, recipe: Recipe, judge: Judge | None = None) -> Interval:
    """Return the mean loss of the default recipe minus that of another after the last inner cut, with its interval."""
    default, other = (judge or partial(judged_here, task))([(Recipe(), CHECK), (recipe, CHECK)])
    blocks = day_blocks(task.examples.jobs["submit_ts"][task.check.split.test])
    return mean_interval(blocks, default - other, day_draws(int(blocks.max()) + 1, seed=task.seed))


def describe_changes(recipe: Recipe) -> str:
    """Return the searched values of a recipe that differ from the default, as text."""
    usual = values_of(Recipe())
    changed = {name: value for name, value in values_of(recipe).items() if value != usual[name]}
    return " ".join(f"{name}={value:.3g}" for name, value in changed.items())
