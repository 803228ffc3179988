"""The search of recipes: cuts inside the training period, trials that go on through any stop, and leads by day."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import polars as pl
import pytest
from optuna.trial import TrialState

from pipelines.errors import BadUsage, Busy, TrainingError
from pipelines.models.boosting import Boosting
from pipelines.models.evaluate import Task, tasks_of
from pipelines.models.examples import Setting
from pipelines.models.metrics import FloatArray
from pipelines.models.recipes import SPACE, Recipe, values_of
from pipelines.models.tuning import Progress, checked_lead, lead_of, search
from tests.pipelines.models.conftest import T0, make_jobs

UNTIL = T0 + timedelta(days=30)
JOBS = make_jobs(700, 5)
QUICK = Recipe(boosting=Boosting(rounds=10, patience=5, max_depth=3, learning_rate=0.3))


def tasks(jobs: pl.DataFrame = JOBS, *, until: datetime | None = UNTIL, seed: int = 0) -> list[Task]:
    return tasks_of(Setting(jobs=jobs, trace="made", until=until, seed=seed), None)


def test_cuts_follow_each_other_and_end_at_the_training_cut() -> None:
    [task] = tasks()

    jobs = task.examples.jobs
    folds = (*task.folds, task.check)
    begins = [fold.cut for fold in folds]
    for fold, begin, end in zip(folds, begins, [*begins[1:], UNTIL], strict=True):
        judged, trained = jobs[fold.split.test], jobs[fold.split.train]
        assert judged["submit_ts"].is_between(begin, end, closed="left").all()
        assert (judged["end_ts"] < UNTIL).all()
        assert (trained["end_ts"] < begin).all()
    judged = jobs.filter(pl.col("submit_ts").is_between(begins[0], task.check.cut, closed="left"))
    assert len(task.folds) == 3
    assert task.judged == judged["end_ts"].drop_nulls().len()
    assert jobs["submit_ts"].max() < UNTIL  # type: ignore[operator]  # a column of times


def test_jobs_after_the_training_cut_change_nothing() -> None:
    later = pl.col("submit_ts") >= UNTIL
    other = JOBS.with_columns(run_s=pl.when(later).then(pl.col("run_s") * 9).otherwise("run_s")).filter(
        ~later | (pl.int_range(pl.len()) % 2 == 0)
    )

    [task], [again] = tasks(), tasks(other)

    assert again.study == task.study
    assert again.fold_loss(QUICK, again.check).tolist() == task.fold_loss(QUICK, task.check).tolist()


def test_a_study_belongs_to_its_jobs_its_cut_and_its_seed() -> None:
    made = [tasks(), tasks(seed=1), tasks(until=UNTIL - timedelta(days=1)), tasks(JOBS[1:])]

    names = {task.study for [task] in made}

    assert len(names) == 4
    assert all(name.startswith("runtime.made.ctr-") for name in names)


def test_too_few_jobs_between_the_cuts_are_refused() -> None:
    with pytest.raises(TrainingError, match=r"no task type of made has enough jobs before .* for 4 inner cuts"):
        tasks(JOBS[:60])


def test_leads_are_mean_differences_with_an_interval_over_days_and_a_worse_recipe_has_none() -> None:
    [task] = tasks()
    losses = np.random.default_rng(0).uniform(0.4, 0.6, task.judged)

    of_default, of_best = (task.daily(task.folds, each) for each in (losses, losses - 0.1))
    lead = lead_of(task, task.folds, of_default, of_best)
    same = lead_of(task, task.folds, of_default, of_default)
    checked = checked_lead(task, Recipe(boosting=Boosting(rounds=20, learning_rate=0.001)))

    assert (lead.value, lead.lo, lead.hi) == pytest.approx((0.1, 0.1, 0.1))
    assert (same.value, same.lo, same.hi) == (0.0, 0.0, 0.0)
    assert task.counts(task.folds).sum() == task.judged
    assert checked.lo < checked.value < 0


FOLDS = (0, 1, 2)


@dataclass
class Bowl:
    """A task whose loss grows with the distance of depth and learning rate from their best."""

    study: str = "runtime.made.ctr-0"
    model: str = "runtime.made.ctr"
    seed: int = 0
    folds: tuple[int, ...] = FOLDS
    fitted: list[Recipe] = field(default_factory=list)
    before: Callable[[int], None] = lambda count: None
    loss: float = 1.0

    def fold_loss(self, recipe: Recipe, fold: int) -> FloatArray:
        self.before(len(self.fitted))
        self.fitted.append(recipe)
        grown = recipe.boosting
        loss = self.loss + abs(grown.max_depth - 4) + abs(math.log(grown.learning_rate / 0.2)) + 0.01 * fold
        return np.full(5, loss)

    def daily(self, folds: tuple[int, ...], losses: FloatArray) -> FloatArray:
        by_day: FloatArray = losses.reshape(len(folds), -1).sum(axis=1)
        return by_day


def trials(database: Path) -> list[Any]:
    return list(optuna.load_study(study_name=Bowl.study, storage=f"sqlite:///{database}").trials)


def done(database: Path) -> list[tuple[Any, Any]]:
    over = {TrialState.COMPLETE, TrialState.PRUNED}
    return [(each.params, each.intermediate_values) for each in trials(database) if each.state in over]


def run(task: Bowl, database: Path, count: int, **options: Any) -> Any:
    return search(task, database, trials=count, **options)  # type: ignore[arg-type]  # a stand-in


TRIALS = 9
STATES: list[Progress] = []


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the database of a search that nothing stopped; `STATES` holds what it reported."""
    database = tmp_path_factory.mktemp("whole") / "tune.db"
    STATES.clear()
    run(Bowl(), database, TRIALS, report=STATES.append)
    return database


