"""Search recipes of run-time models with Optuna, on cuts inside the training period; a stopped search can be continued.

References: Bergstra et al., "Algorithms for Hyper-Parameter Optimization" (2011), for the sampler (TPE); Akiba et al.,
"Optuna: A Next-generation Hyperparameter Optimization Framework" (2019), for pruning by the median.
"""

import hashlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import optuna
import polars as pl
from optuna.trial import TrialState

from modelserve.bundle.quiet import without_password
from pipelines.engine.engine import Engine
from pipelines.errors import BadUsage, Busy, TrainingError
from pipelines.lake.storage import exclusive
from pipelines.models.evaluate import enough
from pipelines.models.examples import (
    By,
    Examples,
    IntArray,
    default_until,
    examples_of,
    fingerprint,
    history_at,
    known_at,
    task_types,
)
from pipelines.models.fitted import FEATURES, LEAST_TRAINED, combined, fit_runtime
from pipelines.models.judging import Interval, day_blocks, day_draws, day_sums, mean_interval, ratio_interval
from pipelines.models.metrics import FloatArray, primary_rows
from pipelines.models.recipes import SPACE, Recipe, Value, describe_changes, recipe_of, values_of
from pipelines.models.splits import Split, finished, time_later
from pipelines.models.training_tables import Tables

__all__ = ["Judge", "Progress", "Task", "Tuned", "judges", "tasks_of", "tune"]

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)

