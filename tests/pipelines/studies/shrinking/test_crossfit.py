"""Advice out of fold: no job is advised by models that saw its group, and each is advised once."""

from dataclasses import replace
from datetime import timedelta

import polars as pl
import pytest

from pipelines.errors import TrainingError
from pipelines.models.peaks import AlikeRecipe, UsageRecipe
from pipelines.simulation.job_pool import Pool, job_pool
from pipelines.studies.shrinking.crossfit import Crossfit, FoldedPredictor, crossfit, looking_back
from scheduler_core.shrink import ShrinkPolicy, shrink
from scheduler_core.types import Reason, Recommendation
from tests.pipelines.lake.canonical import T0, measured_tables
from tests.pipelines.models.conftest import make_jobs
from tests.pipelines.models.test_usage import use_of

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


@pytest.mark.slow
def test_no_fold_saw_the_groups_it_advises(pool: Pool, fitted: Crossfit) -> None:
    assert sorted(set(fitted.fold_of.tolist())) == list(range(FOLDS))
    for number, fold in enumerate(fitted.folds):
        advised = {pool.jobs[row].job.group for row in (fitted.fold_of == number).nonzero()[0].tolist()}

        assert advised.isdisjoint(fold.trained.frame["group"])
        assert {model.kind for model in fold.models} == {"runtime", "usage"}


def advice(pool: Pool, fitted: Crossfit, *, cold: bool = False) -> list[Recommendation]:
    """Return advice out of fold; `cold` by the histories of the training groups alone."""
    predictor = FoldedPredictor.of(fitted, pool)
    if cold:
        predictor = replace(predictor, folds=[fold.predictor(fold.trained) for fold in fitted.folds])
    devices = {"device_mem_gib": pool.device_mem_gib, "assumed_device_mem_gib": pool.assumed_device_mem_gib}
    return shrink([entry.job for entry in pool.jobs], predictor, replace(ShrinkPolicy(), **devices))


@pytest.mark.slow
@pytest.mark.parametrize("cold", [False, True])
def test_every_job_is_advised_in_order_and_some_are_shrunk(pool: Pool, fitted: Crossfit, cold: bool) -> None:
    answers = advice(pool, fitted, cold=cold)

    assert [answer.job_id for answer in answers] == [entry.job.job_id for entry in pool.jobs]
    assert any(answer.target != answer.request for answer in answers)


@pytest.mark.slow
def test_what_nobody_alike_asked_for_keeps_its_request_in_a_group_never_seen(
    pool: Pool, jobs: pl.DataFrame, usage: pl.DataFrame, fitted: Crossfit
) -> None:
    odd = job_pool(jobs.with_columns(pl.lit(7.0).alias("req_cpu_cores")), usage)

    answers = advice(odd, fitted, cold=True)

    assert all(answer.target == answer.request for answer in answers)
    assert {reason for answer in answers for reason in answer.reasons.values()} == {Reason.COLD_START}
    assert len(answers) == len(pool.jobs)


@pytest.mark.slow
def test_a_pool_of_another_lake_is_refused(pool: Pool, jobs: pl.DataFrame, usage: pl.DataFrame) -> None:
    with pytest.raises(TrainingError, match="one lake"):
        crossfit(pool, jobs[:200], usage, folds=FOLDS, usage_recipe=FEW)


@pytest.mark.parametrize(
    ("group", "role", "ends_min", "back"),
    [
        ("g", "worker", 59, 1),
        ("g", "worker", 60, 1),
        ("g", "worker", 61, 0),
        ("g", "ps", 59, 0),
        ("other", "worker", 59, 0),
        (None, "worker", 59, 0),
    ],
)
def test_a_job_looks_back_on_what_had_ended_of_its_own_group_and_role(
    group: str | None, role: str, ends_min: int, back: int
) -> None:
    jobs, usage = measured_tables(2)
    earlier, later = T0 + timedelta(minutes=ends_min), T0 + timedelta(minutes=60)
    jobs = jobs.with_columns(
        group=pl.Series([group, "g" if group else None], dtype=pl.String),
        role=pl.Series([role, "worker"]),
        submit_ts=pl.Series([T0, later]).cast(jobs.schema["submit_ts"]),
        end_ts=pl.Series([earlier, later + timedelta(hours=1)]).cast(jobs.schema["end_ts"]),
    )
    later_alone = job_pool(jobs[1:], usage[1:])

    assert looking_back(later_alone, jobs) == back
    assert looking_back(later_alone, jobs[1:]) == 0
