"""Advice out of fold: no job is advised by models that saw its group, and each is advised once."""

from dataclasses import replace

import polars as pl
import pytest

from pipelines.errors import TrainingError
from pipelines.models.peaks import AlikeRecipe, UsageRecipe
from pipelines.simulation.job_pool import Pool, job_pool
from pipelines.studies.shrinking.crossfit import Crossfit, crossfit, handing_out
from scheduler_core.shrink import ShrinkPolicy
from scheduler_core.types import Reason
from tests.pipelines.models.conftest import make_jobs
from tests.pipelines.models.test_usage import use_of

pytestmark = pytest.mark.slow

FOLDS = 2
FEW = UsageRecipe(alike=AlikeRecipe(least_groups=2))


@pytest.fixture(scope="module")
def jobs() -> pl.DataFrame:
    """Return jobs that ask for three sizes of memory alone, so that requests come back in every group."""
    made = make_jobs(240, seed=5)
    return made.with_columns(pl.lit(6.0).alias("req_cpu_cores"), pl.lit(1.0).alias("req_gpus"))


@pytest.fixture(scope="module")
def usage(jobs: pl.DataFrame) -> pl.DataFrame:
    return use_of(jobs).with_columns(gpu_mem_max_gib=pl.lit(1.0))


@pytest.fixture(scope="module")
def pool(jobs: pl.DataFrame, usage: pl.DataFrame) -> Pool:
    return job_pool(jobs, usage)


@pytest.fixture(scope="module")
def fitted(pool: Pool, jobs: pl.DataFrame, usage: pl.DataFrame) -> Crossfit:
    return crossfit(pool, jobs, usage, folds=FOLDS, usage_recipe=FEW)


def test_no_fold_saw_the_groups_it_advises(pool: Pool, fitted: Crossfit) -> None:
    assert sorted(set(fitted.fold_of.tolist())) == list(range(FOLDS))
    for number, fold in enumerate(fitted.folds):
        advised = {pool.jobs[row].job.group for row in (fitted.fold_of == number).nonzero()[0].tolist()}

        assert advised.isdisjoint(fold.trained.frame["group"])
        assert {model.kind for model in fold.models} == {"runtime", "usage"}


@pytest.mark.parametrize("history", ["own", "cold"])
def test_every_job_is_advised_in_order_and_some_are_shrunk(pool: Pool, fitted: Crossfit, history: str) -> None:
    answers = fitted.advise(pool, ShrinkPolicy(), history="own" if history == "own" else "cold")

    assert [answer.job_id for answer in answers] == [entry.job.job_id for entry in pool.jobs]
    assert any(answer.target != answer.request for answer in answers)
    assert handing_out(pool, answers)([pool.jobs[3].job]) == [answers[3]]


def test_what_nobody_alike_asked_for_keeps_its_request_in_a_group_never_seen(
    pool: Pool, jobs: pl.DataFrame, usage: pl.DataFrame, fitted: Crossfit
) -> None:
    odd = job_pool(jobs.with_columns(pl.lit(7.0).alias("req_cpu_cores")), usage)

    answers = replace(fitted).advise(odd, ShrinkPolicy(), history="cold")

    assert all(answer.target == answer.request for answer in answers)
    assert {reason for answer in answers for reason in answer.reasons.values()} == {Reason.COLD_START}
    assert len(answers) == len(pool.jobs)


def test_a_pool_of_another_lake_is_refused(pool: Pool, jobs: pl.DataFrame, usage: pl.DataFrame) -> None:
    with pytest.raises(TrainingError, match="one lake"):
        crossfit(pool, jobs[:200], usage, folds=FOLDS, usage_recipe=FEW)
