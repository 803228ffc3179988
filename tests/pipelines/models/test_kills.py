"""Jobs that were killed for memory: their requests are lower bounds of what they needed, and only raise floors."""

import numpy as np
import polars as pl
import pytest

from features.tables import TABLES
from pipelines.models import usage as training
from pipelines.models.boosting import Boosting, predict
from pipelines.models.model import TrainedModel
from pipelines.models.peaks import AlikeRecipe, UsageRecipe, alike_of
from pipelines.models.training_tables import with_kills
from tests.pipelines.models.conftest import make_jobs
from tests.pipelines.models.test_usage import CUT, use_of

# Without features of earlier use, so that two models differ only by what they learn from the rows themselves.
RECIPE = UsageRecipe(features="submit", boosting=Boosting(rounds=15, patience=5, learning_rate=0.2, max_depth=3))
JOBS = make_jobs(700, seed=5)
USE = use_of(JOBS)
KILLED = JOBS.gather_every(4)["job_id"].implode()
KEY = ["trace", "cluster", "job_id", "role"]
OF_KILLED = pl.col("job_id").is_in(KILLED)


def killed_at(request_gib: float) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the tables in which every fourth job was killed at this request, and measured at a tenth of it."""
    jobs = JOBS.with_columns(
        status=pl.when(OF_KILLED).then(pl.lit("oom")).otherwise("status"),
        req_mem_gib=pl.when(OF_KILLED).then(request_gib).otherwise("req_mem_gib"),
    )
    use = USE.with_columns(mem_max_gib=pl.when(OF_KILLED).then(request_gib / 10).otherwise("mem_max_gib"))
    return jobs, with_kills(jobs, use)


def trained(jobs: pl.DataFrame, use: pl.DataFrame) -> TrainedModel:
    [model] = training.train_usage(jobs, use, trace="made", until=CUT, recipe=RECIPE)
    return model


def test_a_killed_job_used_its_request_at_least() -> None:
    jobs, use = killed_at(40.0)
    unmeasured = use.filter(pl.col("job_id") != JOBS["job_id"][0])

    added = with_kills(jobs, unmeasured)

    for table in (use, added):
        assert TABLES["usage"].is_valid(TABLES["usage"].cast(table))
        assert table.filter(OF_KILLED)["mem_max_gib"].unique().to_list() == [40.0]
        others = table.filter(~OF_KILLED)
        assert others.equals(USE.filter(~OF_KILLED))
    [only] = added.filter(pl.col("job_id") == JOBS["job_id"][0]).rows(named=True)
    assert (only["used_cpu_cores"], only["instances_measured"]) == (None, JOBS["instances"][0])


def test_a_measured_peak_above_the_request_stays_and_tables_without_kills_too() -> None:
    jobs, _ = killed_at(1.0)

    peaks = with_kills(jobs, USE).filter(OF_KILLED)["mem_max_gib"]

    assert peaks.to_list() == USE.filter(OF_KILLED)["mem_max_gib"].to_list()
    assert with_kills(JOBS, USE) is USE
    assert with_kills(jobs, USE[:0]).is_empty()


@pytest.mark.slow
def test_low_bounds_change_no_floor_and_high_ones_raise_them() -> None:
    """Low bounds are below every prediction, so the trees are those of jobs whose memory was not measured."""
    jobs, low = killed_at(0.5)
    unmeasured = low.with_columns(mem_max_gib=pl.when(~OF_KILLED).then("mem_max_gib"))
    without, with_low, with_high = trained(jobs, unmeasured), trained(jobs, low), trained(*killed_at(60.0))

    raws = [model.boosters["mem_gib"].save_raw("ubj") for model in (without, with_low)]
    assert raws[0] == raws[1]
    assert with_low.offsets == without.offsets
    assert with_low.evaluation.equals(without.evaluation)

    def floors(model: TrainedModel) -> np.ndarray:
        from features.build import build

        later = JOBS.filter(pl.col("submit_ts") > CUT)
        matrix = model.contract.encode(build(later, model.history, model.contract.names))
        return np.expm1(predict(model.boosters["mem_gib"], matrix)[:, 0])

    assert np.median(floors(with_high) / floors(without)) > 1.5


def test_bounds_of_similar_jobs_hold_the_request_of_a_killed_one() -> None:
    recipe = AlikeRecipe(least_groups=1)
    jobs, use = killed_at(40.0)

    found = alike_of(jobs.join(use, on=KEY), training.MEASURED_COLUMN, recipe)

    bounds = [each.needs["mem_gib"] for each in found if each.mem_gib == 40.0]
    assert bounds
    assert bounds == pytest.approx([40.0 * recipe.bounds["mem_gib"].factor] * len(bounds))