CUT_SHARES: Final = (0.5, 0.62, 0.74, 0.86)
"""Shares of the ended jobs, in order of submission, at which the inner cuts lie.

The search sees the jobs after all cuts but the last. Those after the last cut check its result: the best of many trials
looks better than it is on the jobs by which it was chosen.
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

    def _days(self) -> IntArray:
        rows = np.concatenate([fold.split.test for fold in self.folds])
        return day_blocks(self.examples.jobs["submit_ts"][rows])


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
    """Return the run-time models of a trace that have enough jobs to be tuned, most jobs first."""
    until = until or default_until(tables.jobs)
    known = known_at(tables.jobs, until)
    history = history_at(tables.jobs, tables.measured, until)
    made_of = repr((fingerprint(known), until, by, seed, SPACE, CUT_SHARES, Recipe()))
    digest = hashlib.sha256(made_of.encode()).hexdigest()[:12]
    tasks = []
    for each in task_types(known, by, types):
        examples = examples_of(known, None, each, by=by, history=history, names=FEATURES, relative=True)
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


CHECK: Final = -1
"""Number of the cut of `Task.check`; those in `Task.folds` have the numbers from 0."""

Judge = Callable[[Sequence[tuple[Recipe, int]]], Iterator[FloatArray]]
"""Fits recipes before numbered cuts of one task, and yields the loss of each judged job (n,) of each."""


class Unit(NamedTuple):
    """One fit of a search, a unit of work of an engine: a recipe before a numbered cut of a numbered task."""

    task: int
    recipe: Recipe
    cut: int

    def __str__(self) -> str:
        """Return the unit as messages name it."""
        return f"model {self.task + 1}, {'the last cut' if self.cut == CHECK else f'cut {self.cut + 1}'}"


def unit_loss(tasks: Sequence[Task], unit: Unit) -> FloatArray:
    """Return the losses of a unit (n,)."""
    task = tasks[unit.task]
    return task.fold_loss(unit.recipe, task.check if unit.cut == CHECK else task.folds[unit.cut])


@contextmanager
def judges(engine: Engine, tasks: Sequence[Task]) -> Iterator[list[Judge]]:
    """Yield the `Judge` of every task, which fits and judges on the engine during the block."""
    with engine.opened(unit_loss, tasks) as run:

        def judged(task: int, runs: Sequence[tuple[Recipe, int]]) -> Iterator[FloatArray]:
            return run([Unit(task, recipe, cut) for recipe, cut in runs])

        yield [partial(judged, task) for task in range(len(tasks))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The state of a search: finished trials, of which pruned, and the losses of the best trial and the default."""

    finished: int
    pruned: int
    best: float
    default: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best trial and the default recipe: losses summed by day (days,), and the recipe of the best trial."""

    recipe: Recipe
    best: FloatArray
    default: FloatArray
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """The result of tuning a model: the best trial, and how far it leads the default recipe.

    `lead` is on the jobs of the search, `checked` on later jobs that the search has not seen: mean loss of the default
    minus that of the best trial, with 95 % intervals over days.
    """

    task: Task
    found: Best
    lead: Interval
    checked: Interval

    @property
    def better(self) -> bool:
        """Return whether the best trial leads beyond noise on both."""
        return self.lead.lo > 0.0 and self.checked.lo > 0.0

    @property
    def recipe(self) -> Recipe:
        """Return the recipe of the best trial if it is better, else the default."""
        return self.found.recipe if self.better else Recipe()

    def row(self) -> dict[str, object]:
        """Return one flat row."""
        state = self.found.progress
        return {
            "model": self.task.model,
            "trials": state.finished,
            "pruned": state.pruned,
            "jobs": self.task.judged,
            "pinball_default": state.default,
            "pinball_best": state.best,
            "lead": self.lead.value,
            "lead_lo": self.lead.lo,
            "lead_hi": self.lead.hi,
            "check_jobs": len(self.task.check.split.test),
            "check_lead": self.checked.value,
            "check_lo": self.checked.lo,
            "check_hi": self.checked.hi,
            "result": "tuned" if self.better else "default kept",
            "best": describe_changes(self.found.recipe),
        }


def tune(task: Task, store: str, judge: Judge, **options: Any) -> Tuned:  # Any: the options of `search`
    """Search a recipe as `search` does, and compare the best trial with the default recipe."""
    found = search(task, store, judge, **options)
    return Tuned(
        task=task,
        found=found,
        lead=lead_of(task, found.default, found.best),
        checked=checked_lead(task, found.recipe, judge),
    )


def lead_of(task: Task, default: FloatArray, best: FloatArray) -> Interval:
    """Return the mean loss of the default recipe minus that of another, with its 95 % interval over days.

    Both losses are sums by day (days,), on the same jobs.
    """
    days = len(default)
    return ratio_interval(np.arange(days), default - best, task.counts, day_draws(days, seed=task.seed))


def checked_lead(task: Task, recipe: Recipe, judge: Judge) -> Interval:
    """Return the mean loss of the default recipe minus that of another after the last inner cut, with its interval."""
    default, other = judge([(Recipe(), CHECK), (recipe, CHECK)])
    blocks = day_blocks(task.examples.jobs["submit_ts"][task.check.split.test])
    return mean_interval(blocks, default - other, day_draws(int(blocks.max()) + 1, seed=task.seed))


SQLITE: Final = "sqlite:///"
DAILY: Final = "daily"
"""Attribute of a trial: the sum of its losses on each judged day."""

LEAST_COMPLETE, LEAST_CUTS = 5, 1
"""No trial is pruned before so many were completed, nor at its first cuts."""

HEARTBEAT_S, GRACE_S = 30, 120
"""In a database without a lock of ours, a trial without a heartbeat for `GRACE_S` counts as stopped."""


def search(
    task: Task,
    store: str,
    judge: Judge,
    *,
    trials: int,
    timeout_s: float | None = None,
    report: Callable[[Progress], None] = lambda _: None,
) -> Best:
    """Search until the study in the database `store` (URL) has `trials` finished trials; those of earlier runs count.

    The first trial is the default recipe. Each trial depends on the seed and the finished trials only, so a stopped
    search makes the same trials when continued. After `timeout_s` no further trial starts.
    """
    started = time.monotonic()
    with _opened(task.study, store) as study:
        while (done := progress_of(study)).finished < max(trials, 1):
            if done.finished:
                report(done)
                if timeout_s is not None and time.monotonic() - started > timeout_s:
                    break
            elif not study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
                study.enqueue_trial(values_of(Recipe()))
            study.sampler = optuna.samplers.TPESampler(seed=(task.seed * 1_000_003 + done.finished) % 2**32)
            study.optimize(lambda trial: _loss(task, trial, judge), n_trials=1)
        report(progress_of(study))
        best, default = study.best_trial, _default(study)
        return Best(
            recipe=recipe_of(best.params),
            best=np.array(best.user_attrs[DAILY]),
            default=np.array(default.user_attrs[DAILY]),
            progress=progress_of(study),
        )


def progress_of(study: Any) -> Progress:  # Optuna's study: mypy skips its types, as those of MLflow
    """Return the state of a study."""
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    complete = [each for each in done if each.state == TrialState.COMPLETE]
    return Progress(
        finished=len(done),
        pruned=len(done) - len(complete),
        best=min((each.value for each in complete), default=float("nan")),
        default=_default(study).value if complete else float("nan"),
    )


def _default(study: Any) -> Any:
    """Return the trial of the default recipe: the first that was completed."""
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))[0]


def _loss(task: Task, trial: Any, judge: Judge) -> float:
    """Fit and judge the recipe of a trial at each inner cut, and stop early if it is behind."""
    recipe = recipe_of({name: _suggested(trial, name) for name in SPACE})
    losses: list[FloatArray] = []
    mean = float("nan")
    for step, loss in enumerate(judge([(recipe, cut) for cut in range(len(task.folds))])):
        losses.append(loss)
        mean = float(np.mean(np.concatenate(losses)))
        if not np.isfinite(mean):
            raise TrainingError(f"{task.model}: the loss of {trial.params} is {mean}, expected a number")
        trial.report(mean, step)
        if step < len(task.folds) - 1 and trial.should_prune():
            raise optuna.TrialPruned
    trial.set_user_attr(DAILY, task.daily(np.concatenate(losses)).tolist())
    return mean


def _suggested(trial: Any, name: str) -> Value:
    span = SPACE[name]
    suggest = trial.suggest_int if isinstance(span.low, int) else trial.suggest_float
    value: Value = suggest(name, span.low, span.high, log=span.log)
    return value


@contextmanager
def _opened(name: str, store: str) -> Iterator[Any]:
    """Yield the study of that name, made if missing; trials that a stopped process left behind are marked as failed."""
    if not store.startswith(SQLITE):
        yield _study(name, store, heartbeat_interval=HEARTBEAT_S, grace_period=GRACE_S)
        return
    database = Path(store.removeprefix(SQLITE))
    busy = Busy(f"another `taut tune` is using {database}: wait for it, or name another file with --study-db")
    with exclusive(database.with_name(f"{database.name}.lock"), busy):
        study = _study(name, store)
        for left in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            study.tell(left.number, state=TrialState.FAIL)
        yield study


def _study(name: str, store: str, **options: int) -> Any:
    try:
        return optuna.create_study(
            study_name=name,
            storage=optuna.storages.RDBStorage(store, **options),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=LEAST_COMPLETE, n_warmup_steps=LEAST_CUTS),
            load_if_exists=True,
        )
    except Exception as error:  # the database's driver decides which
        cause = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise BadUsage(f"--study-db {without_password(store)}: {cause}; expected a database of trials") from error
