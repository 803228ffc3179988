"""Cuts inside the training period: nothing after the training cut is read, and recipes are compared by day."""

from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

from features.tables import TABLES
from pipelines.errors import TrainingError
from pipelines.models.boosting import Boosting
from pipelines.models.fitted import Recipe
from pipelines.models.training_tables import Tables
from pipelines.models.tuning import SPACE, Task, checked_lead, describe_changes, lead_of, recipe_of, tasks_of, values_of
from tests.pipelines.models.conftest import T0, make_jobs

UNTIL = T0 + timedelta(days=30)
JOBS = make_jobs(700, 5)
QUICK = replace(Recipe(), boosting=Boosting(rounds=10, patience=5, max_depth=3, learning_rate=0.3))


def tasks(jobs: pl.DataFrame = JOBS, *, until: datetime | None = UNTIL, seed: int = 0) -> list[Task]:
    tables = Tables(jobs=jobs, usage=TABLES["usage"].create_empty())
    return tasks_of(tables, "made", by="kind", until=until, types=None, seed=seed, nthread=1)


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
    [task] = tasks()

    names = {
        task.study,
        *(each.study for each in tasks(seed=1)),
        *(each.study for each in tasks(until=UNTIL - timedelta(days=1))),
        *(each.study for each in tasks(JOBS[1:])),
    }

    assert len(names) == 4
    assert all(name.startswith("runtime.made.ctr-") for name in names)


def test_too_few_jobs_between_the_cuts_are_refused() -> None:
    with pytest.raises(TrainingError, match=r"no task type of made has enough jobs before .* for 4 inner cuts"):
        tasks(JOBS[:60])


def test_the_default_recipe_is_within_the_search_space() -> None:
    usual = values_of(Recipe())

    assert recipe_of(usual) == Recipe()
    assert all(SPACE[name].low <= value <= SPACE[name].high for name, value in usual.items())
    assert all(isinstance(value, int) == isinstance(SPACE[name].low, int) for name, value in usual.items())
    assert describe_changes(Recipe()) == ""
    assert describe_changes(recipe_of({**usual, "max_depth": 3})) == "max_depth=3"


def test_the_lead_is_the_mean_difference_with_an_interval_over_days() -> None:
    [task] = tasks()
    losses = np.random.default_rng(0).uniform(0.4, 0.6, task.judged)

    lead = lead_of(task, task.daily(losses), task.daily(losses - 0.1))
    same = lead_of(task, task.daily(losses), task.daily(losses))

    assert (lead.value, lead.lo, lead.hi) == pytest.approx((0.1, 0.1, 0.1))
    assert (same.value, same.lo, same.hi) == (0.0, 0.0, 0.0)
    assert task.counts.sum() == task.judged


def test_a_worse_recipe_does_not_pass_the_check() -> None:
    [task] = tasks()

    lead = checked_lead(task, replace(Recipe(), boosting=Boosting(rounds=20, learning_rate=0.001)))

    assert lead.lo < lead.value < 0