def test_the_first_trial_is_the_default_and_the_best_is_no_worse(whole: Path) -> None:
    task = Bowl()

    found = run(task, whole, TRIALS)

    first, *others = trials(whole)
    assert task.fitted == []
    assert first.params == values_of(Recipe())
    assert [each.finished for each in STATES] == list(range(1, TRIALS + 1))
    assert found.progress == STATES[-1]
    assert found.progress.best <= found.progress.default == pytest.approx(first.value)
    assert found.best.sum() / 15 == pytest.approx(found.progress.best)
    assert all(SPACE[name].low <= value <= SPACE[name].high for t in others for name, value in t.params.items())
    assert len({str(each.params) for each in (first, *others)}) == TRIALS


def test_a_trial_that_is_behind_at_a_cut_is_pruned(whole: Path) -> None:
    behind = [each for each in trials(whole) if each.state == TrialState.PRUNED]

    assert behind
    assert all(len(each.intermediate_values) < len(FOLDS) for each in behind)
    assert all(each.state == TrialState.COMPLETE for each in trials(whole)[:5])


@pytest.mark.slow
@pytest.mark.parametrize("stops", [(1, TRIALS), (4, 7, TRIALS)])
def test_a_search_goes_on_where_it_stopped(tmp_path: Path, whole: Path, stops: tuple[int, ...]) -> None:
    for count in stops:
        run(Bowl(), tmp_path / "tune.db", count)

    assert done(tmp_path / "tune.db") == done(whole)


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 1, 14])
def test_a_trial_that_was_interrupted_is_made_again(tmp_path: Path, whole: Path, at: int) -> None:
    def interrupt(count: int) -> None:
        if count == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Bowl(before=interrupt), tmp_path / "tune.db", TRIALS)
    run(Bowl(), tmp_path / "tune.db", TRIALS)

    assert done(tmp_path / "tune.db") == done(whole)
    assert [each.state for each in trials(tmp_path / "tune.db")].count(TrialState.FAIL) == 1


@pytest.mark.slow
def test_a_trial_left_running_is_marked_as_failed(tmp_path: Path, whole: Path) -> None:
    run(Bowl(), tmp_path / "tune.db", 3)
    left = optuna.load_study(study_name=Bowl.study, storage=f"sqlite:///{tmp_path}/tune.db").ask()

    run(Bowl(), tmp_path / "tune.db", TRIALS)

    assert trials(tmp_path / "tune.db")[left.number].state == TrialState.FAIL
    assert done(tmp_path / "tune.db") == done(whole)


def test_time_ends_a_search_after_the_default_and_one_search_runs_at_a_time(tmp_path: Path) -> None:
    def second(count: int) -> None:
        with pytest.raises(Busy, match="another `taut tune` is using"):
            run(Bowl(), tmp_path / "tune.db", 1)

    assert run(Bowl(before=second), tmp_path / "tune.db", TRIALS, timeout_s=0.0).progress.finished == 1


def test_a_loss_that_is_no_number_and_a_file_that_is_no_database_end_the_search(tmp_path: Path) -> None:
    (tmp_path / "mine.db").write_text("mine, and long enough to be looked at" * 50)

    with pytest.raises(TrainingError, match=r"runtime\.made\.ctr: the loss of .* is nan"):
        run(replace(Bowl(), loss=math.nan), tmp_path / "tune.db", 3)
    with pytest.raises(BadUsage, match=r"--study-db .*expected a database of trials"):
        run(Bowl(), tmp_path / "mine.db", 1)
    assert (tmp_path / "mine.db").read_text().startswith("mine")
