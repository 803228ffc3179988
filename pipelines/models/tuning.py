"""Search recipes of run-time models with Optuna; a stopped search can be continued.

References: Bergstra et al., "Algorithms for Hyper-Parameter Optimization" (2011), for the sampler (TPE); Akiba et al.,
"Optuna: A Next-generation Hyperparameter Optimization Framework" (2019), for pruning by the median.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import optuna
from optuna.trial import TrialState

from pipelines.errors import BadUsage, Busy, TrainingError
from pipelines.lake.storage import exclusive
from pipelines.models.evaluate import Fold, Task
from pipelines.models.judging import Interval, day_draws, ratio_interval
from pipelines.models.metrics import FloatArray
from pipelines.models.recipes import SPACE, Recipe, Value, describe_changes, recipe_of, values_of

__all__ = ["Progress", "Tuned", "tune"]

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)


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
        """Return whether the best trial leads beyond noise, both in `lead` and in `checked`."""
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


def tune(task: Task, database: Path, **options: Any) -> Tuned:  # Any: the options of `search`
    """Search a recipe as `search` does, and compare the best trial with the default recipe."""
    found = search(task, database, **options)
    return Tuned(
        task=task,
        found=found,
        lead=lead_of(task, task.folds, found.default, found.best),
        checked=checked_lead(task, found.recipe),
    )


def lead_of(task: Task, folds: Sequence[Fold], default: FloatArray, best: FloatArray) -> Interval:
    """Return the mean loss of the default recipe minus that of another, with its 95 % interval over days.

    Both losses are sums by day (days,), on the judged jobs of some folds.
    """
    days = len(default)
    return ratio_interval(np.arange(days), default - best, task.counts(folds), day_draws(days, seed=task.seed))


def checked_lead(task: Task, recipe: Recipe) -> Interval:
    """Return `lead_of` a recipe after the last inner cut."""
    folds = (task.check,)
    default, other = (task.daily(folds, task.fold_loss(each, task.check)) for each in (Recipe(), recipe))
    return lead_of(task, folds, default, other)


DAILY: Final = "daily"
"""Attribute of a trial: the sum of its losses on each judged day."""

LEAST_COMPLETE, LEAST_CUTS = 5, 1
"""No trial is pruned before `LEAST_COMPLETE` trials were completed, nor at its first `LEAST_CUTS` cuts."""


def search(
    task: Task,
    database: Path,
    *,
    trials: int,
    timeout_s: float | None = None,
    report: Callable[[Progress], None] = lambda _: None,
) -> Best:
    """Search until the study in the SQLite `database` has `trials` finished trials; those of earlier runs count.

    The first trial is the default recipe. Each trial depends on the seed and the finished trials only, so a stopped
    search makes the same trials when continued. After `timeout_s` no further trial starts.
    """
    started = time.monotonic()
    with _opened(task.study, database) as study:
        while (done := progress_of(study)).finished < max(trials, 1):
            if done.finished:
                report(done)
                if timeout_s is not None and time.monotonic() - started > timeout_s:
                    break
            elif not study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
                study.enqueue_trial(values_of(Recipe()))
            study.sampler = optuna.samplers.TPESampler(seed=(task.seed * 1_000_003 + done.finished) % 2**32)
            study.optimize(lambda trial: _loss(task, trial), n_trials=1)
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


def _loss(task: Task, trial: Any) -> float:
    """Fit and judge the recipe of a trial at each inner cut, and stop early if it is behind."""
    recipe = recipe_of({name: _suggested(trial, name) for name in SPACE})
    losses: list[FloatArray] = []
    mean = float("nan")
    for step, fold in enumerate(task.folds):
        losses.append(task.fold_loss(recipe, fold))
        mean = float(np.mean(np.concatenate(losses)))
        if not np.isfinite(mean):
            raise TrainingError(f"{task.model}: the loss of {trial.params} is {mean}, expected a number")
        trial.report(mean, step)
        if step < len(task.folds) - 1 and trial.should_prune():
            raise optuna.TrialPruned
    trial.set_user_attr(DAILY, task.daily(task.folds, np.concatenate(losses)).tolist())
    return mean


def _suggested(trial: Any, name: str) -> Value:
    span = SPACE[name]
    suggest = trial.suggest_int if isinstance(span.low, int) else trial.suggest_float
    value: Value = suggest(name, span.low, span.high, log=span.log)
    return value


@contextmanager
def _opened(name: str, database: Path) -> Iterator[Any]:
    """Yield the study of that name, made if missing; trials that a stopped process left behind are marked as failed."""
    busy = Busy(f"another `taut tune` is using {database}: wait for it, or name another file with --study-db")
    with exclusive(database.with_name(f"{database.name}.lock"), busy):
        try:
            study = optuna.create_study(
                study_name=name,
                storage=f"sqlite:///{database}",
                pruner=optuna.pruners.MedianPruner(n_startup_trials=LEAST_COMPLETE, n_warmup_steps=LEAST_CUTS),
                load_if_exists=True,
            )
        except Exception as error:  # the database's driver decides which
            cause = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise BadUsage(f"--study-db {database}: {cause}; expected a database of trials") from error
        for left in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            study.tell(left.number, state=TrialState.FAIL)
        yield study
